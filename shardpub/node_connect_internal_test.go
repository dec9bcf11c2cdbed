package shardpub

import (
	"testing"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

// Plans cost a new connection milliseconds each, and a bucket that has just moved waits
// for them: five for each statement where they are made for its arguments.
func TestStatementsAreNotPlannedForTheirArguments(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.New(t, Migrate).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := setUp(t.Context(), conn.Conn(), nil); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := kiroku.ReadKeysFrom(t.Context(), conn, 0, 10); err != nil {
			t.Fatal(err)
		}
	}
	var generic, custom int
	const plans = `select sum(generic_plans), sum(custom_plans) from pg_prepared_statements where statement like '%stream_events%' and statement not like '%pg_prepared%'`
	if err := conn.QueryRow(t.Context(), plans).Scan(&generic, &custom); err != nil {
		t.Fatal(err)
	}
	if generic != 3 || custom != 0 {
		t.Errorf("%d uses of the plan for all arguments and %d of others, want 3 and 0", generic, custom)
	}
}
