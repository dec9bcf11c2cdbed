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
// The messages before the first one that failed are done. That one is judged when it
// comes first: at once if it failed behind others, else now, as one of
// [Worker.AddConsumerHandler] would be. Those behind it come again. Any error but
// [BatchErrors], and a panic, is the first message's; and a message that failed before
// comes alone, so that one which cannot be handled takes no others with it.
//
// Middleware sees the first message only, and the options are that message's: its
// HandlerTimeout is for all of them. At most Options.PrefetchCount wait; give more to
// [Worker.Add], with [StreamBatch]. All else is as for [Worker.AddConsumerHandler].
func (w *Worker) AddStreamBatchHandler(name, category string, size int, h BatchHandlerFunc) *message.Handler {
	if err := checkBatch(size, h); err != nil {
		return w.keep(name, &HandlerError{Handler: name, Err: err})
	}
	return w.mustAdd(Handler{Name: name, Category: category, Consume: StreamBatch(size, h)})
}

func checkBatch(size int, h BatchHandlerFunc) error {
	return errors.Join(required(size < 1, "size", size, "choose at least 1"), required(h == nil, "h", nil, "pass a handler"))
}

// StreamBatch makes a handler of one message out of one of many, for
// [Handler.Consume] or a plain Watermill router: see [Worker.AddStreamBatchHandler].
// Messages of other Subscribers come one at a time.
func StreamBatch(size int, h BatchHandlerFunc) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		msgs, settle := []*message.Message{msg}, func(int) {}
		if d, ok := shardpub.DeliveryFromContext(msg.Context()); ok && d.Attempt == 0 {
			var behind []*message.Message
			behind, settle = shardpub.Follow(msg.Context(), size-1)
			msgs = append(msgs, behind...)
		}
		err := h(msg.Context(), msgs)
		done, err := doneOf(err, len(msgs))
		settle(done - 1)
		return err
	}
}

// doneOf is how many messages of a stream are done, and what the first one has to say
// if it is not.
func doneOf(err error, msgs int) (done int, first error) {
	var each BatchErrors
	switch {
	case err == nil:
		return msgs, nil
	case !errors.As(err, &each) || len(each) != msgs:
		return 0, err
	}
	switch i := slices.IndexFunc(each, func(err error) bool { return err != nil }); i {
	case -1:
		return msgs, nil
	case 0:
		return 0, each[0]
	default:
		return i, nil
	}
}
