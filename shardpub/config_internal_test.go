package shardpub

import (
	"reflect"
	"testing"
	"time"

	"github.com/suisha-go/suisha/kiroku"
)

// S-01: the zero value of every option is its default; TTL, interval, batch,
// buffer, retry delay and budget are keiro's.
func TestDefaultsAreKeirosWhereKeiroHasThem(t *testing.T) {
	t.Parallel()
	c := SubscriberConfig{ConsumerGroup: "billing", Shards: 8}
	c.setDefaults()
	name := c.SubscriptionName("billing", "orders")
	if _, ok := c.Unmarshaler.(DefaultMarshaler); !ok || name != "billing.orders" {
		t.Errorf("unmarshaler %T, name %q", c.Unmarshaler, name)
	}
	c.SubscriptionName, c.Unmarshaler = nil, nil
	want := SubscriberConfig{
		ConsumerGroup:      "billing",
		Shards:             8,
		Concurrency:        1,
		MaxInFlight:        Unlimited,
		BatchSize:          100,
		PrefetchCount:      256,
		PrefetchBytes:      16 << 20,
		CheckpointInterval: 100 * time.Millisecond,
		DrainTimeout:       10 * time.Second,
		StartTimeout:       10 * time.Second,
		Start:              kiroku.FromBeginning(),
		Retry:              kiroku.RetryPolicy{MaxDeliveries: 5, Delay: time.Second, MaxDelay: time.Hour, Multiplier: 1},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("defaults\n%+v, want\n%+v", c, want)
	}
}

// S-01 for what a process has once: thirty and ten seconds.
func TestDefaultsOfANode(t *testing.T) {
	t.Parallel()
	var c NodeConfig
	c.setDefaults()
	if c.Lease.TTL != 30*time.Second || c.Lease.RenewInterval != 10*time.Second || c.Lease.Weight != 1 {
		t.Errorf("lease %+v", c.Lease)
	}
	if c.PollInterval != 5*time.Second || c.DirectorySize != 200_000 || c.Name == "" || c.DisableSession {
		t.Errorf("node %+v", c)
	}
}

// What a test of defaults cannot see: none overwrites what was set.
func TestDefaultsReplaceNothingThatIsSet(t *testing.T) {
	t.Parallel()
	set := SubscriberConfig{
		ConsumerGroup: "g", SubscriptionName: ExactName, Shards: 2, Concurrency: 3, MaxInFlight: 4, BatchSize: 5,
		PrefetchCount: 6, PrefetchBytes: 7, CheckpointInterval: 8, DrainTimeout: 9, HandlerTimeout: 10, StartTimeout: 11,
		Start: MustExist(), Retry: RetryPolicy{MaxDeliveries: 12, Delay: NoDelay, MaxDelay: 14, Multiplier: 15, Jitter: 0.5},
		Unmarshaler: DefaultMarshaler{Payload: PayloadExact{}},
	}
	c := set
	c.setDefaults()
	c.SubscriptionName, set.SubscriptionName = nil, nil
	if !reflect.DeepEqual(c, set) {
		t.Errorf("%+v became %+v", set, c)
	}
}
