package kiroku

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// StreamAppend is what one call appends to one stream.
type StreamAppend struct {
	// Stream is the name: at most [MaxStreamName] bytes, not [AllStreams]. The
	// empty name is a name.
	Stream string
	// Expected is the condition; zero: none.
	Expected ExpectedVersion
	// Events come one after another in the stream and in [AllStreams].
	Events []Event
}

// Appended is what became of one StreamAppend.
type Appended struct {
	Stream   string
	StreamID int64
	// Version is the number of its last event in the stream, Position the place
	// of that event in [AllStreams].
	Version  int64
	Position Position
	// EventIDs are the ids of its events, in order.
	EventIDs []uuid.UUID
}

// Append appends events to one or several streams in one atomic statement.
// Results come in the order of the arguments, and so do the positions. No
// arguments is no work and no error.
//
// If an expectation fails nothing is written, the caller's transaction, if any,
// goes on (holding the locks of the streams), and the error joins one
// [*VersionConflictError], [*StreamNotFoundError] or [*StreamExistsError] per
// stream. An id that exists is a [*DuplicateEventError]; names and events that
// the store cannot hold are found before any statement is sent ([ErrInvalid]).
//
// Streams are locked in one order everywhere, so appends do not deadlock with
// each other. Every append takes the lock of the global position last and holds
// it to the end of the transaction: in a transaction of your own, append last
// and commit. Outside of a transaction an append that lost a race is tried
// again, with the same ids; then, and at once inside, it is a [*TransientError].
//
// An event is recorded at the server's time at which its position was taken.
//
// Append blocks for as long as other writers hold those locks; bound it by ctx
// or lock_timeout. It is safe for concurrent use if db is. After an error of the
// connection the outcome is unknown: whoever gave the ids may append again.
func Append(ctx context.Context, db DB, appends ...StreamAppend) ([]Appended, error) {
	if len(appends) == 0 {
		return nil, nil
	}
	if err := validateAppends(appends); err != nil {
		return nil, err
	}
	b, err := newAppendBatch(appends)
	if err != nil {
		return nil, err
	}
	return b.append(ctx, db)
}

func (b *appendBatch) append(ctx context.Context, db DB) ([]Appended, error) {
	rows, err := b.runUntilDecided(ctx, db)
	if err != nil {
		return nil, appendError(err)
	}
	return b.results(rows)
}

// runUntilDecided runs the statement until no lost race stands in its way. To
// lose the creation of a stream is progress: the next try finds the stream, so
// there are at most as many such losses as streams. Deadlocks and serialization
// failures are tried again once.
func (b *appendBatch) runUntilDecided(ctx context.Context, db DB) ([]appendRow, error) {
	again, creations := 1, len(b.appends)
	for {
		rows, err := b.run(ctx, db)
		switch {
		case err == nil && lostAny(rows) && creations > 0:
			// Nothing was written and nothing is aborted: a transaction goes on.
			creations--
		case err != nil && lostCreation(err) && creations > 0 && !inTransaction(db):
			creations--
		case err != nil && lostRace(err) && again > 0 && !inTransaction(db):
			again--
		default:
			return rows, err
		}
	}
}

// appendRow is what the statement says of one stream.
type appendRow struct {
	met, found, deleted bool
	versionFound        int64
	lost                bool
	streamID, version   int64
	position            int64
}

func (b *appendBatch) run(ctx context.Context, db DB) ([]appendRow, error) {
	if len(b.appends) == 1 {
		if done, err := b.runOne(ctx, db); err != nil || len(done) > 0 {
			return done, err
		}
	}
	rows, err := db.Query(ctx, appendSQL, b.args()...)
	if err != nil {
		return nil, err
	}
	return pgx.AppendRows(make([]appendRow, 0, len(b.appends)), rows, func(row pgx.CollectableRow) (appendRow, error) {
		var r appendRow
		err := row.Scan(&r.met, &r.found, &r.deleted, &r.versionFound, &r.lost, &r.streamID, &r.version, &r.position)
		return r, err
	})
}

// runOne appends to the one stream. No row: that was not to be, and nothing was
// written.
func (b *appendBatch) runOne(ctx context.Context, db DB) ([]appendRow, error) {
	rows, err := db.Query(ctx, appendOneSQL, b.oneArgs()...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (appendRow, error) {
		r := appendRow{met: true}
		err := row.Scan(&r.streamID, &r.version, &r.position)
		return r, err
	})
}

func lostAny(rows []appendRow) bool {
	for _, r := range rows {
		if r.lost {
			return true
		}
	}
	return false
}

var errCreatedMeanwhile = errors.New("another writer created a stream at the same time")

// results turns the statement's rows into the caller's results, or into why
// nothing was written.
func (b *appendBatch) results(rows []appendRow) ([]Appended, error) {
	var conflicts []error
	for i, r := range rows {
		if !r.met {
			conflicts = append(conflicts, conflictError(b.appends[i], r))
		}
	}
	switch {
	case len(conflicts) > 0:
		return nil, errors.Join(conflicts...)
	case lostAny(rows):
		return nil, &TransientError{Err: errCreatedMeanwhile}
	}
	out := make([]Appended, len(rows))
	first := 0
	for i, r := range rows {
		a := b.appends[i]
		if r.position == 0 {
			return nil, errNoAllRow
		}
		end := first + len(a.Events)
		out[i] = Appended{
			Stream:   a.Stream,
			StreamID: r.streamID,
			Version:  r.version,
			Position: Position(r.position),
			EventIDs: b.ids[first:end:end],
		}
		first = end
	}
	return out, nil
}

func conflictError(a StreamAppend, r appendRow) error {
	switch {
	case r.found && a.Expected.kind == noStream:
		return &StreamExistsError{Stream: a.Stream, Actual: r.versionFound, Deleted: r.deleted}
	case !r.found || r.deleted:
		return &StreamNotFoundError{Stream: a.Stream, Expected: a.Expected, Deleted: r.deleted, Actual: r.versionFound}
	default:
		return &VersionConflictError{Stream: a.Stream, Expected: a.Expected, Actual: r.versionFound}
	}
}

// inTransaction tells whether an error of a statement on db spoils a
// transaction of the caller's.
func inTransaction(db DB) bool {
	switch db := db.(type) {
	case interface{ Rollback(context.Context) error }:
		return true
	case *pgx.Conn:
		return db.PgConn().TxStatus() != 'I'
	case interface{ Conn() *pgx.Conn }:
		return db.Conn().PgConn().TxStatus() != 'I'
	default:
		return false
	}
}
