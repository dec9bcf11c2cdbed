package kiroku

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// appendAwaitingSQL is the form of the statement that waits for streams which
// other transactions have locked.
var appendAwaitingSQL = strings.Replace(appendSharedSQL, " skip locked", "", 1)

// sharedRow is what the shared statement says of one stream of one append.
type sharedRow struct {
	appendRow
	// busy: another transaction has the stream locked.
	busy bool
	// known: an id that the caller chose is in the store.
	known bool
}

type sharedRows []sharedRow

func (r sharedRows) lost() bool { return len(r) > 0 && r[0].lost }

// sharedArgs lays several appends out as one.
func sharedArgs(batches []*appendBatch) []any {
	var (
		all       appendBatch
		calls     []int64
		givenCall []int64
	)
	for i, b := range batches {
		before := int64(len(calls))
		for range b.appends {
			calls = append(calls, int64(i))
		}
		for _, stream := range b.streams {
			all.streams = append(all.streams, before+stream)
		}
		for range b.given {
			givenCall = append(givenCall, int64(i))
		}
		all.names = append(all.names, b.names...)
		all.kinds = append(all.kinds, b.kinds...)
		all.versions = append(all.versions, b.versions...)
		all.counts = append(all.counts, b.counts...)
		all.ids = append(all.ids, b.ids...)
		all.given = append(all.given, b.given...)
		all.types = append(all.types, b.types...)
		all.causations = append(all.causations, b.causations...)
		all.correlations = append(all.correlations, b.correlations...)
		all.data = append(all.data, b.data...)
		all.metadata = append(all.metadata, b.metadata...)
		all.numbers = append(all.numbers, b.numbers...)
	}
	return []any{
		calls, all.names, all.kinds, all.versions, all.counts,
		uuidArray(all.ids), all.types, all.causations, all.correlations, all.data, all.metadata, all.streams, all.numbers,
		uuidArray(all.given), givenCall,
	}
}

// runShared appends for all at once. It waits for streams that are locked, or
// says that they are busy.
func runShared(ctx context.Context, db DB, batches []*appendBatch, wait bool) (sharedRows, error) {
	sql := appendSharedSQL
	if wait {
		sql = appendAwaitingSQL
	}
	rows, err := db.Query(ctx, sql, sharedArgs(batches)...)
	if err != nil {
		return nil, err
	}
	return pgx.AppendRows(sharedRows(nil), rows, func(row pgx.CollectableRow) (sharedRow, error) {
		var r sharedRow
		err := row.Scan(&r.met, &r.found, &r.deleted, &r.versionFound, &r.lost, &r.streamID, &r.version, &r.position, &r.busy, &r.known)
		return r, err
	})
}

// outcomes tells each append what became of it.
func (r sharedRows) outcomes(batches []*appendBatch) []outcome {
	out := make([]outcome, len(batches))
	for i, b := range batches {
		own := r[:len(b.appends)]
		r = r[len(b.appends):]
		out[i] = own.outcome(b)
	}
	return out
}

func (r sharedRows) outcome(b *appendBatch) outcome {
	plain := make([]appendRow, len(r))
	known, conflict := false, false
	for i, row := range r {
		if row.busy {
			return outcome{held: &b.appends[i]}
		}
		plain[i] = row.appendRow
		known, conflict = known || row.known, conflict || !row.met
	}
	if known && !conflict {
		return outcome{alone: true} // for the server's own error
	}
	var o outcome
	o.appended, o.err = b.results(plain)
	return o
}

// refusals answers those of the appends that waited while the statement ran
// which its answer refutes: they began before it, and the streams were so.
func (r sharedRows) refusals(batches []*appendBatch, passed []*shared) []outcome {
	if len(passed) == 0 {
		return nil
	}
	known := map[string]streamNow{}
	i := 0
	for _, b := range batches {
		for _, name := range b.names {
			if row := r[i]; !row.busy {
				known[name] = known[name].after(row.appendRow)
			}
			i++
		}
	}
	out := make([]outcome, len(passed))
	for i, s := range passed {
		out[i].err = errors.Join(refute(s.batch.appends, known)...)
	}
	return out
}
