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

// Node is what a process has once per database: a session that listens and
// beats, the feed that reads the log, and the writer of checkpoints. It opens
// at most four connections of its own and never uses the caller's pool, so handlers
// that hold all of that cost no lease (P-6). Subscribers share it; its methods
// are safe for concurrent use.
type Node struct {
	cfg      NodeConfig
	logger   watermill.LoggerAdapter
	user     *pgxpool.Pool
	pool     *pgxpool.Pool // of the running Node: reads and writes for buckets
	beats    *pgxpool.Pool // without a session: of one connection, for beats
	session  *session.Session
	leases   *lease.Postgres
	rhythm   *lease.Rhythm
	feed     *feed
	flusher  *flusher
	releaser *releaser
	letters  chan struct{} // holds the dead letter that is being written
	errs     *errorQueue

	history  *history
	identity *identity
	watch    *lease.Watch
	last     lastStatement

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
	n.history, n.identity = &history{node: n}, newIdentity()
	n.feed = newFeed(n)
	n.flusher, n.releaser = newFlusher(n), newReleaser(n)
	n.letters = make(chan struct{}, 1)
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
	if err := n.openPools(); err != nil {
		return err
	}
	n.rhythm = lease.NewRhythm()
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // ended by Close
	n.stop, n.started = stop, true
	if n.cfg.DisableSession {
		n.leases = lease.NewPostgres(heard{lease.PoolRunner(n.beats), n})
	} else {
		n.openSession(ctx)
	}
	go n.errs.run(ctx)
	n.running.Go(func() { n.feed.run(ctx) })
	n.running.Go(func() { n.flusher.run(ctx) })
	n.running.Go(func() { n.releaser.run(ctx) })
	return nil
}

func (n *Node) openSession(ctx context.Context) {
	failed := func(err error) { n.report(&SessionError{Err: err}) } // no statement failed
	n.watch = lease.NewWatch(n.connectWatch, failed)
	n.session = session.New(session.Config{
		Connect:   n.connect,
		Channels:  []string{kiroku.Channel, lease.Channel, n.identity.channel},
		OnNotify:  n.notified,
		OnConnect: n.connected,
		OnError:   failed,
	})
	n.leases = lease.NewPostgres(heard{n.session, n})
	n.running.Go(func() { n.watch.Run(ctx) })
	n.running.Go(func() { _ = n.session.Run(ctx) })
}

// notified sorts a notification: new events wake the feed, changes of ownership
// the keepers.
func (n *Node) notified(note *pgconn.Notification) {
	if note.Channel == n.identity.channel {
		n.identity.hears(note.Payload)
		return
	}
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

// connected: what was notified meanwhile is lost, so look. ctx ends with the
// connection.
func (n *Node) connected(ctx context.Context, conn *pgx.Conn) error {
	if _, err := n.history.recognize(ctx, conn); err != nil {
		return err
	}
	number := n.sessionBegins()
	context.AfterFunc(ctx, func() { n.sessionEnded(number) })
	n.running.Go(func() { n.prove(ctx) })
	n.feed.wake()
	n.wakeKeepers()
	return nil
}

func (n *Node) wakeKeepers() {
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

// Close ends the Node. Close its Subscribers first: what they still hold is lost
// to others when the leases expire. Idempotent and safe for concurrent use.
func (n *Node) Close() error {
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	started, stop := n.started, n.stop
	n.mu.Unlock()
	if !started {
		return nil
	}
	stop()
	n.running.Wait()
	n.errs.wait()
	if first {
		n.closePools()
	}
	return nil
}

// heard is a Runner whose good statements are known to the Node (P-36).
type heard struct {
	lease.Runner
	node *Node
}

// Do implements lease.Runner.
func (h heard) Do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	err := h.Runner.Do(ctx, f)
	if err == nil {
		h.node.last.good()
	}
	return err
}

// lastStatement remembers whether the last statement of this Node failed (P-36).
type lastStatement struct{ failed atomic.Bool }

func (l *lastStatement) good()       { l.failed.Store(false) }
func (l *lastStatement) bad()        { l.failed.Store(true) }
func (l *lastStatement) isBad() bool { return l.failed.Load() }

// failed reports an error of a statement.
func (n *Node) failed(err error) {
	n.last.bad()
	n.report(err)
}

// leaseFailed reports an error of a keeper. Only a step of a pass is a statement.
func (n *Node) leaseFailed(err error) {
	var pass *lease.PassError
	if errors.As(err, &pass) {
		n.last.bad()
	}
	n.report(err)
}

// report logs an error and hands it to OnError. It does not block.
func (n *Node) report(err error) {
	n.logger.Error("Going on after an error", err, nil)
	n.errs.put(err)
}
