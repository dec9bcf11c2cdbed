package shardpub

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/suisha-go/suisha/internal/clock"
	"github.com/suisha-go/suisha/lease"
)

// subscription is one membership of this process in a subscription: one worker
// id, one channel, and the buckets it holds. It is the lease.Holder of its
// keeper.
type subscription struct {
	node       *Node
	cfg        *SubscriberConfig
	name       string
	topic      string
	worker     uuid.UUID
	workerText string
	values     context.Context //nolint:containedctx // the Subscribe context's values, without its end
	keeper     *lease.Keeper

	out      chan *message.Message // unbuffered: a message in a buffer is nobody's
	inFlight chan struct{}         // nil when unlimited
	pageRoom int                   // the room a bucket needs to be brought a page

	opening sync.WaitGroup
	senders sync.WaitGroup
	hurry   chan struct{} // closed when a Close begins
	gone    chan struct{} // closed when nobody waits for handlers any more

	share atomic.Int64 // bytes that one bucket may hold

	mu      sync.Mutex // guards what follows
	tenures map[*lease.Tenure]*bucket
	closeBy time.Time         // one drain deadline for all buckets of a Close
	late    map[*bucket]error // what outlived its drain before the Close, and still does
	drains  []error           // what outlived its drain in it: *DrainError, *HookError
}

func newSubscription(ctx context.Context, n *Node, cfg *SubscriberConfig, topic string) (*subscription, error) {
	s := &subscription{
		node:     n,
		cfg:      cfg,
		name:     cfg.SubscriptionName(cfg.ConsumerGroup, topic),
		topic:    topic,
		worker:   uuid.New(),
		values:   context.WithoutCancel(ctx),
		out:      make(chan *message.Message),
		pageRoom: min(cfg.BatchSize+cfg.BatchSize/2, max(cfg.PrefetchCount/2, 1)),
		hurry:    make(chan struct{}),
		gone:     make(chan struct{}),
		late:     map[*bucket]error{},
		tenures:  map[*lease.Tenure]*bucket{},
	}
	if cfg.MaxInFlight != Unlimited {
		s.inFlight = make(chan struct{}, cfg.MaxInFlight)
	}
	s.workerText = s.worker.String()
	s.share.Store(int64(cfg.PrefetchBytes))
	keeper, err := lease.NewKeeper(n.leases, s, lease.KeeperConfig{
		Config:       n.cfg.Lease,
		Subscription: s.spec(),
		Identity: lease.Identity{
			Worker: s.worker, Host: n.cfg.Name, PID: os.Getpid(), Version: n.cfg.Version,
		},
		Watch:   n.watch,
		Rhythm:  n.rhythm,
		OnError: func(_ context.Context, err error) { n.leaseFailed(err) },
	})
	if err != nil {
		return nil, err
	}
	s.keeper = keeper
	return s, nil
}

func (s *subscription) spec() lease.Subscription {
	return lease.Subscription{Name: s.name, Target: s.topic, Shards: s.cfg.Shards}
}

// run works until ctx ends, gives everything back, and closes the channel.
func (s *subscription) run(ctx context.Context) {
	s.node.join(s)
	defer s.node.leave(s)
	stop := context.AfterFunc(ctx, s.closing)
	defer stop()
	idle := time.AfterFunc(idleSaid, s.sayIdle)
	defer idle.Stop()
	if err := s.keeper.Run(ctx); err != nil {
		s.node.report(err)
	}
	for _, b := range s.list() {
		b.tenure.End(lease.ErrShutdown)
		b.stop()
	}
	s.opening.Wait()
	s.senders.Wait()
	close(s.out)
	close(s.gone)
}

// idleSaid is how long a worker that got no bucket keeps silent about it.
const idleSaid = 2 * time.Second

// sayIdle tells people why nothing happens: who kills the only process and starts it
// again waits for what that one left behind.
func (s *subscription) sayIdle() {
	share := s.keeper.Status().Share
	if share == 0 || len(s.list()) > 0 {
		return
	}
	s.node.logger.Info("No bucket yet: others have them. What a dead process had comes when its leases have run out, or sooner",
		watermill.LogFields{"subscription": s.name, "share": share, "ttl": s.node.cfg.Lease.TTL})
}

// closing starts the one drain deadline of a Close.
func (s *subscription) closing() {
	s.mu.Lock()
	s.closeBy = clock.Now().Add(s.cfg.DrainTimeout)
	s.drains = slices.Collect(maps.Values(s.late))
	close(s.hurry)
	s.mu.Unlock()
	for _, b := range s.list() {
		b.stop()
	}
}

func (s *subscription) wake() { s.keeper.Wake() }

func (s *subscription) list() []*bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.tenures))
}

func (s *subscription) bucketOf(t *lease.Tenure) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenures[t]
}

func (s *subscription) forget(b *bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tenures, b.tenure)
	delete(s.late, b)
	s.shareLocked()
}

func (s *subscription) shareLocked() {
	s.share.Store(int64(s.cfg.PrefetchBytes / max(len(s.tenures), 1)))
}

func (s *subscription) byteShare() int { return int(s.share.Load()) }
