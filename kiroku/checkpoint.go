package kiroku

import (
	"context"
	"time"
)

// Checkpoint is how far a member of a subscription is: all of its events up to
// Position are settled.
type Checkpoint struct {
	Subscription string
	Member       int
	Position     Position
	// UpdatedAt is when the row was written last, which proves no progress.
	UpdatedAt time.Time
}

// LoadCheckpoints reads the checkpoints of a subscription by member; empty if
// it has none.
func LoadCheckpoints(ctx context.Context, db DB, subscription string) (map[int]Position, error) {
	return collectCheckpoints(ctx, db, loadCheckpointsSQL, subscription)
}

// SaveCheckpoint moves a member's checkpoint forward to p, or creates it there.
// A lower p changes nothing but the time of the row.
//
// It asks nobody who owns the member: it is for tools, and for programs in which
// nobody else can. A worker writes its checkpoints under its lease.
func SaveCheckpoint(ctx context.Context, db DB, subscription string, member int, p Position) error {
	if err := checkMember(member); err != nil {
		return err
	}
	_, err := db.Exec(ctx, saveCheckpointSQL, subscription, member, int64(p))
	return storeError(err)
}

// SeedCheckpoints makes sure that members 0 to members-1 of a subscription have
// a checkpoint, and returns them all. Where one is missing, start says where it
// begins; existing ones are left alone. All are written in one statement, so
// that with [FromHead] they begin at the same position. With [MustExist] a missing one is a
// [*CheckpointMissingError] and nothing is written.
//
// Of two who seed at once, one does and both return the same.
func SeedCheckpoints(ctx context.Context, db DB, subscription string, members int, start Start) (map[int]Position, error) {
	switch {
	case members < 1:
		return nil, &ArgumentError{Argument: "members", Problem: "must be at least 1"}
	case start.position < 0:
		return nil, &ArgumentError{Argument: "start", Problem: "must not be negative"}
	}
	found, err := collectCheckpoints(ctx, db, seedCheckpointsSQL, subscription, members, int16(start.kind), int64(start.position))
	if err != nil {
		return nil, err
	}
	missing := missingMembers(found, members)
	if len(missing) > 0 && start.kind != startNowhere {
		// Somebody else seeds at this moment; only a new statement sees it.
		if found, err = LoadCheckpoints(ctx, db, subscription); err != nil {
			return nil, err
		}
		missing = missingMembers(found, members)
	}
	if len(missing) > 0 {
		return nil, &CheckpointMissingError{Subscription: subscription, Members: missing}
	}
	for member := range found {
		if member >= members {
			delete(found, member)
		}
	}
	return found, nil
}

func missingMembers(found map[int]Position, members int) []int {
	var missing []int
	for member := range members {
		if _, ok := found[member]; !ok {
			missing = append(missing, member)
		}
	}
	return missing
}

// Inventory reads the head of the store and every checkpoint, by subscription
// and member, as they are at one moment.
//
// A distance to the head is no backlog: another category may have moved it.
func Inventory(ctx context.Context, db DB) (head Position, checkpoints []Checkpoint, err error) {
	rows, err := db.Query(ctx, inventorySQL)
	if err != nil {
		return 0, nil, storeError(err)
	}
	defer rows.Close()
	seen := false
	for rows.Next() {
		var (
			subscription *string
			member       *int
			position     *int64
			updated      *time.Time
		)
		if err := rows.Scan((*int64)(&head), &subscription, &member, &position, &updated); err != nil {
			return 0, nil, err
		}
		seen = true
		if subscription != nil {
			checkpoints = append(checkpoints, Checkpoint{
				Subscription: *subscription, Member: *member, Position: Position(*position), UpdatedAt: *updated,
			})
		}
	}
	switch err := rows.Err(); {
	case err != nil:
		return 0, nil, storeError(err)
	case !seen:
		return 0, nil, errNoAllRow
	}
	return head, checkpoints, nil
}

// ResetCheckpoints sets all existing checkpoints of the named subscriptions to
// p, back or forth, and returns them by subscription and member; it creates none.
// Subscriptions without any come back in missing, in the order of the arguments.
//
// Stop the workers first: one that runs does not notice, and its next write moves
// its checkpoint forward again. Run it in a transaction together with whatever
// you undo.
func ResetCheckpoints(ctx context.Context, db DB, p Position, subscriptions ...string) (reset []Checkpoint, missing []string, err error) {
	if p < 0 {
		return nil, nil, &ArgumentError{Argument: "position", Problem: "must not be negative"}
	}
	if len(subscriptions) == 0 {
		return nil, nil, nil
	}
	reset, err = collect[Checkpoint](ctx, db, resetCheckpointsSQL, subscriptions, int64(p))
	if err != nil {
		return nil, nil, storeError(err)
	}
	touched := map[string]bool{}
	for _, c := range reset {
		touched[c.Subscription] = true
	}
	for _, name := range subscriptions {
		if !touched[name] {
			touched[name] = true
			missing = append(missing, name)
		}
	}
	return reset, missing, nil
}

func collectCheckpoints(ctx context.Context, db DB, sql string, args ...any) (map[int]Position, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, storeError(err)
	}
	defer rows.Close()
	out := map[int]Position{}
	for rows.Next() {
		var (
			member   int
			position int64
		)
		if err := rows.Scan(&member, &position); err != nil {
			return nil, err
		}
		out[member] = Position(position)
	}
	return out, storeError(rows.Err())
}

func checkMember(member int) error {
	if member < 0 {
		return &ArgumentError{Argument: "member", Problem: "must not be negative"}
	}
	return nil
}
