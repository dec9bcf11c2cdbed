package router

import (
	"errors"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/suisha-go/suisha/middleware"
	"github.com/suisha-go/suisha/shardpub"
)

// AddConsumerHandler adds a handler whose subscription has the handler's name.
//
// What is wrong with it, or with its name, is returned by Start; the handler that
// is returned does nothing then, and is safe to use. It panics with [ErrStarted]
// after Start.
func (w *Worker) AddConsumerHandler(name, category string, h message.NoPublishHandlerFunc) *message.Handler {
	return w.mustAdd(Handler{Name: name, Category: category, Consume: h})
}

// AddHandler adds a handler that publishes what it returns to publishTopic on p,
// any Watermill publisher, before the message is acked. The Worker closes p when
// it has ended; handlers may share it. All else is as for
// [Worker.AddConsumerHandler].
func (w *Worker) AddHandler(name, category, publishTopic string, p message.Publisher, h message.HandlerFunc) *message.Handler {
	return w.mustAdd(Handler{Name: name, Category: category, Handle: h, PublishTopic: publishTopic, Publisher: p})
}

// mustAdd keeps an error for Start.
func (w *Worker) mustAdd(h Handler) *message.Handler {
	added, err := w.Add(h)
	if err != nil {
		return w.keep(h.Name, err)
	}
	return added
}

// keep keeps what is wrong with a handler for Start, and returns one in its place.
func (w *Worker) keep(name string, err error) *message.Handler {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		panic(ErrStarted)
	}
	w.bad = append(w.bad, err)
	return idle(name)
}

// idle is a handler of a router that never runs.
func idle(name string) *message.Handler {
	unused := func(*message.Message) error { return nil }
	return message.NewDefaultRouter(watermill.NopLogger{}).AddConsumerHandler(name, "", nil, unused)
}

// Add adds a handler with all of its options. Nothing is added if it returns an
// error: a [*HandlerError] with joined *shardpub.ConfigError, or [ErrStarted]
// after Start.
func (w *Worker) Add(h Handler) (*message.Handler, error) {
	if h.Subscription == "" {
		h.Subscription = h.Name
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		return nil, ErrStarted
	}
	err := errors.Join(h.check(), w.checkTaken(&h))
	options, optionErr := h.options(&w.cfg, w.node)
	if err = errors.Join(err, optionErr); err != nil {
		return nil, &HandlerError{Handler: h.Name, Err: err}
	}
	subscriber, err := shardpub.NewSubscriber(nil, options, w.logger)
	if err != nil {
		return nil, &HandlerError{Handler: h.Name, Err: err}
	}
	w.handlers = append(w.handlers, &handler{
		name: h.Name, category: h.Category, subscription: h.Subscription, options: options, subscriber: subscriber,
	})
	return w.register(&h, source{Subscriber: subscriber, closing: w.routerCloses}), nil
}

// checkTaken refuses a name or subscription that another handler has.
func (w *Worker) checkTaken(h *Handler) error {
	var errs []error
	_, taken := w.router.Handlers()[h.Name]
	if taken {
		errs = append(errs, duplicate("Handler.Name", h.Name))
	}
	taken = slices.ContainsFunc(w.handlers, func(o *handler) bool { return o.subscription == h.Subscription })
	if taken {
		errs = append(errs, duplicate("Handler.Subscription", h.Subscription))
	}
	return errors.Join(errs...)
}

// register adds the handler to the Watermill router, marked innermost.
func (w *Worker) register(h *Handler, s message.Subscriber) *message.Handler {
	mark := middleware.Mark()
	if h.Handle != nil {
		w.publishers = append(w.publishers, h.Publisher)
		return w.router.AddHandler(h.Name, h.Category, s, h.PublishTopic, sharedPublisher{h.Publisher}, mark(h.Handle))
	}
	marked := mark(func(msg *message.Message) ([]*message.Message, error) { return nil, h.Consume(msg) })
	return w.router.AddConsumerHandler(h.Name, h.Category, s, func(msg *message.Message) error {
		_, err := marked(msg)
		return err
	})
}

// source is a Subscriber that tells when the Watermill router closes it, which
// is how a router tells that it closes.
type source struct {
	*shardpub.Subscriber
	closing func()
}

// Close implements message.Subscriber.
func (s source) Close() error {
	s.closing()
	return s.Subscriber.Close()
}
