package router

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/shardpub"
)

// Start ensures every handler's subscription, subscribes, and returns when the
// router runs; buckets come later. ctx bounds the start alone: its values, but
// not its end, are in every message's context. Calls after the first wait for it
// and return the same.
//
// Errors, joined, nothing being claimed: a [*HandlerError] for each handler that
// was added wrongly, or whose subscription could not be ensured within its
// StartTimeout, with the errors of shardpub.Subscriber.Subscribe. [ErrStopped] if
// the Worker was stopped. A Worker that failed to start has ended.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	first := !w.begun
	if first && w.stopAsked {
		w.mu.Unlock()
		return ErrStopped
	}
	w.begun = true
	w.mu.Unlock()
	if !first {
		return w.waitStarted(ctx)
	}
	w.startErr, w.startedAt = w.start(ctx), clock.Now()
	if w.startErr != nil {
		go w.shutdown(nil)
	} else {
		go w.supervise()
	}
	close(w.started)
	return w.startErr
}

func (w *Worker) waitStarted(ctx context.Context) error {
	select {
	case <-w.started:
	case <-ctx.Done():
		return fmt.Errorf("router: start: %w", context.Cause(ctx))
	}
	if w.startErr == nil && w.isOver() {
		return ErrStopped
	}
	return w.startErr
}

func (w *Worker) start(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-w.stopping:
			cancel(ErrStopped)
		case <-ctx.Done():
		}
	}()
	if err := w.ready(); err != nil {
		return err
	}
	if err := w.ensure(ctx); err != nil {
		return err
	}
	return w.launch(ctx)
}

// ready checks what can be checked without a server.
func (w *Worker) ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wrongOrder(w.middlewares) {
		w.logger.Error("Middleware in the wrong order", ErrMiddlewareOrder, nil)
	}
	if len(w.bad) > 0 {
		return errors.Join(w.bad...)
	}
	if len(w.router.Handlers()) == 0 {
		return &shardpub.ConfigError{Field: "handlers", Value: "none", Cure: "add one before Start"}
	}
	return nil
}

// ensure ensures all subscriptions at once. When ctx ends it returns, and what is
// under way ends soon.
func (w *Worker) ensure(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { w.closeSubscribers() })
	defer stop()
	errs := make([]error, len(w.handlers))
	var all sync.WaitGroup
	for i, h := range w.handlers {
		all.Go(func() {
			if err := h.subscriber.SubscribeInitialize(h.category); err != nil {
				errs[i] = &HandlerError{Handler: h.name, Err: err}
			}
		})
	}
	ensured := make(chan struct{})
	go func() {
		all.Wait()
		close(ensured)
	}()
	select {
	case <-ensured:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return fmt.Errorf("router: start: %w", context.Cause(ctx))
	}
	return errors.Join(errs...)
}

// launch runs the Watermill router and waits until it has subscribed.
func (w *Worker) launch(ctx context.Context) error {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer cancel()
		w.ran <- w.router.Run(run)
	}()
	abort := context.AfterFunc(ctx, func() {
		cancel()
		w.closeSubscribers()
	})
	select {
	case <-w.router.Running():
		if abort() {
			return nil
		}
		return fmt.Errorf("router: start: %w", context.Cause(ctx))
	case err := <-w.ran:
		cancel()
		w.ran <- err
		if ctx.Err() != nil {
			return fmt.Errorf("router: start: %w", context.Cause(ctx))
		}
		if err == nil {
			err = ErrRouterClosed
		}
		return fmt.Errorf("router: start: %w", err)
	}
}
