package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

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
		return nil //nolint:nilerr // Start has returned it; there was nothing to stop
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
