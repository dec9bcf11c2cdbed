package kiroku

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/suisha-go/suisha/internal/pgtest"
)

// The statement for several is what one statement after another would be.
func TestSharedStatementIsOneStatementAfterAnother(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, Migrate)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := &sharedModel{t: t, rt: rt, pool: pool, streams: map[string]streamNow{}, known: map[uuid.UUID]bool{}}
		head, err := Head(t.Context(), pool)
		if err != nil {
			rt.Fatal(err)
		}
		m.head = int64(head)
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			m.toggle(run)
			m.round(run)
		}
	})
	wrong := 0
	if err := pool.QueryRow(t.Context(), `
		select count(*) from kiroku.streams s
		where s.stream_version <> (select count(*) from kiroku.stream_events e where e.stream_id = s.stream_id)
			or s.stream_version <> (select coalesce(max(e.stream_version), 0) from kiroku.stream_events e where e.stream_id = s.stream_id)`,
	).Scan(&wrong); err != nil || wrong > 0 {
		t.Errorf("%d streams with holes, %v", wrong, err)
	}
}

type sharedModel struct {
	t       *testing.T
	rt      *rapid.T
	pool    *pgxpool.Pool
	streams map[string]streamNow
	known   map[uuid.UUID]bool
	head    int64
}

// toggle deletes a stream, or undoes that.
func (m *sharedModel) toggle(run int) {
	name := fmt.Sprintf("run%d-a", run)
	now := m.streams[name]
	if !now.exists || rapid.IntRange(0, 2).Draw(m.rt, "toggle") > 0 {
		return
	}
	now.deleted = !now.deleted
	m.streams[name] = now
	if _, err := m.pool.Exec(m.t.Context(),
		`update kiroku.streams set deleted_at = case when $2 then now() end where stream_name = $1`, name, now.deleted); err != nil {
		m.rt.Fatal(err)
	}
}

func (m *sharedModel) round(run int) {
	var all []shareable
	var batches []*appendBatch
	for _, s := range anyWaiting(m.rt) {
		var appends []StreamAppend
		for _, u := range s.uses {
			a := StreamAppend{Stream: fmt.Sprintf("run%d-%s", run, u.stream), Expected: u.expected}
			for n := range s.events {
				a.Events = append(a.Events, Event{Type: "T", Data: fmt.Appendf(nil, "%d", n)})
			}
			appends = append(appends, a)
		}
		if len(s.ids) > 0 {
			appends[0].Events[0].ID = uuid.NewSHA1(s.ids[0], []byte(fmt.Sprint(run)))
		}
		b, err := newAppendBatch(appends)
		if err != nil {
			m.rt.Fatal(err)
		}
		all, batches = append(all, newShared(m.t.Context(), b).shareable), append(batches, b)
	}
	var going []*appendBatch
	for _, i := range choose(all, nil, sharedLimits) {
		going = append(going, batches[i])
	}
	rows, err := runShared(m.t.Context(), m.pool, going, rapid.Bool().Draw(m.rt, "wait"))
	if err != nil {
		m.rt.Fatal(err)
	}
	before := maps.Clone(m.streams)
	for i, o := range rows.outcomes(going) {
		m.check(going[i], before, o)
	}
	if head, err := Head(m.t.Context(), m.pool); err != nil || int64(head) != m.head {
		m.rt.Fatalf("head %d, want %d, %v", head, m.head, err)
	}
}

func (m *sharedModel) check(b *appendBatch, before map[string]streamNow, o outcome) {
	faults := refuteAll(b.appends, before)
	switch {
	case len(faults) > 0:
		if o.err == nil || o.err.Error() != errors.Join(faults...).Error() || !errors.Is(o.err, ErrConflict) {
			m.rt.Fatalf("%+v, want %v", o, faults)
		}
	case slices.ContainsFunc(b.given, func(id uuid.UUID) bool { return m.known[id] }):
		if !o.alone {
			m.rt.Fatalf("%+v, want the server's own error", o)
		}
	default:
		if o.err != nil || len(o.appended) != len(b.appends) {
			m.rt.Fatalf("%+v, want it written", o)
		}
		for i, a := range b.appends {
			now := m.streams[a.Stream]
			m.head += int64(len(a.Events))
			m.streams[a.Stream] = streamNow{exists: true, version: now.version + int64(len(a.Events))}
			got := o.appended[i]
			if got.Stream != a.Stream || got.Version != m.streams[a.Stream].version || int64(got.Position) != m.head {
				m.rt.Fatalf("%+v, want version %d at %d", got, m.streams[a.Stream].version, m.head)
			}
			m.inLog(got)
		}
		for _, id := range b.given {
			m.known[id] = true
		}
	}
}

// inLog looks whether the events are where the result says.
func (m *sharedModel) inLog(got Appended) {
	n := len(got.EventIDs)
	keys, err := ReadKeys(m.t.Context(), m.pool, got.Position-Position(n), n)
	if err != nil {
		m.rt.Fatal(err)
	}
	for i, k := range keys {
		if k.EventID != got.EventIDs[i] || k.StreamID != got.StreamID || k.Version != got.Version-int64(n-1-i) {
			m.rt.Fatalf("%+v in the log for event %d of %+v", k, i, got)
		}
	}
}

