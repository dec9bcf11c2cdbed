package shardpub_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// wrongOption is one option that cannot be worked with.
type wrongOption[C any] struct {
	field string
	value any
	set   func(*C)
}

type subscriberOption = wrongOption[shardpub.SubscriberConfig]

// wrongSubscriberOptions are of different fields, so that they can be wrong
// together.
func wrongSubscriberOptions() []subscriberOption {
	type config = shardpub.SubscriberConfig
	nan := math.NaN()
	return []subscriberOption{
		{"ConsumerGroup", "", func(c *config) { c.ConsumerGroup = "" }},
		{"Shards", -4, func(c *config) { c.Shards = -4 }},
		{"Concurrency", -1, func(c *config) { c.Concurrency = -1 }},
		{"MaxInFlight", -2, func(c *config) { c.MaxInFlight = -2 }},
		{"BatchSize", -1, func(c *config) { c.BatchSize = -1 }},
		{"PrefetchCount", -1, func(c *config) { c.PrefetchCount = -1 }},
		{"PrefetchBytes", -1, func(c *config) { c.PrefetchBytes = -1 }},
		{"CheckpointInterval", -time.Second, func(c *config) { c.CheckpointInterval = -time.Second }},
		{"DrainTimeout", -time.Second, func(c *config) { c.DrainTimeout = -time.Second }},
		{"HandlerTimeout", -time.Second, func(c *config) { c.HandlerTimeout = -time.Second }},
		{"StartTimeout", -time.Second, func(c *config) { c.StartTimeout = -time.Second }},
		{"DeadLetter", shardpub.DeadLetterPolicy(7), func(c *config) { c.DeadLetter = 7 }},
		{"Retry.MaxDeliveries", -2, func(c *config) { c.Retry.MaxDeliveries = -2 }},
		{"Retry.Delay", -time.Second, func(c *config) { c.Retry.Delay = -time.Second }},
		{"Retry.MaxDelay", -time.Second, func(c *config) { c.Retry.MaxDelay = -time.Second }},
		{"Retry.Multiplier", 0.5, func(c *config) { c.Retry.Multiplier = 0.5 }},
		{"Retry.Jitter", nan, func(c *config) { c.Retry.Jitter = nan }},
	}
}

// configErrors takes a joined error apart. What is no *ConfigError fails the test.
func configErrors(t *testing.T, err error) map[string]*shardpub.ConfigError {
	t.Helper()
	out := map[string]*shardpub.ConfigError{}
	for _, leaf := range leaves(err) {
		var c *shardpub.ConfigError
		if !errors.As(leaf, &c) {
			t.Errorf("%T is no *ConfigError: %v", leaf, leaf)
			continue
		}
		out[c.Field] = c
	}
	return out
}

// leaves are the errors that were joined.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, leaves(e)...)
		}
		return out
	}
	if inner := errors.Unwrap(err); inner != nil {
		return leaves(inner)
	}
	return []error{err}
}

func namesProblem(t *testing.T, e *shardpub.ConfigError, field string, value any) {
	t.Helper()
	if e == nil {
		t.Errorf("%s is not named", field)
		return
	}
	if f, ok := value.(float64); ok && math.IsNaN(f) {
		got, isFloat := e.Value.(float64)
		if !isFloat || !math.IsNaN(got) {
			t.Errorf("%s: value %v", field, e.Value)
		}
	} else if !reflect.DeepEqual(e.Value, value) {
		t.Errorf("%s: value %v, want %v", field, e.Value, value)
	}
	if e.Cure == "" || !strings.Contains(e.Error(), field) || !strings.Contains(e.Error(), e.Cure) {
		t.Errorf("%s: %q does not name field and cure", field, e.Error())
	}
}

// S-03, T-01: each wrong option alone, with field, value and cure, before
// anything is touched; then all of them in one error.
func TestEachWrongOptionIsNamedAloneAndTogether(t *testing.T) {
	t.Parallel()
	pool := nowhere(t)
	good := shardpub.SubscriberConfig{ConsumerGroup: "billing", Shards: 8}
	if _, err := shardpub.NewSubscriber(pool, good, nil); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	all := good
	for _, o := range wrongSubscriberOptions() {
		one := good
		o.set(&one)
		o.set(&all)
		sub, err := shardpub.NewSubscriber(pool, one, nil)
		if sub != nil || err == nil {
			t.Fatalf("%s = %v was taken", o.field, o.value)
		}
		found := configErrors(t, err)
		if len(found) != 1 {
			t.Errorf("%s: %d errors: %v", o.field, len(found), err)
		}
		namesProblem(t, found["SubscriberConfig."+o.field], o.field, o.value)
	}
	_, err := shardpub.NewSubscriber(pool, all, nil)
	found := configErrors(t, err)
	for _, o := range wrongSubscriberOptions() {
		namesProblem(t, found["SubscriberConfig."+o.field], o.field, o.value)
	}
	if want := len(wrongSubscriberOptions()); len(found) != want {
		t.Errorf("%d errors of %d", len(found), want)
	}
}

