package lease_test

import (
	"embed"
	"testing"

	"go.uber.org/goleak"
)

//go:embed sql
var statements embed.FS

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
