package shardpub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
)

// patient reads the log, and waits for each answer so long: a connection that
// leads nowhere must not hold up every bucket.
type patient struct {
	db      kiroku.DB
	timeout time.Duration
}

// readKeys is the first statement on a connection that may have lain idle. Keys are
// small: it is given less time than the others.
func (p patient) readKeys(ctx context.Context, from kiroku.Position, limit int) ([]kiroku.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout/3)
	defer cancel()
	return kiroku.ReadKeysFrom(ctx, p.db, from, limit)
}

// readKeysOf may have more to do than readKeys.
func (p patient) readKeysOf(ctx context.Context, categories []string, after kiroku.Position, limit int) (kiroku.KeysOf, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return kiroku.ReadKeysOf(ctx, p.db, categories, after, limit, sparseStreams)
}

func (p patient) lookupStreams(ctx context.Context, ids []int64) ([]kiroku.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return kiroku.LookupStreams(ctx, p.db, ids)
}

func (p patient) readEvents(ctx context.Context, ids []uuid.UUID) ([]kiroku.RecordedEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return kiroku.ReadEvents(ctx, p.db, ids)
}

// errTorn: a key was there and its stream or event was not, and the key still
// is. The page is read again.
var errTorn = errors.New("the log changed while it was read")

// gone returns nil when the event is no longer in the log: a hard delete.
// Anything else that is missing is an error, never a skip (P-27).
func (p patient) gone(ctx context.Context, at kiroku.Position, event uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	keys, err := kiroku.KeysAt(ctx, p.db, []kiroku.Position{at})
	if err != nil {
		return err
	}
	if len(keys) > 0 && keys[0].EventID == event {
		return fmt.Errorf("%w: event %s at position %d", errTorn, event, at)
	}
	return nil
}
