package shardpub

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// practise opens the connections of the pool, and asks on each what the first bucket
// would otherwise wait for while the server plans it. What is wrong is found, and said,
// when it matters.
func (f *feed) practise(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	var all sync.WaitGroup
	for range poolSize {
		all.Go(func() {
			_ = f.node.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return f.rehearse(ctx, conn) })
		})
	}
	all.Wait()
}

// rehearse reads a page of nothing and the places of no bucket.
func (f *feed) rehearse(ctx context.Context, conn *pgxpool.Conn) error {
	db := patient{conn, f.patience}
	_, keys := db.readKeys(ctx, math.MaxInt64, 1)
	_, streams := db.lookupStreams(ctx, []int64{0})
	_, events := db.readEvents(ctx, []uuid.UUID{uuid.Nil})
	_, places := conn.Exec(ctx, placesSQL, "", []int32{})
	return errors.Join(keys, streams, events, places)
}
