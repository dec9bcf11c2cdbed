package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Channel is where workers notify each other that buckets or workers have come
// or gone. The payload is the subscription's name.
const Channel = "keiro_shard_rebalance"

// Defaults of a [Config]; TTL and RenewInterval are keiro's.
const (
	DefaultTTL           = 30 * time.Second
	DefaultRenewInterval = 10 * time.Second
	DefaultWeight        = 1
)

const (
	minMargin     = 50 * time.Millisecond
	maxMargin     = 2 * time.Second
	minInterval   = 10 * time.Millisecond
	maxWeight     = 1000
	maxShards     = 4096
	maxNameLength = 512
)

// Config is how leases are kept. The zero value of each field is its default.
type Config struct {
	// TTL is how long a claim or a renewal keeps a bucket, by the clock of the
	// database. A smaller value shortens the failover from a lost machine and
	// asks more of the network. At least twice RenewInterval.
	//
	// Defaults to 30 s.
	TTL time.Duration
	// RenewInterval is the time between two beats that nothing hurries. A beat
	// is one statement, whatever the number of buckets.
	//
	// Defaults to a third of TTL, at most 10 s.
	RenewInterval time.Duration
	// Margin is how long before the end of its TTL a lease stops to be trusted:
	// the time that handlers have to notice.
	//
	// Defaults to a tenth of TTL, at least 50 ms and at most 2 s.
	Margin time.Duration
	// Weight scales this worker's share against the others': 1 to 1000.
	//
	// Defaults to 1.
	Weight int
	// Labels are shown with the worker. They decide nothing.
	Labels map[string]string
}

// WithDefaults replaces zero values by their defaults.
func (c Config) WithDefaults() Config {
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.RenewInterval == 0 {
		c.RenewInterval = DefaultRenewInterval
		if c.TTL > 0 {
			c.RenewInterval = min(c.TTL/3, DefaultRenewInterval)
		}
	}
	if c.Margin == 0 {
		c.Margin = min(max(c.TTL/10, minMargin), maxMargin)
	}
	if c.Weight == 0 {
		c.Weight = DefaultWeight
	}
	return c
}

// Validate checks the configuration as it is after [Config.WithDefaults]. All
// that is wrong is in one error: an [errors.Join] of [*ConfigError].
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	bad := func(ok bool, field string, value any, rule string) {
		if !ok {
			errs = append(errs, &ConfigError{Field: field, Value: value, Rule: rule})
		}
	}
	bad(c.TTL > 0, "TTL", c.TTL, "must be positive")
	bad(c.RenewInterval >= minInterval, "RenewInterval", c.RenewInterval, "must be at least 10ms")
	bad(c.TTL <= 0 || c.RenewInterval <= 0 || c.TTL >= 2*c.RenewInterval, "TTL", c.TTL,
		fmt.Sprintf("must be at least twice RenewInterval (%v), so that one failed renewal loses nothing", c.RenewInterval))
	bad(c.Margin > 0, "Margin", c.Margin, "must be positive")
	bad(c.TTL <= 0 || c.Margin <= 0 || c.RenewInterval <= 0 || c.Margin < c.TTL-c.RenewInterval, "Margin", c.Margin,
		fmt.Sprintf("must be below TTL - RenewInterval (%v), or every lease is distrusted before its renewal", c.TTL-c.RenewInterval))
	bad(c.Weight >= 1 && c.Weight <= maxWeight, "Weight", c.Weight, "must be 1 to 1000")
	for key, value := range c.Labels {
		bad(storable(key) && storable(value), "Labels", key+"="+value, "must be UTF-8 without zero bytes")
	}
	return errors.Join(errs...)
}

// storable: PostgreSQL's text takes it.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// Subscription is what a name means. It is fixed: a name belongs to one
// target, one number of shards and one filter.
type Subscription struct {
	// Name is the subscription's name, up to 512 bytes.
	Name string
	// Target is the category it reads, up to 512 bytes, or "$all".
	Target string
	// Filter names what it leaves out of the target, up to 512 bytes; empty for
	// nothing.
	Filter string
	// Shards is the number of its buckets, up to 4096.
	Shards int
}

// Validate checks the fields. All that is wrong is in one error, as in
// [Config.Validate].
func (s Subscription) Validate() error {
	var errs []error
	text := func(field, value string, least int) {
		if len(value) < least || len(value) > maxNameLength || !storable(value) {
			errs = append(errs, &ConfigError{
				Field: field, Value: value, Rule: fmt.Sprintf("must have %d to %d bytes of UTF-8 without zero bytes", least, maxNameLength),
			})
		}
	}
	text("Name", s.Name, 1)
	text("Target", s.Target, 1)
	text("Filter", s.Filter, 0)
	if s.Shards < 1 || s.Shards > maxShards {
		errs = append(errs, &ConfigError{Field: "Shards", Value: s.Shards, Rule: "must be 1 to 4096"})
	}
	return errors.Join(errs...)
}

// Identity is who a worker is. Host, PID and Version are for people.
type Identity struct {
	// Worker is a fresh random id for each run. Never reuse one: it owns
	// what its predecessor owned.
	Worker  uuid.UUID
	Host    string
	PID     int
	Version string
}
