package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/shardpub"
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

// supervise waits for the end, wanted or not.
func (w *Worker) supervise() {
	var died error
	select {
	case <-w.stopping:
	case err := <-w.ran:
		w.ran <- err
		died = errors.Join(ErrRouterClosed, err)
	case <-w.closing:
		died = ErrRouterClosed
	}
	select {
	case <-w.stopping:
		died = nil
	default:
	}
	w.shutdown(died)
}

// routerCloses hears that the Watermill router closes.
func (w *Worker) routerCloses() { w.closed.Do(func() { close(w.closing) }) }

// shutdown ends all that was begun, within closeTimeout, and then the Worker.
// died is why it was not wanted, if so.
func (w *Worker) shutdown(died error) {
	bound := w.closeTimeout()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.closeAll()
	}()
	errs := []error{died}
	select {
	case <-ended:
		errs = append(errs, w.drainErrors())
	case <-timer.C:
		hung := w.drainErrors()
		if hung == nil {
			hung = &CloseTimeoutError{After: bound}
		}
		errs = append(errs, hung)
	}
	errs = append(errs, w.node.Close())
	if w.startErr == nil {
		errs = append(errs, w.closePublishers())
	}
	w.err = errors.Join(errs...)
	close(w.done)
}

// closeAll closes the Watermill router, if it runs, and all Subscribers, those
// that it does not know too. It returns when the last handler has.
func (w *Worker) closeAll() {
	var all sync.WaitGroup
	all.Go(func() { w.closeSubscribers() })
	select {
	case <-w.router.Running():
		if err := w.router.Close(); err != nil {
			w.logger.Error("Cannot close the Watermill router", err, nil)
		}
		err := <-w.ran
		w.ran <- err
	default: // a Watermill router that never ran cannot be closed
	}
	all.Wait()
}

// closeSubscribers closes them all at once and returns when they are closed.
func (w *Worker) closeSubscribers() {
	var all sync.WaitGroup
	for _, s := range w.subscribers() {
		all.Go(func() { _ = s.Close() }) // never fails: the Node is not theirs
	}
	all.Wait()
}

func (w *Worker) drainErrors() error {
	var errs []error
	for _, s := range w.subscribers() {
		errs = append(errs, s.DrainErrors())
	}
	return errors.Join(errs...)
}

// Stop ends the Worker: no new event, running handlers finish within their
// DrainTimeout, what they settled is written, buckets are given back. It returns
// when all has ended, or with ctx's cause when ctx ends first; the end goes on
// all the same, and lasts at most 5 s beyond the longest DrainTimeout. All calls
// return the same, however many and when; nil for a Worker that never started, or
// failed to, and then never starts.
//
// Errors: joined *shardpub.DrainError for handlers that outlived their
// DrainTimeout; [*CloseTimeoutError]; [ErrRouterClosed] when the Watermill router
// had ended by itself.
func (w *Worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	first, begun := !w.stopAsked, w.begun
	w.stopAsked = true
	w.mu.Unlock()
	if first {
		close(w.stopping)
		if !begun {
			go w.endUnstarted()
		}
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return fmt.Errorf("router: stop: %w", context.Cause(ctx))
	}
	if w.startErr != nil {
		return nil
	}
	return w.err
}

// endUnstarted ends a Worker that was stopped before it started. Subscribers of
// its own may run on other routers.
func (w *Worker) endUnstarted() {
	w.closeSubscribers()
	w.err = errors.Join(w.drainErrors(), w.node.Close())
	close(w.done)
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
