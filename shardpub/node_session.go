package shardpub

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/internal/clock"
)

// identity is what others know this process's session by: an advisory lock that
// it holds as long as it lives.
type identity struct {
	lock    int64
	channel string // what only this process listens to

	mu     sync.Mutex // guards what follows
	probe  string     // what the present connection waits to hear
	heard  chan struct{}
	ended  time.Time // when a session that held the lock ended
	pooled bool      // said already that there is a pooler in between
}

func newIdentity() *identity {
	id := uuid.New()
	return &identity{
		lock:    int64(binary.BigEndian.Uint64(id[:8]) | 1), //nolint:gosec // any number but 0
		channel: "suisha_" + id.String(),
	}
}

// Times of proving a session.
const (
	probeTime = 2 * time.Second
	lockRetry = 500 * time.Millisecond
)

// errPooled: notifications do not reach the session.
var errPooled = errors.New("no notification reaches the session: is there a transaction pooler in between? " +
	"Set NodeConfig.SessionDSN, or DisableSession; until then new events and dead workers are found by polling")

// prove takes the lock, once it has shown that the connection is a session of its
// own: a notification from another connection arrives. Behind a transaction
// pooler the lock would be somebody else's. ctx ends with the connection (P-17).
func (n *Node) prove(ctx context.Context) {
	for err := n.probe(ctx); err != nil; err = n.probe(ctx) {
		pooled := errors.Is(err, errPooled)
		if ctx.Err() == nil && (!pooled || n.identity.firstPooled()) {
			n.report(&SessionError{Err: err})
		}
		if ctx.Err() != nil || pooled {
			return
		}
		wait(ctx, lockRetry, nil)
	}
	for !n.takeLock(ctx) {
		if ctx.Err() != nil {
			return
		}
		wait(ctx, lockRetry, nil)
	}
	for _, s := range n.list() {
		s.wake()
	}
}

// probe notifies the session from another connection and waits to hear of it.
func (n *Node) probe(ctx context.Context) error {
	token, heard := n.identity.expect()
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if _, err := n.pool.Exec(ctx, sessionProbeSQL, n.identity.channel, token); err != nil {
		return err
	}
	select {
	case <-heard:
		return nil
	case <-ctx.Done():
		return errPooled
	}
}

// takeLock tries to take the lock on the session and to tell the watch.
func (n *Node) takeLock(ctx context.Context) (got bool) {
	try, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	marked := true
	err := n.session.Do(try, func(ctx context.Context, conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, sessionLockSQL, n.identity.lock).Scan(&got); err != nil || !got {
			return err
		}
		// With the lock nobody marks any more; who did before is seen now.
		return conn.QueryRow(ctx, sessionMarkedSQL, n.identity.lock).Scan(&marked)
	})
	if !got {
		return false
	}
	n.identity.mu.Lock()
	defer n.identity.mu.Unlock()
	if ctx.Err() != nil {
		return true
	}
	n.watch.Hold(n.identity.lock)
	if err == nil && !marked {
		n.identity.ended = time.Time{}
	}
	return true
}

// sessionEnded has nothing handed out until it is certain that nobody took this
// process for dead and its buckets for theirs (P-15): a new session has the lock
// and no mark was made, or a beat on it has renewed.
func (n *Node) sessionEnded() {
	n.identity.mu.Lock()
	defer n.identity.mu.Unlock()
	if n.watch.Lock() != 0 {
		n.identity.ended = clock.Now()
		n.watch.Hold(0)
	}
}

// sessionBack waits until the bucket is certainly still this process's, after a
// session ended; false when the bucket goes.
func (b *bucket) sessionBack() bool {
	for !b.tenure.RenewedSince(b.sub.node.identity.endedAt()) {
		if wait(b.base, sessionLook, b.quit) || b.base.Err() != nil {
			return false
		}
	}
	return true
}

// sessionLook is how often a bucket looks for the session.
const sessionLook = 10 * time.Millisecond

// expect makes a new probe, and what is closed when it is heard.
func (i *identity) expect() (token string, heard <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.probe, i.heard = uuid.NewString(), make(chan struct{})
	return i.probe, i.heard
}

// hears takes a notification on the identity's channel.
func (i *identity) hears(payload string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if payload == i.probe && i.heard != nil {
		close(i.heard)
		i.heard = nil
	}
}

func (i *identity) endedAt() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ended
}

func (i *identity) firstPooled() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !i.pooled
	i.pooled = true
	return first
}

// seconds is a time as PostgreSQL's settings want it, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
