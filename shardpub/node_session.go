package shardpub

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
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

	span atomic.Pointer[sessionSpan] // the latest, never nil; swapped under mu

	mu     sync.Mutex // guards what follows
	probe  string     // what the present connection waits to hear
	heard  chan struct{}
	number int  // of the present connection
	pooled bool // said already that there is a pooler in between
}

// sessionSpan is the time from one end of a session that held the lock to the next.
type sessionSpan struct {
	began time.Time     // when the one before ended; zero if there was none
	lost  chan struct{} // closed when the next one ends
}

func newIdentity() *identity {
	id := uuid.New()
	i := &identity{
		lock:    int64(binary.BigEndian.Uint64(id[:8]) | 1), //nolint:gosec // any number but 0
		channel: "suisha_" + id.String(),
	}
	i.span.Store(&sessionSpan{lost: make(chan struct{})})
	return i
}

// Times of proving a session.
const (
	probeTime  = 2 * time.Second
	probeAgain = time.Minute
	lockRetry  = 500 * time.Millisecond
)

// errPooled: notifications do not reach the session.
var errPooled = errors.New("no notification reaches the session: is there a transaction pooler in between? " +
	"Set NodeConfig.SessionDSN, or DisableSession; until then new events and dead workers are found by polling")

// prove takes the lock, once it has shown that the connection is a session of its
// own: a notification from another connection arrives. Behind a transaction
// pooler the lock would be somebody else's. ctx ends with the connection (P-17).
func (n *Node) prove(ctx context.Context) {
	for ctx.Err() == nil {
		err := n.probe(ctx)
		if err == nil {
			err = n.takeLock(ctx)
		}
		switch {
		case err == nil:
			n.wakeKeepers()
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, errPooled):
			if n.identity.firstPooled() {
				n.report(&SessionError{Err: err})
			}
			wait(ctx, probeAgain, nil)
		default:
			if !errors.Is(err, errNotYet) {
				n.report(&SessionError{Err: err})
			}
			wait(ctx, lockRetry, nil)
		}
	}
}

// probe notifies the session from another connection and waits to hear of it.
func (n *Node) probe(ctx context.Context) error {
	token, heard := n.identity.expect()
	asking, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := n.pool.Exec(asking, sessionProbeSQL, n.identity.channel, token); err != nil {
		return err
	}
	t := time.NewTimer(probeTime)
	defer t.Stop()
	select {
	case <-heard:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return errPooled
	}
}

// errNotYet: another session of this process has the lock still.
var errNotYet = errors.New("the session's lock is held by another session")

// takeLock takes the lock on the session and tells the watch.
func (n *Node) takeLock(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var got, direct bool
	err := n.session.Do(try, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sessionLockSQL, n.identity.lock, int64(conn.PgConn().PID())).Scan(&got, &direct)
	})
	switch {
	case err != nil:
		return err
	case !direct:
		return errPooled
	case !got:
		return errNotYet
	}
	n.identity.mu.Lock()
	defer n.identity.mu.Unlock()
	if ctx.Err() == nil {
		n.watch.Hold(n.identity.lock)
	}
	return nil
}

// sessionBegins takes note of a new connection; what is still to be said of the
// one before is said now.
func (n *Node) sessionBegins() (number int) {
	n.identity.mu.Lock()
	defer n.identity.mu.Unlock()
	n.endedLocked()
	n.identity.number++
	return n.identity.number
}

// sessionEnded has nothing handed out until a beat on a new session has renewed:
// others may take this process for dead, and its buckets for theirs (P-15).
func (n *Node) sessionEnded(number int) {
	n.identity.mu.Lock()
	defer n.identity.mu.Unlock()
	if number == n.identity.number {
		n.endedLocked()
	}
}

func (n *Node) endedLocked() {
	if n.watch.Lock() == 0 {
		return
	}
	n.watch.Hold(0)
	next := &sessionSpan{began: clock.Now(), lost: make(chan struct{})}
	close(n.identity.span.Swap(next).lost)
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

// losing is closed when the session ends.
func (i *identity) losing() <-chan struct{} { return i.span.Load().lost }

// endedAt is when a session ended last.
func (i *identity) endedAt() time.Time { return i.span.Load().began }

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
