//go:build linux

package pgserver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// ownerEnv makes this test binary a program that owns a server. Its value
// marks every process that descends from it.
const ownerEnv = "SUISHA_TEST_PG_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) == "" {
		os.Exit(m.Run())
	}
	s, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.local.dir)
	select {}
}

// family returns the processes whose environment holds the mark, with their
// command lines.
func family(mark string) map[int]string {
	out := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range dirs {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, []byte(ownerEnv+"="+mark+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		out[pid] = strings.ReplaceAll(string(cmdline), "\x00", " ")
	}
	return out
}

func TestNothingOutlivesASIGKILLOfTheOwner(t *testing.T) {
	t.Parallel()
	// Each wait returns the server's directory when the moment has come.
	moments := map[string]func(t *testing.T, mark string, out *bufio.Scanner) string{
		"while it runs": func(t *testing.T, _ string, out *bufio.Scanner) string {
			t.Helper()
			if !out.Scan() {
				t.Fatal("the owner printed nothing")
			}
			return out.Text()
		},
		"while initdb runs": func(t *testing.T, mark string, _ *bufio.Scanner) string {
			t.Helper()
			var dir string
			eventually(t, "initdb is seen", func() bool {
				for _, cmd := range family(mark) {
					if _, after, ok := strings.Cut(cmd, "initdb -D "); ok {
						dir, _, _ = strings.Cut(after, "/data.new ")
						return true
					}
				}
				return false
			})
			return dir
		},
	}
	for name, moment := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := strconv.Itoa(os.Getpid()) + strings.ReplaceAll(name, " ", "-")
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), ownerEnv+"="+mark)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			dir := moment(t, mark, bufio.NewScanner(out))
			if gone(dir) || len(family(mark)) < 2 {
				t.Errorf("before the kill: directory %q, processes %v", dir, family(mark))
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			eventually(t, "server, guard and directory are gone", func() bool { return len(family(mark)) == 0 && gone(dir) })
		})
	}
}
