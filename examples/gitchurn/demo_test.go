package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/fixture"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
)

// The demo from one end to the other, on a history of every odd kind.
func TestDemoKeepsEveryPromiseThroughASIGKILL(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code := run(t.Context(), small(fixture.Odd(t)), screen.Log(&out), nil)
	t.Log(out.String())
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{
		"the history is tiny: ", "SIGKILL to worker", "worker 4 starts", "file changes and ", "The ten hottest files", "dir/caf%E9",
		"lost                 0", "out of order         0", "Every promise was kept",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("the output of a log has cursor or colour codes")
	}
}

func TestOneBrokenRowMakesTheExitCodeNonZero(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code := run(t.Context(), small(fixture.Odd(t)), screen.Log(&out), func(ctx context.Context, pool *pgxpool.Pool) error {
		tag, err := pool.Exec(ctx, "update demo.churn set deleted = deleted + 1 where path = 'dir/caf%E9'")
		if err == nil && tag.RowsAffected() != 1 {
			err = errors.New("no such row")
		}
		return err
	})
	if code != exitFailed || !strings.Contains(out.String(), `"dir/caf%E9": git says {Commits:2 Added:3 Deleted:1}, the table says {Commits:2 Added:3 Deleted:2}`) {
		t.Errorf("exit code %d\n%s", code, out.String())
	}
}

func TestDirectoryWithoutRepositoryIsSaidAndFails(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if code := run(t.Context(), small(t.TempDir()), screen.Log(&out), nil); code != exitFailed || !strings.Contains(out.String(), "not a git repository") {
		t.Errorf("exit code %d\n%s", code, out.String())
	}
}

var pidPattern = regexp.MustCompile(`worker 4 starts, pid (\d+)`)

// started runs the program as a process of its own until its fourth worker has
// started, and returns it with that worker's process id.
func started(t *testing.T) (cmd *exec.Cmd, out *bufio.Scanner, pid int) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], demoFlag+fixture.Odd(t))
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out = bufio.NewScanner(pipe)
	for out.Scan() {
		if m := pidPattern.FindStringSubmatch(out.Text()); m != nil {
			if pid, err = strconv.Atoi(m[1]); err != nil {
				t.Fatal(err)
			}
			return cmd, out, pid
		}
	}
	t.Fatalf("no fourth worker was started: %v, %v", out.Err(), cmd.Wait())
	return nil, nil, 0
}

// gone waits until a process has ended; one that nobody waits for counts.
func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if !alive(pid) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("process %d outlives the program", pid)
		case <-tick.C:
		}
	}
}

func TestWorkersDieWithTheProgramEvenBySIGKILL(t *testing.T) {
	t.Parallel()
	cmd, _, pid := started(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // killed
	gone(t, pid)
}

func TestInterruptCleansUp(t *testing.T) {
	t.Parallel()
	cmd, out, pid := started(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	said := ""
	for out.Scan() {
		said += out.Text() + "\n"
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted || !strings.Contains(said, "Interrupted") {
		t.Errorf("got %v\n%s", err, said)
	}
	if alive(pid) {
		t.Errorf("worker %d is still there", pid)
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil { // gone, or a system without /proc
		p, err := os.FindProcess(pid)
		return err == nil && p.Signal(syscall.Signal(0)) == nil
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
