package shardpub

import (
	"context"
	"fmt"
	"os"
	"time"
)

// errorQueue calls OnError from a goroutine of its own, so that a hook that
// blocks or panics stalls nothing. What does not fit is dropped: it was logged.
type errorQueue struct {
	hook func(context.Context, error)
	ch   chan error
	done chan struct{} // closed when run has returned
}

const errorQueueSize = 256

func newErrorQueue(hook func(context.Context, error)) *errorQueue {
	return &errorQueue{hook: hook, ch: make(chan error, errorQueueSize), done: make(chan struct{})}
}

func (q *errorQueue) put(err error) {
	if q.hook == nil {
		return
	}
	select {
	case q.ch <- err:
	default:
	}
}

// run calls the hook until ctx ends, then for what is left.
func (q *errorQueue) run(ctx context.Context) {
	defer close(q.done)
	for {
		select {
		case err := <-q.ch:
			q.call(ctx, err)
		case <-ctx.Done():
			for len(q.ch) > 0 {
				q.call(ctx, <-q.ch)
			}
			return
		}
	}
}

// lastErrors is how long Close waits for the hook: it may be the hook that calls
// Close.
const lastErrors = time.Second

// wait returns when run has, or when the hook takes too long.
func (q *errorQueue) wait() {
	t := time.NewTimer(lastErrors)
	defer t.Stop()
	select {
	case <-q.done:
	case <-t.C:
	}
}

func (q *errorQueue) call(ctx context.Context, err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "suisha: OnError panicked: %v\n", p)
		}
	}()
	q.hook(ctx, err)
}

// hostname names this process's host, or says that it has none.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
