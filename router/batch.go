package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/shardpub"
)

// DefaultBatchWait is how long the first message of a batch waits for others.
const DefaultBatchWait = 5 * time.Millisecond

// BatchHandlerFunc handles some messages at once. ctx is the first message's. They are
// settled by what it returns: with nil all are done; [BatchErrors] has a result for
// each. What becomes of those that are not done depends on how they were gathered:
// [Worker.AddBatchHandler], [Worker.AddStreamBatchHandler].
type BatchHandlerFunc func(ctx context.Context, msgs []*message.Message) error

// BatchErrors are the results of a batch, one for each message, in order; nil where
// the message is done. With another number of them than there were messages, all
// have failed.
type BatchErrors []error

func (e BatchErrors) Error() string {
	return fmt.Sprintf("router: of %d messages of a batch: %v", len(e), errors.Join(e...))
}

// Unwrap returns the errors that are not nil.
func (e BatchErrors) Unwrap() []error {
	var all []error
	for _, err := range e {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// AddBatchHandler adds a handler that is given up to size messages at a time: those
// of one bucket, each of a stream of its own, that are ready together, waited for
// [DefaultBatchWait] at the most. Any error but [BatchErrors], and a panic, is every
// message's. A message that failed is retried or parked by itself, and comes with
// others then.
//
// It runs size streams of a bucket at once, which may repeat more after a crash than
// one at a time would. Middleware sees each message by itself. All else is as for
// [Worker.AddConsumerHandler]; for other options give [Batch] to [Worker.Add].
//
// Where few streams have many events, see [Worker.AddStreamBatchHandler].
func (w *Worker) AddBatchHandler(name, category string, size int, h BatchHandlerFunc) *message.Handler {
	if err := checkBatch(size, h); err != nil {
		return w.keep(name, &HandlerError{Handler: name, Err: err})
	}
	return w.mustAdd(Handler{
		Name: name, Category: category, Consume: Batch(size, DefaultBatchWait, h),
		Options: shardpub.SubscriberConfig{Concurrency: size},
	})
}

func checkBatch(size int, h BatchHandlerFunc) error {
	return errors.Join(required(size < 1, "size", size, "choose at least 1"), required(h == nil, "h", nil, "pass a handler"))
}

func required(wrong bool, field string, value any, cure string) error {
	if !wrong {
		return nil
	}
	return &shardpub.ConfigError{Field: field, Value: value, Cure: cure}
}

// Batch makes a handler of one message out of one of many, for [Handler.Consume] or
// a plain Watermill router. Calls for messages of one bucket that run at the same
// time are gathered: until there are size, or the first has waited so long. It needs
// Options.Concurrency of about size: that is how many can run at a time.
func Batch(size int, wait time.Duration, h BatchHandlerFunc) message.NoPublishHandlerFunc {
	return (&batcher{size: size, wait: wait, handle: h, open: map[batchKey]*batch{}}).consume
}

// batcher gathers calls into batches.
type batcher struct {
	size   int
	wait   time.Duration
	handle BatchHandlerFunc

	mu   sync.Mutex // guards open, and what is in it
	open map[batchKey]*batch
}

// batchKey is what the messages of a batch have in common.
type batchKey struct {
	subscription string
	bucket       int
}

// batch is some calls that wait for one. msgs does not change once it is not open.
type batch struct {
	msgs []*message.Message
	full chan struct{}
	done chan struct{} // err and panicked are set
	err  error
	// panicked is what the handler panicked with.
	panicked any
}

// errExit: the handler ended its goroutine.
var errExit = errors.New("router: the batch handler did not return")

func (b *batcher) consume(msg *message.Message) error {
	var key batchKey
	if d, ok := shardpub.DeliveryFromContext(msg.Context()); ok {
		key = batchKey{d.Subscription, d.Bucket}
	}
	group, place := b.join(key, msg)
	if place > 0 {
		<-group.done
		if group.panicked != nil {
			panic(group.panicked)
		}
		return group.result(place)
	}
	b.gather(msg.Context(), key, group)
	b.run(msg.Context(), group)
	return group.result(0)
}

// join adds a message to the batch that is open, or opens one.
func (b *batcher) join(key batchKey, msg *message.Message) (group *batch, place int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	group = b.open[key]
	if group == nil {
		group = &batch{full: make(chan struct{}), done: make(chan struct{})}
		b.open[key] = group
	}
	group.msgs = append(group.msgs, msg)
	if len(group.msgs) == b.size {
		delete(b.open, key)
		close(group.full)
	}
	return group, len(group.msgs) - 1
}

// gather waits until the batch is full, or long enough, and closes it.
func (b *batcher) gather(ctx context.Context, key batchKey, group *batch) {
	timer := time.NewTimer(b.wait)
	defer timer.Stop()
	select {
	case <-group.full:
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[key] == group {
		delete(b.open, key)
	}
}

// run calls the handler. A panic goes on here, and in everybody who waits.
func (b *batcher) run(ctx context.Context, group *batch) {
	group.err = errExit
	defer func() {
		group.panicked = recover()
		close(group.done)
		if group.panicked != nil {
			panic(group.panicked)
		}
	}()
	group.err = b.handle(ctx, group.msgs)
}

// result is what became of the message at a place.
func (g *batch) result(place int) error {
	if each, ok := resultsOf(g.err, len(g.msgs)); ok {
		return each[place]
	}
	return g.err
}
