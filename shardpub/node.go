package shardpub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/session"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// NodeConfig configures a [Node]. The zero value of every option is its default.
type NodeConfig struct {
	// Lease says how long leases last and how often they are renewed.
	//
	// Defaults to keiro's: TTL 30 s, RenewInterval 10 s.
	Lease lease.Config

	// SessionDSN is how to reach the server directly when the pool goes through a
	// transaction pooler: LISTEN needs a session.
	//
	// Defaults to the pool's own connection settings.
	SessionDSN string

	// PollInterval is how long a new event may go unnoticed when its notification
	// was lost, or LISTEN is not to be had.
	//
	// Defaults to 5 s.
	PollInterval time.Duration

	// DirectorySize is how many streams the Node remembers, about 150 bytes each.
	//
	// Defaults to 200,000.
	DirectorySize int

	// DisableSession works without LISTEN: new events and new workers are found by
	// polling only.
	DisableSession bool

	// Name tells this process apart in suisha.workers.
	//
	// Defaults to the host's name.
	Name string

	// Version is shown beside it.
	Version string

	// OnError receives what went wrong and is tried again or given up: *ReadError,
	// *CheckpointError, *BucketError, *DrainError, *HistoryError, *SessionError,
	// *lease.PassError. It is called from one goroutine; while it blocks, what
	// goes wrong is logged only.
	OnError func(context.Context, error)

	// Observe hears what happens, from many goroutines. It must not block.
	Observe func(Event)
}

func (c *NodeConfig) setDefaults() {
	c.Lease = c.Lease.WithDefaults()
	orDefault(&c.PollInterval, DefaultPollInterval)
	orDefault(&c.DirectorySize, DefaultDirectorySize)
	if c.Name == "" {
		c.Name = hostname()
	}
}

// Validate reports every option that cannot be worked with, joined. Defaults
// count as set.
func (c NodeConfig) Validate() error {
	c.setDefaults()
	v := validation{of: "NodeConfig."}
	v.check(c.PollInterval > 0, "PollInterval", c.PollInterval, "choose more than 0")
	v.check(c.DirectorySize >= 1, "DirectorySize", c.DirectorySize, "choose at least 1")
	if c.SessionDSN != "" {
		if _, err := pgx.ParseConfig(c.SessionDSN); err != nil {
			v.errs = append(v.errs, &ConfigError{Field: "NodeConfig.SessionDSN", Value: "set", Cure: "write a PostgreSQL connection string: " + err.Error()})
		}
	}
	return errors.Join(v.err(), c.Lease.Validate())
}

// Node is what a process has once per database: a session that listens and
// beats, the feed that reads the log, and the writer of checkpoints. It opens
// three connections of its own and never uses the caller's pool, so handlers
// that hold all of that cost no lease (P-6). Subscribers share it; its methods
// are safe for concurrent use.
type Node struct {
	cfg     NodeConfig
	logger  watermill.LoggerAdapter
	user    *pgxpool.Pool
	pool    *pgxpool.Pool // of the running Node
	session *session.Session
	runner  lease.Runner
	feed    *feed
	flusher *flusher
	errs    *errorQueue

	bad atomic.Bool // the last statement failed (P-36)

	mu       sync.Mutex // guards what follows
	subs     map[*subscription]struct{}
	started  bool
	closed   bool
	stop     context.CancelFunc
	running  sync.WaitGroup
	interval time.Duration // the shortest CheckpointInterval
}

// NewNode validates and touches nothing: connections are opened by the first
// Subscribe. A nil logger logs nothing.
func NewNode(pool *pgxpool.Pool, cfg NodeConfig, logger watermill.LoggerAdapter) (*Node, error) {
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	if pool == nil {
		return nil, &ConfigError{Field: "pool", Value: nil, Cure: "pass a *pgxpool.Pool"}
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("invalid config: %w", err)
	}
	cfg.setDefaults()
	n := &Node{cfg: cfg, logger: logger, user: pool, subs: map[*subscription]struct{}{}}
	n.feed = newFeed(n)
	n.flusher = newFlusher(n)
	n.errs = newErrorQueue(cfg.OnError)
	return n, nil
}

// start opens the private pool and starts what runs, once. It does not wait for
// the server.
func (n *Node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrNodeClosed
	}
	if n.started {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // ended by Close
	pool, err := pgxpool.NewWithConfig(ctx, n.poolConfig())
	if err != nil {
		stop()
		return err
	}
	n.pool, n.stop, n.started = pool, stop, true
	n.run(func() { n.errs.run(ctx) })
	n.run(func() { n.feed.run(ctx) })
	n.run(func() { n.flusher.run(ctx) })
	if n.cfg.DisableSession {
		n.runner = lease.PoolRunner(pool)
		return nil
	}
	n.session = session.New(session.Config{
		Connect:   n.connect,
		Channels:  []string{kiroku.Channel, lease.Channel},
		OnNotify:  n.notified,
		OnConnect: func(context.Context, *pgx.Conn) error { n.reconnected(); return nil },
		OnError:   func(err error) { n.failed(&SessionError{Err: err}) },
	})
	n.runner = n.session
	n.run(func() { _ = n.session.Run(ctx) })
	return nil
}

