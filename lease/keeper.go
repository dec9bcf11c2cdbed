package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// KeeperConfig is what a Keeper needs to know.
type KeeperConfig struct {
	Config
	Subscription Subscription
	Identity     Identity
	// OnError receives what goes wrong and is tried again: [*PassError],
	// [*DrainError], [*ShardCountError] when rows of another number of shards
	// turn up, [*HookError]. It is called from a goroutine of its own, one call
	// at a time; it may block without harm to leases. May be nil.
	OnError func(context.Context, error)
	// Observe receives what happens, in order, from the same goroutine. May be
	// nil.
	Observe func(Event)
	// Watch is the process's: with it, the end of a worker's session is seen at
	// once. Without it, or while its session holds no lock, a dead worker is
	// noticed when its leases have run out. May be nil.
	Watch *Watch
	// Rhythm is the process's: its Keepers beat together while nothing is urgent.
	// Without it each beats by itself. May be nil.
	Rhythm *Rhythm
}

// Keeper owns buckets of one subscription for one worker: it beats, plans,
// claims, hands over and gives back. [Keeper.Once] is one pass, [Keeper.Run] the
// loop. Its methods are safe for concurrent use.
//
// The subscription must have been ensured: see [Ensure].
type Keeper struct {
	store  Store
	holder Holder
	cfg    KeeperConfig
	report *reporter

	wake    chan struct{} // somebody wants a pass; holds one
	changed chan struct{} // a hand-over came further; holds one
	opened  chan struct{} // tenures have begun, whose trust has an end; holds one
	turn    chan struct{} // held by the pass that runs
	used    atomic.Bool

	// Only the pass that has the turn touches these.
	memory *memory
	missed int
	random func() float64
	plan   func(View) Decision

	mu       sync.Mutex // guards what follows
	entries  map[int]*entry
	resigned map[int]time.Time
	joined   bool
	leaving  bool
	ended    bool
	lastID   uint64
	drainErr []error
	state    progress
}

// progress is what Status shows of the passes.
type progress struct {
	share    int
	members  []Member
	foreign  []int
	lastBeat time.Time
	lastErr  error
}

// NewKeeper checks the configuration and touches nothing. The identity needs a
// fresh worker id. Errors: an [errors.Join] of [*ConfigError].
func NewKeeper(store Store, holder Holder, cfg KeeperConfig) (*Keeper, error) {
	errs := []error{cfg.Validate(), cfg.Subscription.Validate()}
	if cfg.Identity.Worker == uuid.Nil {
		errs = append(errs, &ConfigError{Field: "Worker", Value: cfg.Identity.Worker, Rule: "must be a fresh random id"})
	}
	if store == nil {
		errs = append(errs, &ConfigError{Field: "store", Value: nil, Rule: "must not be nil"})
	}
	if holder == nil {
		errs = append(errs, &ConfigError{Field: "holder", Value: nil, Rule: "must not be nil"})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.Config = cfg.WithDefaults()
	return &Keeper{
		store:    store,
		holder:   holder,
		cfg:      cfg,
		report:   &reporter{onError: cfg.OnError, observe: cfg.Observe},
		wake:     make(chan struct{}, 1),
		changed:  make(chan struct{}, 1),
		opened:   make(chan struct{}, 1),
		turn:     make(chan struct{}, 1),
		memory:   newMemory(cfg.RenewInterval),
		random:   rand.Float64,
		plan:     Plan,
		entries:  map[int]*entry{},
		resigned: map[int]time.Time{},
	}, nil
}

// Wake asks for a pass soon: something may have changed. It never blocks. Wakes
// are coalesced, and cause at most four passes a second, more only while others
// are about to release what this worker is to own.
func (k *Keeper) Wake() { signal(k.wake) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// phase is where a tenure stands.
type phase int

const (
	opening  phase = iota // claimed, not yet handed to the Holder
	held                  // worked on
	draining              // on its way out
	ending                // lost; the Holder still lets go
)

// entry is a bucket with a tenure. While a bucket has an entry it is not claimed.
type entry struct {
	tenure *Tenure
	phase  phase
	reason Reason
	// unreleased is set when the bucket cannot be released in time any more.
	unreleased error
	// strayed counts the beats that saw another owner while it drained.
	strayed int
}

// renewed: the beat names it.
func (e *entry) renewed() bool {
	return e.phase == opening || e.phase == held || e.phase == draining && e.unreleased == nil
}

func (k *Keeper) event(ctx context.Context, kind EventKind, bucket int, reason string, err error) {
	k.report.event(ctx, Event{
		Kind: kind, Subscription: k.cfg.Subscription.Name, Worker: k.cfg.Identity.Worker,
		Bucket: bucket, Reason: reason, Err: err,
	})
}

// fail reports a step that failed and remembers it for Status.
func (k *Keeper) fail(ctx context.Context, step Step, err error) error {
	err = &PassError{Step: step, Subscription: k.cfg.Subscription.Name, Err: err}
	k.mu.Lock()
	k.state.lastErr = err
	k.mu.Unlock()
	k.report.error(ctx, err)
	return err
}
