package verify_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/fixture"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/history"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/orders"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/projection"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/verify"
	"github.com/suisha-go/suisha/internal/pgtest"
)

func install(ctx context.Context, pool *pgxpool.Pool) error { return projection.Install(ctx, pool) }

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// rolledBack runs f in a transaction that leaves nothing behind.
func rolledBack(t *testing.T, pool *pgxpool.Pool, f func(pgx.Tx)) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // nothing of it is kept
	f(tx)
}

// filled is a database with the churn of the fixture, and what git says of it.
func filled(t *testing.T) (*pgxpool.Pool, map[string]verify.Totals) {
	t.Helper()
	dir := fixture.Odd(t)
	r, read := imported(t, dir, 0)
	pool := pgtest.New(t, install)
	for path, sum := range read {
		exec(t, pool, "insert into demo.churn values ($1, $2, $3, $4, $5, $3)",
			"file-"+history.Key(path), history.Escape(path), sum.Commits, sum.Added, sum.Deleted)
	}
	want, err := verify.Expected(t.Context(), dir, r.Head, 0)
	if err != nil {
		t.Fatal(err)
	}
	return pool, want
}

func TestTableThatAgreesHasNoBrokenRow(t *testing.T) {
	t.Parallel()
	pool, want := filled(t)
	got, err := verify.Files(t.Context(), pool, want)
	if err != nil {
		t.Fatal(err)
	}
	if got.BrokenRows != 0 || got.Lost != 0 || got.Rows != int64(len(want)) || got.Events != 29 {
		t.Errorf("got %+v", got)
	}
}

func TestEveryBrokenRowIsFound(t *testing.T) {
	t.Parallel()
	pool, want := filled(t)
	paths := int64(len(want))
	for name, c := range map[string]struct {
		sql          string
		lost, broken int64
	}{
		"a change that was not counted": {"update demo.churn set commits = commits - 1 where path = 'a.txt'", 1, 1},
		"a change counted twice":        {"update demo.churn set commits = commits + 1 where path = 'a.txt'", 0, 1},
		"a line too many":               {"update demo.churn set added = added + 1 where path = 'a.txt'", 0, 1},
		"a line too few":                {"update demo.churn set deleted = deleted - 1 where path = 'a.txt'", 0, 1},
		"a missing row":                 {"delete from demo.churn where path = 'a.txt'", 2, 1},
		"all rows missing":              {"delete from demo.churn", 29, paths},
		"a row too many":                {"insert into demo.churn values ('s', 'no such file', 1, 0, 0, 1)", 0, 1},
		"two rows for one path":         {"insert into demo.churn values ('s', 'b.txt', 1, 40, 0, 1)", 0, 1},
		"a path that is no path":        {"insert into demo.churn values ('s', '%zz', 1, 0, 0, 1)", 0, 1},
		// Its row now stands for a path that has one already.
		"a path decoded carelessly": {"update demo.churn set path = 'dir/caf\ufffd' where path = 'dir/caf%E9'", 2, 2},
	} {
		rolledBack(t, pool, func(tx pgx.Tx) {
			if _, err := tx.Exec(t.Context(), c.sql); err != nil {
				t.Fatal(err)
			}
			got, err := verify.Files(t.Context(), tx, want)
			if err != nil {
				t.Fatal(err)
			}
			if got.Lost != c.lost || got.BrokenRows != c.broken || len(got.Broken) == 0 {
				t.Errorf("%s: got %+v", name, got)
			}
		})
	}
}

func TestOrdersAreCountedApartFromWhatMadeThem(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, install)
	const n = 300
	type row struct{ lines, amount int64 }
	rows := map[int]row{}
	for l := range orders.Lines(n) {
		r := rows[l.Order]
		rows[l.Order] = row{r.lines + 1, r.amount + l.Amount}
	}
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		exec(t, pool, "insert into demo.orders values ($1, $2, $3, $2)", "order-"+orders.Key(k), rows[k].lines, rows[k].amount)
	}
	check := func(orders int, want verify.Comparison) {
		t.Helper()
		got, err := verify.Orders(t.Context(), pool, orders)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	events := int64(orders.Count(n))
	check(n, verify.Comparison{Rows: n, Events: events, Broken: []string{}})
	exec(t, pool, "update demo.orders set amount = amount + 1 where stream = 'order-7'")
	check(n, verify.Comparison{Rows: n, Events: events, BrokenRows: 1, Broken: []string{"order-7"}})
	exec(t, pool, "update demo.orders set lines = lines - 1 where stream = 'order-7'")
	check(n, verify.Comparison{Rows: n, Events: events, Lost: 1, BrokenRows: 1, Broken: []string{"order-7"}})
	exec(t, pool, "delete from demo.orders where stream = 'order-7'")
	check(n, verify.Comparison{Rows: n, Events: events, Lost: 5, BrokenRows: 1, Broken: []string{"order-7"}})
	exec(t, pool, "delete from demo.orders")
	check(0, verify.Comparison{Broken: []string{}})
	exec(t, pool, "insert into demo.orders values ('order-1', 1, 1, 1)")
	check(0, verify.Comparison{BrokenRows: 1, Broken: []string{"order-1"}})
}