// S-03: what no zero value stands for is required.
func TestShardsAndGroupHaveNoDefault(t *testing.T) {
	t.Parallel()
	_, err := shardpub.NewSubscriber(nowhere(t), shardpub.SubscriberConfig{}, nil)
	found := configErrors(t, err)
	namesProblem(t, found["SubscriberConfig.ConsumerGroup"], "ConsumerGroup", "")
	namesProblem(t, found["SubscriberConfig.Shards"], "Shards", 0)
}

// A number of shards that the constructor takes is one that Subscribe takes.
func TestLargestNumberOfShardsWorks(t *testing.T) {
	t.Parallel()
	most := 0
	for n := 1; n <= 1<<16; n *= 2 {
		if (shardpub.SubscriberConfig{ConsumerGroup: "g", Shards: n}).Validate() == nil {
			most = n
		}
	}
	s := lease.Subscription{Name: "g", Target: "orders", Shards: most}
	if err := s.Validate(); err != nil {
		t.Errorf("the constructor takes %d shards, leases do not: %v", most, err)
	}
}

// S-04: the edges of what is allowed.
func TestEdgesOfWhatIsAllowedPass(t *testing.T) {
	t.Parallel()
	good := shardpub.SubscriberConfig{
		ConsumerGroup: "g", Shards: 1, BatchSize: 1, PrefetchCount: 1, PrefetchBytes: 1, MaxInFlight: 1,
		Retry: shardpub.RetryPolicy{MaxDeliveries: 1, Delay: shardpub.NoDelay, Jitter: 1},
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	good.MaxInFlight, good.Retry.MaxDeliveries = shardpub.Unlimited, shardpub.Unlimited
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	node := shardpub.NodeConfig{Lease: lease.Config{TTL: 2 * time.Second, RenewInterval: time.Second}}
	if err := node.Validate(); err != nil {
		t.Errorf("TTL of twice the interval: %v", err)
	}
}

// S-03, T-01 on what a process has once: TTL, interval, and TTL ≥ 2 × interval.
func TestEachWrongOptionOfANodeIsNamed(t *testing.T) {
	t.Parallel()
	type config = shardpub.NodeConfig
	ours := []wrongOption[config]{
		{"PollInterval", -time.Second, func(c *config) { c.PollInterval = -time.Second }},
		{"DirectorySize", -1, func(c *config) { c.DirectorySize = -1 }},
	}
	leases := []wrongOption[config]{
		{"TTL", 19 * time.Second, func(c *config) { c.Lease.TTL, c.Lease.RenewInterval = 19*time.Second, 10*time.Second }},
		{"RenewInterval", -time.Second, func(c *config) { c.Lease.RenewInterval = -time.Second }},
		{"TTL", -time.Second, func(c *config) { c.Lease.TTL = -time.Second }},
		{"Weight", -1, func(c *config) { c.Lease.Weight = -1 }},
		{"Margin", -time.Second, func(c *config) { c.Lease.Margin = -time.Second }},
	}
	var all config
	for _, o := range ours {
		var one config
		o.set(&one)
		o.set(&all)
		_, err := shardpub.NewNode(nowhere(t), one, nil)
		namesProblem(t, configErrors(t, err)["NodeConfig."+o.field], o.field, o.value)
	}
	for _, o := range leases {
		var one config
		o.set(&one)
		o.set(&all)
		_, err := shardpub.NewNode(nowhere(t), one, nil)
		var wrong *lease.ConfigError
		if !errors.As(err, &wrong) || wrong.Field != o.field || wrong.Value != o.value || wrong.Rule == "" {
			t.Errorf("%s = %v: %v", o.field, o.value, err)
		}
	}
	_, err := shardpub.NewNode(nowhere(t), all, nil)
	for _, o := range append(ours, leases...) {
		if err == nil || !strings.Contains(err.Error(), o.field) {
			t.Errorf("together, %s is not named: %v", o.field, err)
		}
	}
}

// A connection string that cannot be read is named without its password.
func TestWrongSessionDSNIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	_, err := shardpub.NewNode(nowhere(t), shardpub.NodeConfig{SessionDSN: "postgres://u:s3cret@host:port/db"}, nil)
	if e := configErrors(t, err)["NodeConfig.SessionDSN"]; e == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}

func TestConstructorsNeedAPool(t *testing.T) {
	t.Parallel()
	_, err := shardpub.NewSubscriber(nil, shardpub.SubscriberConfig{ConsumerGroup: "g", Shards: 1}, nil)
	if configErrors(t, err)["pool"] == nil {
		t.Errorf("no pool: %v", err)
	}
}

// nowhere is a pool of a server that does not exist.
func nowhere(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