func (n *Node) run(f func()) {
	n.running.Add(1)
	go func() {
		defer n.running.Done()
		f()
	}()
}

// poolConfig is the caller's, with few connections and our own settings on each.
func (n *Node) poolConfig() *pgxpool.Config {
	cfg := n.user.Config()
	cfg.MinConns, cfg.MinIdleConns, cfg.MaxConns = 0, 0, 2
	cfg.BeforeAcquire, cfg.PrepareConn, cfg.AfterRelease, cfg.BeforeClose = nil, nil, nil, nil //nolint:staticcheck // BeforeAcquire is deprecated and still the caller's
	after := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		n.feed.suspect()
		return setUp(ctx, conn, after)
	}
	return cfg
}

// connect opens the session's connection.
func (n *Node) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	pool := n.user.Config()
	cfg := pool.ConnConfig
	if n.cfg.SessionDSN != "" {
		direct, err := pgx.ParseConfig(n.cfg.SessionDSN)
		if err != nil {
			return nil, err
		}
		cfg = direct
	} else if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, cfg); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := setUp(ctx, conn, pool.AfterConnect); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// setUp makes a new connection what the caller's are (a role, a search path),
// and then ours.
func setUp(ctx context.Context, conn *pgx.Conn, callers func(context.Context, *pgx.Conn) error) error {
	if callers != nil {
		if err := callers(ctx, conn); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, settingsSQL)
	return err
}

// notified sorts a notification: new events wake the feed, changes of ownership
// the keepers.
func (n *Node) notified(note *pgconn.Notification) {
	if note.Channel == lease.Channel {
		for _, s := range n.list() {
			if note.Payload == "" || note.Payload == s.name {
				s.wake()
			}
		}
		return
	}
	event, err := kiroku.ParseNotification(note.Payload)
	if err != nil || n.reads(kiroku.CategoryOf(event.Stream)) {
		n.feed.wake()
	}
}

func (n *Node) reads(category string) bool {
	return slices.ContainsFunc(n.list(), func(s *subscription) bool {
		return s.topic == AllStreams || s.topic == category
	})
}

// reconnected: what was notified meanwhile is lost, so look.
func (n *Node) reconnected() {
	n.feed.suspect()
	n.feed.wake()
	for _, s := range n.list() {
		s.wake()
	}
}

func (n *Node) list() []*subscription {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.subs))
}

func (n *Node) join(s *subscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.subs[s] = struct{}{}
	n.interval = 0
}

func (n *Node) leave(s *subscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.subs, s)
	n.interval = 0
}

// buckets lists the open buckets of all subscriptions.
func (n *Node) buckets() []*bucket {
	var all []*bucket
	for _, s := range n.list() {
		all = append(all, s.list()...)
	}
	return all
}

func (n *Node) checkpointInterval() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.interval == 0 {
		for s := range n.subs {
			if n.interval == 0 || s.cfg.CheckpointInterval < n.interval {
				n.interval = s.cfg.CheckpointInterval
			}
		}
	}
	return n.interval
}

// byteBudget is what one page may bring.
func (n *Node) byteBudget() int {
	budget := 0
	for _, s := range n.list() {
		budget = max(budget, s.cfg.PrefetchBytes)
	}
	return budget
}

// Close ends the Node. Close its Subscribers first: what they still hold is lost
// to others when the leases expire. Idempotent and safe for concurrent use.
func (n *Node) Close() error {
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	started, stop, pool := n.started, n.stop, n.pool
	n.mu.Unlock()
	if !started {
		return nil
	}
	stop()
	n.running.Wait()
	if first {
		pool.Close()
	}
	return nil
}

// failing reports whether the last statement of this Node failed.
func (n *Node) failing() bool { return n.bad.Load() }

func (n *Node) setFailing(bad bool) { n.bad.Store(bad) }

func (n *Node) succeeded() { n.bad.Store(false) }

// failed reports an error of a statement.
func (n *Node) failed(err error) {
	n.setFailing(true)
	n.report(err)
}

// report logs an error and hands it to OnError. It does not block.
func (n *Node) report(err error) {
	n.logger.Error("suisha", err, nil)
	n.errs.put(err)
}

func (n *Node) observe(e Event) {
	if n.cfg.Observe != nil {
		n.cfg.Observe(e)
	}
}
