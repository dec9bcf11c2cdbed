package router

import (
	"context"
	"errors"
)

// Run starts the Worker, runs it until ctx ends or somebody stops it, and stops
// it: no new event, running handlers finish within their DrainTimeout, what they
// settled is written, buckets are given back. It returns nil then. It installs no
// signal handler: pass a context of signal.NotifyContext.
//
// Errors: those of Start; joined *shardpub.DrainError for handlers that outlived
// their DrainTimeout; [*CloseTimeoutError]; [ErrRouterClosed], or the Watermill
// router's error, when it ended by itself; [ErrStopped] when the Worker had ended
// before.
func (w *Worker) Run(ctx context.Context) error {
	if w.isOver() {
		return ErrStopped
	}
	if err := w.Start(ctx); err != nil {
		graceful := errors.Is(err, ErrStopped) || ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
		if graceful {
			err = nil
		}
		return errors.Join(err, w.halt(ctx))
	}
	select {
	case <-ctx.Done():
	case <-w.done:
	}
	return w.halt(ctx)
}

// halt stops the Worker, ctx being over already.
func (w *Worker) halt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.closeTimeout()+closeGrace)
	defer cancel()
	return w.Stop(ctx)
}

func (w *Worker) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopAsked || w.hasEnded()
}

// Done is closed when the Worker has ended, for whatever reason: [Worker.Err]
// tells it.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Err is nil until Done is closed; then why the Worker ended: nil after a Stop
// that went well, else the error of Start or Stop.
func (w *Worker) Err() error {
	if !w.hasEnded() {
		return nil
	}
	return errors.Join(w.startErr, w.err)
}
