package shardpub

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/lease"
)

// NodeConfig configures a [Node]. The zero value of every option is its default.
type NodeConfig struct {
	// Lease says how long leases last and how often they are renewed.
	//
	// Defaults to keiro's: TTL 30 s, RenewInterval 10 s. A shorter TTL alone is
	// renewed every third of it.
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

	// DisableHeadroom does without the 16 MiB of address space that the Node keeps,
	// untouched, once it had to catch up: they have Go's garbage collector run a few
	// times less often, and may let the heap grow by as much. So does a GOMEMLIMIT
	// below 256 MiB.
	DisableHeadroom bool

	// Name tells this process apart in suisha.workers.
	//
	// Defaults to the host's name.
	Name string

	// Version is shown beside it.
	Version string

	// OnError receives what went wrong and is tried again or given up: *ReadError,
	// *CheckpointError, *BucketError, *DrainError, *HookError, *HistoryError,
	// *SessionError, *lease.PassError. It is called from one goroutine; while it
	// blocks, what goes wrong is logged only. It may close the Node.
	OnError func(context.Context, error)

	// Observe hears what happens, from many goroutines. It must not block.
	// A panic of it is reported.
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
