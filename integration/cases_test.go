package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// What the scenarios of comparable projects need (docs/UPSTREAM.md, section 8).

// breakRenewals has the beats of a worker fail until the returned function is
// called. Its session lives.
func (w *world) breakRenewals(name string) (mend func()) {
	w.t.Helper()
	w.exec(`create function public.no_beat() returns trigger language plpgsql as
		$$ begin raise exception 'no beat of %', new.host; end $$`)
	w.exec(fmt.Sprintf(`create trigger no_beat before update on suisha.workers for each row
		when (new.host = '%s') execute function public.no_beat()`, name))
	return func() {
		w.t.Helper()
		w.exec(`drop trigger no_beat on suisha.workers`)
	}
}

const auditSchema = `
create table public.writes (what text not null, bucket integer not null, writer text not null, owner text);
create function public.audit() returns trigger language plpgsql as $$
begin
    insert into public.writes
    select tg_table_name, new.consumer_group_member, current_setting('application_name'), (
        select p.host from keiro.keiro_subscription_shards s
        join suisha.workers p on p.subscription = s.subscription_name and p.worker = s.owner_worker_id
        where s.subscription_name = new.subscription_name and s.bucket = new.consumer_group_member
    );
    return null;
end $$;
create trigger audit after insert or update on kiroku.subscriptions for each row
    when (new.consumer_group_member >= 0) execute function public.audit();
create trigger audit after insert on kiroku.dead_letters for each row execute function public.audit()`

// audit notes who writes checkpoints and dead letters from now on.
func (w *world) audit() { w.t.Helper(); w.exec(auditSchema) }

// zombieWrites counts writes for buckets that another worker owned.
func (w *world) zombieWrites() int64 {
	return w.count(`select count(*) from public.writes where owner is not null and owner <> writer`)
}

// overlaps counts pairs of calls of different workers in one bucket at one time.
func (w *world) overlaps() int64 {
	return w.count(`select count(*) from calls a join calls b on a.bucket = b.bucket and a.worker_id <> b.worker_id
		where b.began_at > a.began_at and b.began_at < a.ended_at`)
}

// lostIn counts handlers that were told that their lease is lost.
func (w *world) lostCalls() int64 { return w.count(`select count(*) from calls where ended = 'lost'`) }

// changes counts entries in the log of owners for these reasons.
func (w *world) changes(reasons ...string) int64 {
	return w.count(`select count(*) from suisha.ownership_log where reason = any($1)`, reasons)
}

// moment is the database's clock, to be compared with its own later.
func (w *world) moment() (at time.Time) {
	w.t.Helper()
	if err := w.pool.QueryRow(context.Background(), `select clock_timestamp()`).Scan(&at); err != nil {
		w.t.Fatal(err)
	}
	return at
}

// streamsIn makes one stream for each bucket, by bucket.
func (w *world) streamsIn() []string {
	w.t.Helper()
	w.append(8*w.base.Shards, 1)
	rows, err := w.pool.Query(context.Background(), `select min(stream_name) from kiroku.streams where category = $2
		group by (((hashtextextended(stream_id::text, 0) % $1) + $1) % $1) order by (((hashtextextended(stream_id::text, 0) % $1) + $1) % $1)`,
		w.base.Shards, w.base.Category)
	if err != nil {
		w.t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) != w.base.Shards {
		w.t.Fatalf("%d streams for %d buckets: %v", len(names), w.base.Shards, err)
	}
	return names
}

// many appends so many events of a type to one stream, at once.
func (w *world) many(stream, kind string, n int) {
	w.t.Helper()
	events := make([]kiroku.Event, n)
	for i := range events {
		events[i] = kiroku.Event{Type: kind, Data: json.RawMessage(`{}`)}
	}
	if _, err := kiroku.Append(context.Background(), w.pool, kiroku.StreamAppend{Stream: stream, Events: events}); err != nil {
		w.t.Fatal(err)
	}
}

// appendKind appends one event of a type to each stream, one after another.
func (w *world) appendKind(streams []string, kind string) {
	w.t.Helper()
	for _, stream := range streams {
		w.many(stream, kind, 1)
	}
}

// onlyOnce is a budget of one delivery: a failed attempt that counts would park.
var onlyOnce = shardpub.RetryPolicy{MaxDeliveries: 1}

// ends waits for the process to be gone.
func (p *worker) ends(t *testing.T, within time.Duration) {
	t.Helper()
	select {
	case <-p.exit:
		if p.err != nil {
			t.Errorf("worker %s: %v", p.name, p.err)
		}
	case <-time.After(within):
		t.Fatalf("worker %s did not end", p.name)
	}
}
