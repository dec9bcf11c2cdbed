package projection

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
)

func install(ctx context.Context, pool *pgxpool.Pool) error { return Install(ctx, pool) }

func TestEventThatComesAgainIsNotedAndNotCountedAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, install)
	for _, version := range []int{1, 2, 1, 2, 2, 3} {
		args := pgx.NamedArgs{
			"worker": "worker 1", "bucket": 0, "stream": "file-a", "version": version, "position": 10 * version, "attempt": 0,
			"path": "a", "added": 5, "deleted": 2, "amount": 7,
		}
		for _, sql := range []string{fileChangedSQL, orderLineSQL} {
			if _, err := pool.Exec(t.Context(), sql, args); err != nil {
				t.Fatal(err)
			}
		}
	}
	var commits, added, deleted, lines, amount, calls int
	row := pool.QueryRow(t.Context(), "select commits, added, deleted, lines, amount, (select count(*) from demo.calls) from demo.churn, demo.orders")
	if err := row.Scan(&commits, &added, &deleted, &lines, &amount, &calls); err != nil {
		t.Fatal(err)
	}
	if commits != 3 || added != 15 || deleted != 6 || lines != 3 || amount != 21 || calls != 12 {
		t.Errorf("commits %d, added %d, deleted %d, lines %d, amount %d, calls %d", commits, added, deleted, lines, amount, calls)
	}
}

func TestMessageFromElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	msg := message.NewMessage("1", []byte(`{}`))
	if err := (Projection{}).FileChanged(msg); !errors.Is(err, errNoDelivery) {
		t.Errorf("got %v", err)
	}
}
