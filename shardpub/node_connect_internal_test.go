package shardpub

import (
	"testing"

	"github.com/suisha-go/suisha/internal/pgtest"
)

// Whoever has just joined waits for its beats to be planned: five times each where that
// is done for their arguments.
func TestSessionPlansItsStatementsOnce(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.New(t, Migrate).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), keepaliveSQL, "30", "45000"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := conn.Exec(t.Context(), `select from suisha.workers where subscription = $1 and weight = $2`, "billing", i); err != nil {
			t.Fatal(err)
		}
	}
	var generic, custom int
	const plans = `select sum(generic_plans), sum(custom_plans) from pg_prepared_statements where statement like 'select from suisha.workers%'`
	if err := conn.QueryRow(t.Context(), plans).Scan(&generic, &custom); err != nil {
		t.Fatal(err)
	}
	if generic != 3 || custom != 0 {
		t.Errorf("%d runs of the plan for all arguments and %d of others, want 3 and 0", generic, custom)
	}
}
