package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Times of watching.
const (
	// awaitTime is how long one wait for a lock lasts. It holds a snapshot.
	awaitTime = 20 * time.Second
	// turnTime is the same where several sessions are to be watched in turn.
	turnTime = 500 * time.Millisecond
	// graceTime is what a session has to come back after it ended, and strangeTime
	// what one has that was never seen alive from here: more than it takes to find
	// another server after one that does not answer.
	graceTime   = time.Second
	strangeTime = 15 * time.Second
	// watchTime bounds all other statements.
	watchTime    = 5 * time.Second
	watchBackoff = time.Second
)

// Watch is a process's part in seeing dead processes at once. The session of each
// process holds an advisory lock for as long as it lives, and each process waits
// for the lock of the next in a ring: when it gets it, the session has ended. If
// it does not come back within a second its workers are marked as gone, and their
// leases may be claimed before they run out.
//
// It costs one connection, and one statement per 20 s, once there is another
// session to watch. What it cannot see (a machine that is lost without a word)
// is left to the leases. Its methods are safe for concurrent use; a nil Watch
// watches nothing.
type Watch struct {
	connect func(context.Context) (*pgx.Conn, error)
	onError func(error)

	mu        sync.Mutex // guards what follows
	lock      int64
	next      map[*Keeper]int64 // whom each Keeper wants watched
	interrupt context.CancelFunc
	changed   chan struct{} // holds one
}

// NewWatch makes a Watch; Run runs it. connect opens a connection that leads to a
// session of its own: not one of a transaction pooler. onError hears of what goes
// wrong and is tried again; it must not block.
func NewWatch(connect func(context.Context) (*pgx.Conn, error), onError func(error)) *Watch {
	return &Watch{connect: connect, onError: onError, next: map[*Keeper]int64{}, changed: make(chan struct{}, 1)}
}

// Hold says which lock the process's session holds from now on; 0 says none, and
// must be said as soon as the session has ended.
func (w *Watch) Hold(lock int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lock = lock
	w.changedLocked()
}

// Lock is the lock that the process's session holds.
func (w *Watch) Lock() int64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lock
}

// follow says who works beside a Keeper.
func (w *Watch) follow(k *Keeper, workers []Worker) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	next := successor(w.lock, workers)
	if next == w.next[k] {
		return
	}
	w.next[k] = next
	if next == 0 {
		delete(w.next, k)
	}
	w.changedLocked()
}

func (w *Watch) changedLocked() {
	signal(w.changed)
	if w.interrupt != nil {
		w.interrupt()
	}
}

// sessions are those to watch now, each once.
func (w *Watch) sessions() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessionsLocked()
}

func (w *Watch) sessionsLocked() []int64 {
	if w.lock == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(maps.Values(w.next)))
}

// Run watches until ctx ends. It blocks; call it once.
func (w *Watch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if len(w.sessions()) == 0 {
			select {
			case <-w.changed:
			case <-ctx.Done():
			}
			continue
		}
		if err := w.watch(ctx); err != nil && ctx.Err() == nil {
			w.onError(fmt.Errorf("watch the next session: %w", err))
			w.pause(ctx, watchBackoff)
		}
	}
}

// watch has one connection, until it breaks or there is nobody to watch. Whom it
// did not see alive on this connection it gives more time: after a crash of the
// server everybody's session has ended (P-16).
func (w *Watch) watch(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, watchTime)
	conn, err := w.connect(opening)
	cancel()
	if err != nil {
		return err
	}
	defer closeSoon(ctx, conn)
	alive := map[int64]bool{}
	for ctx.Err() == nil {
		sessions := w.sessions()
		if len(sessions) == 0 {
			return nil
		}
		limit := awaitTime
		if len(sessions) > 1 {
			limit = turnTime
		}
		for _, lock := range sessions {
			if err := w.look(ctx, conn, lock, alive, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// look watches one session for at most limit.
func (w *Watch) look(ctx context.Context, conn *pgx.Conn, lock int64, alive map[int64]bool, limit time.Duration) error {
	held, err := w.held(ctx, conn, lock)
	if err != nil {
		return err
	}
	grace := strangeTime
	if held {
		alive[lock] = true
		ended, err := w.await(ctx, conn, lock, limit)
		if err != nil || !ended {
			return err
		}
	}
	if alive[lock] {
		grace = graceTime
	}
	delete(alive, lock)
	return w.mark(ctx, conn, lock, grace)
}

func (w *Watch) held(ctx context.Context, conn *pgx.Conn, lock int64) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	err = conn.QueryRow(ctx, watchHeldSQL, lock).Scan(&held)
	return held, err
}

// await waits for the end of the session. A change of whom to watch ends it, too.
func (w *Watch) await(ctx context.Context, conn *pgx.Conn, lock int64, limit time.Duration) (ended bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, limit+watchTime)
	defer cancel()
	wait, interrupt := context.WithCancel(waiting)
	defer interrupt()
	if !w.arm(interrupt, lock) {
		return false, nil
	}
	err = conn.QueryRow(wait, watchAwaitSQL, lock, limit.String()).Scan(&ended)
	w.disarm()
	if err != nil && wait.Err() != nil && !conn.IsClosed() {
		return false, nil // interrupted, or this process stood still
	}
	return ended, err
}

// arm has a change interrupt the wait; false when there was one already.
func (w *Watch) arm(interrupt context.CancelFunc, lock int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.changed:
	default:
	}
	w.interrupt = interrupt
	return slices.Contains(w.sessionsLocked(), lock)
}

func (w *Watch) disarm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt = nil
}

// suspect is a worker whose session ended.
type suspect struct {
	subscription string
	worker       uuid.UUID
	heartbeat    int64
}

// mark waits for the session to come back, and marks its workers if neither it
// nor a beat of theirs does (P-14).
func (w *Watch) mark(ctx context.Context, conn *pgx.Conn, lock int64, grace time.Duration) error {
	suspects, err := w.suspects(ctx, conn, lock)
	if err != nil {
		return err
	}
	if len(suspects) == 0 {
		w.pause(ctx, graceTime)
		return nil
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	var (
		subscriptions []string
		workers       []string // text: every exec mode can send it
		heartbeats    []int64
	)
	for _, s := range suspects {
		subscriptions = append(subscriptions, s.subscription)
		workers = append(workers, s.worker.String())
		heartbeats = append(heartbeats, s.heartbeat)
	}
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	_, err = conn.Exec(ctx, watchMarkSQL, lock, subscriptions, workers, heartbeats)
	return err
}

func (w *Watch) suspects(ctx context.Context, conn *pgx.Conn, lock int64) ([]suspect, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	rows, err := conn.Query(ctx, watchSuspectsSQL, lock)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s suspect, err error) {
		err = row.Scan(&s.subscription, &s.worker, &s.heartbeat)
		return s, err
	})
}

// pause waits for a time, a change, or the end of ctx.
func (w *Watch) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.changed:
	case <-ctx.Done():
	}
}

// closeSoon says goodbye, also when ctx has ended.
func closeSoon(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
