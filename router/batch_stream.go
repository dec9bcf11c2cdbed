package router

import (
	"errors"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/shardpub"
)

// AddStreamBatchHandler adds a handler that is given up to size messages of one stream
// at a time, in order: those that wait. It never waits for more, so a stream that is
// quiet comes message by message.
//
// With [BatchErrors] the messages before the first one that failed are done. If others
// were before it, it comes again at once, first of a batch, and that failure counts for
// nothing; as the first it is retried or parked as one of [Worker.AddConsumerHandler]
// would be. Those behind it come again.
//
// Any other error, and a panic, can be any message's: the first is tried again alone, at
// once, and what becomes of that is its own. So a message that cannot be handled takes
// no others with it; only a HandlerTimeout, which is for all of them together, counts
// against the first. A message that failed before comes alone.
//
// Middleware sees the first message only. A bucket is not in order any more, only its
// streams are ([shardpub.Follow]), so what is settled above a checkpoint is kept in
// suisha.acks. At most Options.PrefetchCount messages wait; give more to [Worker.Add],
// with [StreamBatch]. All else is as for [Worker.AddConsumerHandler].
func (w *Worker) AddStreamBatchHandler(name, category string, size int, h BatchHandlerFunc) *message.Handler {
	if err := checkBatch(size, h); err != nil {
		return w.keep(name, &HandlerError{Handler: name, Err: err})
	}
	return w.mustAdd(Handler{Name: name, Category: category, Consume: StreamBatch(size, h)})
}

// StreamBatch makes a handler of one message out of one of many, for
// [Handler.Consume] or a plain Watermill router: see [Worker.AddStreamBatchHandler].
// Messages of other Subscribers come one at a time.
func StreamBatch(size int, h BatchHandlerFunc) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		if d, ok := shardpub.DeliveryFromContext(msg.Context()); !ok || d.Attempt > 0 {
			return h.alone(msg)
		}
		behind, settle := shardpub.Follow(msg.Context(), size-1)
		if len(behind) == 0 {
			return h.alone(msg)
		}
		done, told, err := h.together(append([]*message.Message{msg}, behind...))
		if !told {
			return h.alone(msg)
		}
		settle(done - 1)
		return err
	}
}

// alone handles one message.
func (h BatchHandlerFunc) alone(msg *message.Message) error {
	err := h(msg.Context(), []*message.Message{msg})
	if each, ok := resultsOf(err, 1); ok {
		return each[0]
	}
	return err
}

// together handles messages of a stream. It returns how many are done, and the first
// one's error if it is not; told is false when it cannot be said whose the error is.
func (h BatchHandlerFunc) together(msgs []*message.Message) (done int, told bool, first error) {
	defer func() {
		if recover() != nil {
			done, told, first = 0, false, nil // who panics does so again
		}
	}()
	ctx := msgs[0].Context()
	err := h(ctx, msgs)
	if err == nil {
		return len(msgs), true, nil
	}
	each, ok := resultsOf(err, len(msgs))
	if !ok {
		return 0, ctx.Err() != nil, err // its time was theirs together
	}
	switch failed := slices.IndexFunc(each, func(err error) bool { return err != nil }); failed {
	case -1:
		return len(msgs), true, nil
	case 0:
		return 0, true, each[0]
	default:
		return failed, true, nil
	}
}

// resultsOf are those of BatchErrors for so many messages.
func resultsOf(err error, msgs int) (BatchErrors, bool) {
	var each BatchErrors
	ok := errors.As(err, &each) && len(each) == msgs
	return each, ok
}
