// Package verify judges a run of the demo. It reads the git history again, in
// git's quoted form and with a parser of its own, and shares no code with what
// imported it.
package verify

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Totals is what a history says of one file.
type Totals struct {
	Commits, Added, Deleted int64
}

// Expected reads the history that leads to head and returns the totals of every
// path in it, by the path's bytes. limit is the number of newest commits; zero
// means all. An empty head has no history.
func Expected(ctx context.Context, dir, head string, limit int) (map[string]Totals, error) {
	if head == "" {
		return map[string]Totals{}, nil
	}
	args := []string{
		"-C", dir, "-c", "core.quotePath=true", "-c", "diff.relative=false", "-c", "log.showRoot=true", "-c", "log.showSignature=false",
		"log", "--raw", "--numstat", "--find-renames", "--no-abbrev", "--no-merges", "--no-color", "--no-ext-diff", "--no-textconv",
		"--pretty=tformat:@%H",
	}
	if limit > 0 {
		args = append(args, "-n", strconv.Itoa(limit))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	git := exec.CommandContext(ctx, "git", append(args, head, "--")...)
	git.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "GIT_DIR" || name == "GIT_WORK_TREE"
	})
	var stderr bytes.Buffer
	git.Stderr = &stderr
	stdout, err := git.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("verify: git log: %w", err)
	}
	if err := git.Start(); err != nil {
		return nil, fmt.Errorf("verify: git log: %w", err)
	}
	files, unreadable := Tally(stdout)
	if unreadable != nil {
		cancel() // git may wait for a reader
	}
	if err := git.Wait(); err != nil && unreadable == nil {
		return nil, fmt.Errorf("verify: git log: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return files, unreadable
}

// Tally adds up what git log prints with --raw and --numstat:
//
//	@<hash>
//
//	:<modes, hashes and status> TAB <path> [TAB <new path>]
//	<added> TAB <deleted> TAB <path, or old and new in git's short form>
//
// The short form cannot be taken apart: a file may be called "a => b". So the
// paths come from the lines with a colon, the counts from those with numbers,
// and the nth of the one belongs to the nth of the other.
func Tally(r io.Reader) (map[string]Totals, error) {
	t := tally{files: map[string]Totals{}}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if err := t.line(in.Text()); err != nil {
			return nil, err
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("verify: git log: %w", err)
	}
	return t.files, t.complete()
}

type tally struct {
	files   map[string]Totals
	commit  string
	waiting []string // paths of the commit whose counts have not come yet
}

func (t *tally) line(s string) error {
	switch {
	case s == "":
		return nil
	case s[0] == '@':
		err := t.complete()
		t.commit = s[1:]
		return err
	case s[0] == ':':
		path, err := target(s)
		t.waiting = append(t.waiting, path)
		return err
	default:
		return t.count(s)
	}
}

func (t *tally) count(s string) error {
	fields := strings.SplitN(s, "\t", 3)
	if len(fields) != 3 || len(t.waiting) == 0 {
		return fmt.Errorf("verify: git log: commit %s: cannot read %.200q", t.commit, s)
	}
	path := t.waiting[0]
	t.waiting = t.waiting[1:]
	sum := t.files[path]
	sum.Commits++
	if fields[0] != "-" {
		added, err := strconv.ParseUint(fields[0], 10, 63)
		if err != nil {
			return fmt.Errorf("verify: git log: commit %s: %w", t.commit, err)
		}
		deleted, err := strconv.ParseUint(fields[1], 10, 63)
		if err != nil {
			return fmt.Errorf("verify: git log: commit %s: %w", t.commit, err)
		}
		sum.Added += int64(added)
		sum.Deleted += int64(deleted)
	}
	t.files[path] = sum
	return nil
}

func (t *tally) complete() error {
	if n := len(t.waiting); n > 0 {
		return fmt.Errorf("verify: git log: commit %s: no counts for %d paths", t.commit, n)
	}
	return nil
}

// target is the last path of a line with a colon. Git quotes paths with odd
// bytes as Go quotes strings.
func target(s string) (string, error) {
	fields := strings.Split(s, "\t")
	path := fields[len(fields)-1]
	if len(fields) < 2 || path == "" {
		return "", fmt.Errorf("verify: git log: cannot read %.200q", s)
	}
	if path[0] != '"' {
		return path, nil
	}
	unquoted, err := strconv.Unquote(path)
	if err != nil || unquoted == "" {
		return "", fmt.Errorf("verify: git log: cannot read path %.200q", path)
	}
	return unquoted, nil
}
