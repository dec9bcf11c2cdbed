package kiroku_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgserver"
	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
)

// BenchmarkSharedAppends compares an Appender with a statement per append, and
// with a bare insert of one row per append, on a server that flushes to the disk
// of the directory for temporary files (TMPDIR chooses another; in memory the
// figures mean nothing). They take turns, so that what else the machine does
// hits all alike: the medians of the ratios are what counts.
//
//	go test -run '^$' -bench SharedAppends -benchtime 9x ./kiroku
func BenchmarkSharedAppends(b *testing.B) {
	const streams, turn = 1000, 500 * time.Millisecond
	server := pgtest.Server(b, pgserver.Options{
		Dir: diskDir(b), Durable: true, Settings: map[string]string{"shared_buffers": "256MB"},
	})
	for _, c := range []struct{ writers, events int }{{1, 1}, {16, 1}, {64, 1}, {16, 100}} {
		b.Run(fmt.Sprintf("writers=%d/events=%d", c.writers, c.events), func(b *testing.B) {
			pool := durable(b, server, fmt.Sprintf("bench_%d_%d_%d", c.writers, c.events, b.N))
			exec(b, pool, `create table kiroku.bare (id bigserial primary key, data jsonb)`)
			event := kiroku.Event{Type: "Benchmarked", Data: fmt.Appendf(nil, `{"pad": "%s"}`, strings.Repeat("x", 189))}
			batch := slices.Repeat([]kiroku.Event{event}, c.events)
			texts := slices.Repeat([]string{string(event.Data)}, c.events)
			a := kiroku.NewAppender(pool)
			stream := func(n int64) kiroku.StreamAppend {
				return to(fmt.Sprintf("s-%d", n*31%streams), kiroku.AnyVersion(), batch...)
			}
			ways := []func(context.Context, int64) error{
				func(ctx context.Context, n int64) error { _, err := kiroku.Append(ctx, pool, stream(n)); return err },
				func(ctx context.Context, n int64) error { _, err := a.Append(ctx, stream(n)); return err },
				func(ctx context.Context, _ int64) error {
					_, err := pool.Exec(ctx, `insert into kiroku.bare (data) select d::jsonb from unnest($1::text[]) d`, texts)
					return err
				},
			}
			rates := make([][]float64, len(ways))
			for i, way := range ways { // streams and plans are there
				perSecond(b, c.writers, turn, way)
				rates[i] = nil
			}
			for b.Loop() {
				for i, way := range ways {
					rates[i] = append(rates[i], perSecond(b, c.writers, turn, way)*float64(c.events))
				}
			}
			b.ReportMetric(median(rates[0]), "separate/s")
			b.ReportMetric(median(rates[1]), "shared/s")
			b.ReportMetric(median(rates[2]), "bare/s")
			b.ReportMetric(median(ratios(rates[1], rates[0])), "×separate")
			b.ReportMetric(median(ratios(rates[1], rates[2])), "×bare")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// diskDir is a directory that the server's account can enter. Without one a
// throwaway server may choose memory.
func diskDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "suisha-bench-") //nolint:usetesting // b.TempDir is closed to other accounts
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

func durable(b *testing.B, server *pgserver.Server, name string) *pgxpool.Pool {
	b.Helper()
	dsn, err := server.CreateDatabase(b.Context(), name, "")
	if err != nil {
		b.Fatal(err)
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		b.Fatal(err)
	}
	cfg.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if err := kiroku.Migrate(b.Context(), pool); err != nil {
		b.Fatal(err)
	}
	return pool
}

// perSecond lets writers call f for a while, each when its last call is back.
func perSecond(b *testing.B, writers int, long time.Duration, f func(context.Context, int64) error) float64 {
	b.Helper()
	var n, done atomic.Int64
	start := time.Now()
	together(writers, func(int) {
		for time.Since(start) < long {
			if err := f(b.Context(), n.Add(1)); err != nil {
				b.Error(err)
				return
			}
			done.Add(1)
		}
	})
	return float64(done.Load()) / time.Since(start).Seconds()
}

func ratios(x, y []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = x[i] / y[i]
	}
	return out
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
