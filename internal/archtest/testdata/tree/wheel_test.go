package mill_test

import (
	"testing"
	_ "time"
)

func TestS2ATurns(t *testing.T) {
	t.Run("sub", func(t *testing.T) {})
}

// It is case 12 of the reports.
func FuzzBlade(f *testing.F) { f.Log("L-0D is a weak point") }