// Behind a transaction pooler people choose a mode without prepared statements.
func TestSharedStatementWorksInEveryQueryMode(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, Migrate)
	for i, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		cfg, err := pgx.ParseConfig(pgtest.DSN(pool))
		if err != nil {
			t.Fatal(err)
		}
		cfg.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		full := Event{
			Type: "Täst", Data: []byte(`{"a": "\\ 'quoted' {1,2} NULL"}`), Metadata: []byte(`[null]`),
			CausationID: uuid.NullUUID{UUID: uuid.New(), Valid: true}, CorrelationID: uuid.NullUUID{UUID: uuid.New(), Valid: true},
		}
		given := Event{ID: uuid.New(), Type: "T", Data: []byte(`1`)}
		for _, wait := range []bool{false, true} {
			var batches []*appendBatch
			for _, a := range []StreamAppend{
				{Stream: `a-{",'\}`, Events: []Event{full}},
				{Stream: "b", Expected: ExactVersion(int64(2*i) + map[bool]int64{true: 1}[wait]), Events: []Event{{Type: "T", Data: []byte(`1`)}}},
				{Stream: "c", Events: []Event{given}},
			} {
				if a.Stream == "b" && a.Expected == ExactVersion(0) {
					a.Expected = NoStream()
				}
				b, err := newAppendBatch([]StreamAppend{a})
				if err != nil {
					t.Fatal(err)
				}
				batches = append(batches, b)
			}
			rows, err := runShared(t.Context(), conn, batches, wait)
			if err != nil {
				t.Fatalf("%v: %v", mode, err)
			}
			o := rows.outcomes(batches)
			if o[0].err != nil || o[1].err != nil || o[2].alone != wait {
				t.Fatalf("%v, wait %v: %+v", mode, wait, o)
			}
			read, err := ReadEvents(t.Context(), conn, o[0].appended[0].EventIDs)
			if err != nil || len(read) != 1 {
				t.Fatal(read, err)
			}
			got := read[0]
			if got.Type != full.Type || string(got.Data) != string(full.Data) || string(got.Metadata) != string(full.Metadata) ||
				got.CausationID != full.CausationID || got.CorrelationID != full.CorrelationID {
				t.Errorf("%v: %+v", mode, got)
			}
		}
	}
}

func refuteAll(appends []StreamAppend, known map[string]streamNow) []error {
	all := map[string]streamNow{}
	for _, a := range appends {
		all[a.Stream] = known[a.Stream]
	}
	return refute(appends, all)
}

// The statement that waits for its streams judges by what they are when it has them,
// and takes them in the order of all writers: it has none beyond the one it waits for.
func TestSharedStatementThatWaitedSeesWhatWasWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, Migrate)
	one := func(stream string, e ExpectedVersion) StreamAppend {
		return StreamAppend{Stream: stream, Expected: e, Events: []Event{{Type: "Counted", Data: []byte(`{}`)}}}
	}
	if _, err := Append(t.Context(), pool, one("a", NoStream()), one("b", NoStream()), one("c", NoStream())); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from kiroku.streams where stream_name = 'a' for no key update`); err != nil {
		t.Fatal(err)
	}
	var batches []*appendBatch
	for _, a := range []StreamAppend{
		one("c", ExactVersion(1)), one("a", AnyVersion()), one("b", ExactVersion(2)), one("a", AnyVersion()), one("new", NoStream()),
	} {
		b, err := newAppendBatch([]StreamAppend{a})
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b)
	}
	type answer struct {
		rows sharedRows
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		rows, err := runShared(t.Context(), pool, batches, true)
		answered <- answer{rows, err}
	}()
	waits := func() (n int) {
		if err := pool.QueryRow(t.Context(), `
			select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for waits() == 0 {
		select {
		case a := <-answered:
			t.Fatalf("it did not wait: %+v", a)
		case <-time.After(5 * time.Millisecond):
		}
	}
	if _, err := Append(t.Context(), tx, one("a", AnyVersion()), one("b", AnyVersion()), one("c", AnyVersion())); err != nil {
		t.Fatal(err) // a deadlock, if it has b or c
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := <-answered
	if got.err != nil {
		t.Fatal(got.err)
	}
	var conflict *VersionConflictError
	outcomes := got.rows.outcomes(batches)
	if !errors.As(outcomes[0].err, &conflict) || conflict.Actual != 2 {
		t.Errorf("c at 1: %+v, want that it is at 2", outcomes[0])
	}
	for i, want := range []int64{3, 3, 4, 1} {
		o := outcomes[i+1]
		if o.err != nil || len(o.appended) != 1 || o.appended[0].Version != want {
			t.Errorf("%s: %+v, want version %d", batches[i+1].names[0], o, want)
		}
	}
}
