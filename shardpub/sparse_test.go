package shardpub_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/shardpub"
)

// A category that is a small part of a large log is read past the rest of it, and
// nothing of it is missed or out of order; at the end the log is followed as always.
func TestRareCategoryIsReadPastTheRestOfTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const rounds, streams, others = 100, 5, 400
	conn, err := pgx.ConnectConfig(t.Context(), r.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		_, err := kiroku.Append(t.Context(), conn,
			kiroku.StreamAppend{Stream: fmt.Sprintf("orders-%d", i%streams), Events: []kiroku.Event{{Type: "Wanted", Data: []byte(`{}`)}}},
			kiroku.StreamAppend{Stream: "noise-1", Events: slices.Repeat([]kiroku.Event{{Type: "Noise", Data: []byte(`{}`)}}, others)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(t.Context()); err != nil { // the server counts what it read
		t.Fatal(err)
	}
	log := int64(rounds * (others + 1))
	d := &diary{}
	scanned := func() int64 {
		return ask[int64](r, `select coalesce(sum(idx_tup_read), 0)::bigint from pg_stat_user_indexes where indexrelname = 'ux_stream_events_stream_version'`)
	}
	before := scanned()
	ch := r.subscribe(r.subscriber(shards(2), func(c *shardpub.SubscriberConfig) { c.BatchSize = 50 }), orders)
	serve(ch, handleWith(d))
	r.until("all of the past", func() bool { return d.len() == rounds })
	for i := range 10 {
		r.appendTo(fmt.Sprintf("orders-%d", i%streams), 1)
	}
	r.until("what is new", func() bool { return d.len() == rounds+10 })
	d.onceInOrder(t, rounds+10)
	r.until("use of the index by stream", func() bool {
		return ask[int64](r, `select coalesce(sum(idx_scan), 0)::bigint from pg_stat_user_indexes where indexrelname = 'ix_stream_events_all_by_origin'`) > 0
	})
	if read := scanned() - before; read > log/2 {
		t.Errorf("%d keys of a log of %d were read one by one", read, log)
	}
}
