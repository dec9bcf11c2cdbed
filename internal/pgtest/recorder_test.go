package pgtest_test

import (
	"fmt"
	"runtime"
	"testing"
)

// recorder is a test that remembers why it failed. Run it in a goroutine of
// its own.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
