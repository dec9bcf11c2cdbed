package history

import (
	"bytes"
	"context"
	"io"
	"iter"
)

// Changes reads the history, oldest commit first, as git prints it: nothing is
// collected. The sequence ends at its first error, or with the loop that ranges
// over it; git ends with it.
func (r *Repository) Changes(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		if r.Head == "" {
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var stderr bytes.Buffer
		cmd := r.command(ctx, r.logArgs()...)
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			yield(Change{}, gitError("log", err, nil))
			return
		}
		stopped := forward(out, yield)
		if stopped {
			cancel()
		}
		if err := cmd.Wait(); err != nil && !stopped {
			yield(Change{}, gitError("log", err, stderr.Bytes()))
		}
	}
}

// forward hands on what the parser finds and reports whether the loop ended early.
func forward(out io.Reader, yield func(Change, error) bool) bool {
	for c, err := range Parse(out) {
		if !yield(c, err) || err != nil {
			return true
		}
	}
	return false
}

// logArgs names everything that the user's configuration could change.
func (r *Repository) logArgs() []string {
	args := []string{
		"-c", "diff.relative=false", "-c", "log.showRoot=true", "-c", "log.showSignature=false",
		"log", "--reverse", "--no-merges", "--numstat", "-z", "-M",
		"--no-color", "--no-ext-diff", "--no-textconv", "--encoding=UTF-8", "--format=" + format,
	}
	return append(append(args, r.limit()...), r.Head, "--")
}
