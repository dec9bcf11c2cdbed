// Package history reads which files the commits of a git repository changed,
// and by how many lines, oldest commit first.
//
// Merge commits are left out, as git log leaves out what they changed: the
// commits that they join are there on their own, so that each change counts
// once. A renamed file goes on under its new path.
package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Repository is a repository at one commit. Commits made later are not in it.
type Repository struct {
	// Dir is where git is asked.
	Dir string
	// Head is the commit that the history leads to; empty when there is none yet.
	Head string
	// Limit is the number of newest commits to read; zero means all.
	Limit int
	// Commits is the number of commits to read, those without changes included.
	Commits int
	// Shallow says that the clone holds the newest commits only.
	Shallow bool
}

// Open looks at the repository in or above dir. limit is the number of newest
// commits to read; zero means all. A repository without commits is no error.
func Open(ctx context.Context, dir string, limit int) (*Repository, error) {
	r := &Repository{Dir: dir, Limit: limit}
	shallow, err := r.git(ctx, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return nil, err
	}
	r.Shallow = shallow == "true"
	r.Head, err = r.git(ctx, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	count, err := r.git(ctx, append(append([]string{"rev-list", "--count", "--no-merges"}, r.limit()...), r.Head)...)
	if err != nil {
		return nil, err
	}
	if r.Commits, err = strconv.Atoi(count); err != nil {
		return nil, fmt.Errorf("history: count of commits: %w", err)
	}
	return r, nil
}

func (r *Repository) limit() []string {
	if r.Limit <= 0 {
		return nil
	}
	return []string{"--max-count=" + strconv.Itoa(r.Limit)}
}

// git returns what a git command prints, without the end of the line.
func (r *Repository) git(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := r.command(ctx, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", gitError(args[0], err, stderr.Bytes())
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// command is git in the repository, whatever repository a hook has put into
// the environment.
func (r *Repository) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", r.Dir}, args...)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_DIR=") && !strings.HasPrefix(v, "GIT_WORK_TREE=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

func gitError(command string, err error, stderr []byte) error {
	if said := bytes.TrimSpace(stderr); len(said) > 0 {
		return fmt.Errorf("history: git %s: %w: %s", command, err, said)
	}
	return fmt.Errorf("history: git %s: %w", command, err)
}
