package lease

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Store is what a [Keeper] asks of the database. [Postgres] is the real one;
// tests embed it and override a method. Each method is one statement.
//
// All times of expiry are the database's. A Store measures what is left of
// them at the moment of the statement; nobody compares them with a local clock.
type Store interface {
	// Join writes the worker's presence, or refreshes it, and notifies the
	// others.
	Join(ctx context.Context, p Presence) error
	// Beat refreshes the presence, renews the named buckets and reads back who
	// lives and who owns what.
	Beat(ctx context.Context, b Beat) (Snapshot, error)
	// Give publishes which buckets the worker is giving up, before it begins.
	Give(ctx context.Context, g Giving) error
	// Claim takes those of the wanted buckets that are free, the worker's own,
	// or expired under the expected owner, or of one that is marked gone, and
	// returns them. A locked row is skipped.
	Claim(ctx context.Context, c Claim) ([]int, error)
	// Release frees the named buckets that are still the worker's, notifies
	// the others, and returns them.
	Release(ctx context.Context, r Release) ([]int, error)
	// Leave removes the presence, or marks it as leaving while a lease of the
	// worker has still to run out, and notifies the others.
	Leave(ctx context.Context, subscription string, worker uuid.UUID) error
}

// Presence is what a worker says about itself.
type Presence struct {
	Subscription string
	Identity     Identity
	Lock         int64
	TTL          time.Duration
	Weight       int
	Labels       map[string]string
}

// Beat is what one beat sends.
type Beat struct {
	Subscription string
	Shards       int
	Worker       uuid.UUID
	TTL          time.Duration
	Weight       int
	// Lock is the advisory lock that the worker's session holds, 0 without one:
	// others may wait for it.
	Lock int64
	// Leaving: deal this worker nothing more.
	Leaving bool
	// Renew are the buckets to renew.
	Renew []int
	// Giving are the buckets that the worker gives up, or cannot take now.
	Giving []int
}

// Giving is what a worker gives up, published before it begins.
type Giving struct {
	Subscription string
	Worker       uuid.UUID
	Buckets      []int
}

// Claim is what one claim wants.
type Claim struct {
	Subscription string
	Shards       int
	Worker       uuid.UUID
	TTL          time.Duration
	Wanted       []Wanted
}

// Wanted is a bucket to claim. An expired lease is taken only from Expected;
// uuid.Nil expects the bucket to be free. One that has not expired is taken only
// from an Expected that is marked gone, and only while its Expiry is as it was
// seen; 0 takes none such.
type Wanted struct {
	Bucket   int
	Expected uuid.UUID
	Expiry   int64
}

// Release is what one release frees.
type Release struct {
	Subscription string
	Shards       int
	Worker       uuid.UUID
	Buckets      []int
}

// Snapshot is what one beat reads back. Only Renewed says what is the worker's
// own: the rest was read at the same moment, but not locked.
type Snapshot struct {
	// Joined: the worker's presence row exists. If not, it must join again.
	Joined bool
	// Renewed are the buckets renewed, ascending.
	Renewed []int
	// Workers are the presence rows of the subscription, in the order of ids.
	Workers []Worker
	// Rows are the shard rows with the configured number of shards, by bucket.
	Rows []Row
	// Foreign are the other numbers of shards found under this name, ascending.
	Foreign []int
}

// Worker is one presence row.
type Worker struct {
	ID     uuid.UUID
	Weight int
	// Leaving, Lock and Giving as the worker said in its last beat.
	Leaving bool
	Lock    int64
	Giving  []int
	// Gone: a neighbour saw its session end.
	Gone bool
	// Left is what is left of its presence; not positive when it has expired.
	Left time.Duration
	// Age is the time since its last beat.
	Age time.Duration
}

// Row is one shard row.
type Row struct {
	Bucket int
	// Owner is uuid.Nil when the bucket is free.
	Owner uuid.UUID
	// Expiry tells one lease from the next: the database's time, opaque, to be
	// compared for equality alone. Zero when the row has none.
	Expiry int64
	// Left is what is left of the lease; negative when it has expired, zero
	// when there is none.
	Left time.Duration
}
