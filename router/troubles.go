package router

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/shardpub"
)

// troubles remembers what the Node reported and tries again, for Health. It
// hears of failures only; so a trouble is over when it was not reported for a
// while that is longer than any retry takes.
type troubles struct {
	mu         sync.Mutex // guards what follows
	checkpoint trouble
	read       trouble
	session    trouble
}

// troubleWindow is longer than a statement's timeout and the backoff after it.
const troubleWindow = 10 * time.Second

// trouble is a row of failures of one kind.
type trouble struct {
	since, last time.Time
	err         error
}

func (t *trouble) add(err error, now time.Time) {
	if !t.lasts(now) {
		t.since = now
	}
	t.last, t.err = now, err
}

func (t *trouble) lasts(now time.Time) bool {
	return t.err != nil && clock.Elapsed(t.last, now) < troubleWindow
}

// hook is the Node's OnError: it takes notes and calls the user's, if any.
func (t *troubles) hook(next func(context.Context, error)) func(context.Context, error) {
	return func(ctx context.Context, err error) {
		t.note(err, clock.Now())
		if next != nil {
			next(ctx, err)
		}
	}
}

func (t *troubles) note(err error, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var (
		checkpoint *shardpub.CheckpointError
		read       *shardpub.ReadError
		session    *shardpub.SessionError
	)
	switch {
	case errors.As(err, &checkpoint):
		t.checkpoint.add(err, now)
	case errors.As(err, &read):
		t.read.add(err, now)
	case errors.As(err, &session):
		t.session.add(err, now)
	}
}

// problems are the troubles that last.
func (t *troubles) problems(now time.Time) []Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Problem
	add := func(kind ProblemKind, t *trouble) {
		if t.lasts(now) {
			out = append(out, Problem{Kind: kind, Bucket: NoBucket, Since: t.since, Err: t.err})
		}
	}
	add(CheckpointFailing, &t.checkpoint)
	add(ReadFailing, &t.read)
	add(SessionLost, &t.session)
	return out
}
