package integration_test

import (
	"os"
	"testing"
)

// TestMain lets the test binary be a worker process: a real one, with a pool of
// its own, that can be killed by its pid.
func TestMain(m *testing.M) {
	if spec := os.Getenv(workerEnv); spec != "" {
		os.Exit(runWorker(spec))
	}
	os.Exit(m.Run())
}