func TestCallsTellOrderAndRepeats(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, install)
	for name, c := range map[string]struct {
		calls string // worker:stream:version, as they came; the version is the position, too
		want  verify.Calls
	}{
		"no call":               {"", verify.Calls{}},
		"in order":              {"1:a:1 1:b:1 2:c:1 1:a:2 2:c:2", verify.Calls{}},
		"repeated by the kill":  {"2:a:1 2:a:2 1:a:2 1:a:3", verify.Calls{Repeated: 1, Explained: 1}},
		"repeated in sequence":  {"2:a:1 2:a:2 1:a:1 1:a:2 1:a:3", verify.Calls{Repeated: 2, Explained: 2}},
		"below the checkpoint":  {"2:e:9 2:f:10 1:e:9 1:f:10", verify.Calls{Repeated: 2, Explained: 1}},
		"repeated by another":   {"1:a:1 3:a:1 1:b:1 1:b:1 1:b:1", verify.Calls{Repeated: 3}},
		"out of order":          {"1:a:1 1:a:3 1:a:2", verify.Calls{OutOfOrder: 1}},
		"one early, two late":   {"1:a:3 1:a:1 1:a:2 1:b:1", verify.Calls{OutOfOrder: 2}},
		"late, also repeated":   {"1:a:2 1:a:1 1:a:1", verify.Calls{OutOfOrder: 1, Repeated: 1}},
		"a gap is not an order": {"1:a:1 1:a:5", verify.Calls{}},
	} {
		kill := verify.Kill{Worker: "worker 2", Categories: []string{"file"}, Buckets: []int{0}, Checkpoints: []int64{0}}
		if name == "below the checkpoint" {
			kill.Checkpoints[0] = 9
		}
		rolledBack(t, pool, func(tx pgx.Tx) {
			for call := range strings.FieldsSeq(c.calls) {
				f := strings.Split(call, ":")
				const note = "insert into demo.calls (worker, bucket, stream, version, position, attempt) values ($1, 0, $2, $3::text::bigint, $3::text::bigint, 0)"
				if _, err := tx.Exec(t.Context(), note, "worker "+f[0], "file-"+f[1], f[2]); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := verify.ReadCalls(t.Context(), tx, kill); err != nil || got != c.want {
				t.Errorf("%s: got %+v, %v; want %+v", name, got, err, c.want)
			}
		})
	}
}

func TestFailoverIsThatOfTheSlowestBucketThatHadWork(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, install)
	at := time.Now().Truncate(time.Millisecond)
	for _, c := range []struct {
		worker string
		bucket int
		stream string
		after  time.Duration
	}{
		{"worker 2", 4, "file-a", -time.Second},
		{"worker 1", 4, "file-a", -time.Minute}, // its owner long before
		{"worker 1", 4, "file-a", 2500 * time.Millisecond},
		{"worker 3", 4, "file-b", 9 * time.Second},
		{"worker 3", 4, "order-1", 20 * time.Second}, // another subscription's bucket 4
		{"worker 3", 7, "order-1", 3400 * time.Millisecond},
		{"worker 2", 7, "order-1", 10 * time.Millisecond}, // was on its way at the kill
		{"worker 1", 1, "file-c", 30 * time.Second},       // not the killed worker's
	} {
		exec(t, pool, "insert into demo.calls (worker, bucket, stream, version, position, attempt, at) values ($1, $2, $3, 1, 1, 0, $4)",
			c.worker, c.bucket, c.stream, at.Add(c.after))
	}
	kill := verify.Kill{Worker: "worker 2", At: at, Categories: []string{"file", "order", "file"}, Buckets: []int{4, 7, 9}, Checkpoints: make([]int64, 3)}
	got, buckets, err := verify.Failover(t.Context(), pool, kill)
	if err != nil || got.Round(time.Millisecond) != 3400*time.Millisecond || buckets != 2 {
		t.Errorf("got %v in %d buckets, %v", got, buckets, err)
	}
	if got, buckets, err := verify.Failover(t.Context(), pool, verify.Kill{}); err != nil || got != 0 || buckets != 0 {
		t.Errorf("nobody was killed: got %v in %d buckets, %v", got, buckets, err)
	}
	if _, _, err := verify.Failover(t.Context(), pool, verify.Kill{Buckets: []int{1}}); err == nil {
		t.Error("buckets without categories were taken")
	}
}
