package shardpub

import (
	"context"
	"fmt"
	"os"
)

// errorQueue calls OnError from a goroutine of its own, so that a hook that
// blocks or panics stalls nothing. What does not fit is dropped: it was logged.
type errorQueue struct {
	hook func(context.Context, error)
	ch   chan error
}

const errorQueueSize = 256

func newErrorQueue(hook func(context.Context, error)) *errorQueue {
	return &errorQueue{hook: hook, ch: make(chan error, errorQueueSize)}
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
