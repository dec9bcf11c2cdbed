package router

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/shardpub"
)

// Worker is a Watermill router with handlers that share the events of their
// categories with all other processes. Create it with [New], add handlers, then
// [Worker.Run] it, or [Worker.Start] and [Worker.Stop] it, once. Its methods are
// safe for concurrent use, except that handlers and middleware are added before
// Start.
type Worker struct {
	cfg    Config
	pool   *pgxpool.Pool
	logger watermill.LoggerAdapter
	node   *shardpub.Node
	router *message.Router

	troubles troubles

	mu          sync.Mutex // guards what follows
	handlers    []*handler
	plain       []*shardpub.Subscriber // of Subscriber
	middlewares []message.HandlerMiddleware
	publishers  []message.Publisher
	bad         []error // what Start returns of the handlers added
	begun       bool
	stopAsked   bool

	stopping  chan struct{} // closed by the first Stop
	started   chan struct{} // closed when Start has its result
	startErr  error
	startedAt time.Time     // set before started is closed
	closing   chan struct{} // closed when the Watermill router closes
	closed    sync.Once     // closes closing
	ran       chan error    // what the Watermill router's Run returned; holds one
	done      chan struct{} // closed when all has ended
	err       error         // with what; set before done is closed
}

// handler is one of the Worker's own.
type handler struct {
	name         string
	category     string
	subscription string
	options      shardpub.SubscriberConfig
	subscriber   *shardpub.Subscriber
}

// New validates and touches nothing. All that is wrong is in one error: joined
// *shardpub.ConfigError, and *lease.ConfigError of cfg.Node.Lease. A nil logger
// logs nothing.
//
// pool is for WaitFor and Health and tells how to reach the server; it stays the
// caller's, and handlers may use up all of its connections.
func New(pool *pgxpool.Pool, cfg Config, logger watermill.LoggerAdapter) (*Worker, error) {
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	err := cfg.Validate()
	if pool == nil {
		err = errors.Join(err, &shardpub.ConfigError{Field: "pool", Value: nil, Cure: "pass a *pgxpool.Pool"})
	}
	if err != nil {
		return nil, fmt.Errorf("invalid config: %w", err)
	}
	cfg.setDefaults()
	w := &Worker{
		cfg:      cfg,
		pool:     pool,
		logger:   logger,
		stopping: make(chan struct{}),
		started:  make(chan struct{}),
		closing:  make(chan struct{}),
		ran:      make(chan error, 1),
		done:     make(chan struct{}),
	}
	node := cfg.Node
	node.OnError = w.troubles.hook(cfg.Node.OnError)
	if w.node, err = shardpub.NewNode(pool, node, logger); err != nil {
		return nil, err
	}
	if w.router, err = newRouter(logger); err != nil {
		return nil, err
	}
	w.router.AddMiddleware(outermost)
	return w, nil
}

// handlersMayTake is more than any DrainTimeout: how long handlers really have is
// known only when all of them are, and the Worker sees to it.
const handlersMayTake = 24 * time.Hour

// newRouter makes a Watermill router that leaves the end to the Worker.
func newRouter(logger watermill.LoggerAdapter) (*message.Router, error) {
	return message.NewRouter(message.RouterConfig{CloseTimeout: handlersMayTake}, logger)
}

// Router returns the Watermill router, for handlers on other Pub/Subs beside the
// Worker's own, plugins and decorators. Add them before Start. Do not run it, and
// close it only through Stop: closed otherwise, the Worker ends with
// [ErrRouterClosed].
func (w *Worker) Router() *message.Router { return w.router }

// AddMiddleware adds middleware to all handlers of the router, also to those on
// other Pub/Subs. The first one added is outermost. Whatever the order, errors
// are noted around the whole chain and around each of the Worker's own handlers.
//
// It panics with [ErrStarted] after Start.
func (w *Worker) AddMiddleware(m ...message.HandlerMiddleware) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		panic(ErrStarted)
	}
	w.middlewares = append(w.middlewares, m...)
	w.router.AddMiddleware(m...)
}

// Subscriber makes a Subscriber on the Worker's Node, with the Worker's Config,
// for whatever takes a message.Subscriber: cqrs processors, routers of your own,
// handlers added to Router. Its subscriptions are named group + "." + topic. The
// Worker closes it when it ends. It may be called at any time before that.
//
// Errors: joined *shardpub.ConfigError; [ErrStopped].
func (w *Worker) Subscriber(group string) (message.Subscriber, error) {
	o := w.cfg.apply(shardpub.SubscriberConfig{ConsumerGroup: group})
	o.Node = w.node
	s, err := shardpub.NewSubscriber(nil, o, w.logger)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopAsked || w.hasEnded() {
		return nil, ErrStopped
	}
	w.plain = append(w.plain, s)
	return s, nil
}

func (w *Worker) hasEnded() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// subscribers are all that were made here.
func (w *Worker) subscribers() []*shardpub.Subscriber {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(w.plain)
	for _, h := range w.handlers {
		all = append(all, h.subscriber)
	}
	return all
}

// closeGrace is how long closing may take beyond the longest DrainTimeout.
const closeGrace = 5 * time.Second

// closeTimeout bounds the end of the Worker.
func (w *Worker) closeTimeout() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := w.cfg.DrainTimeout
	for _, h := range w.handlers {
		longest = max(longest, h.options.DrainTimeout)
	}
	return longest + closeGrace
}
