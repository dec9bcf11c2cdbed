//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
	"github.com/suisha-go/suisha/shardpub"
)

// planted is a database in which two workers a and b share one bucket, and a
// stream of three events was handled by a.
type planted struct {
	*database
	t    *testing.T
	a, b uuid.UUID
}

func plant(t *testing.T) planted {
	t.Helper()
	p := planted{&database{pool: pgtest.New(t, shardpub.Migrate)}, t, uuid.New(), uuid.New()}
	p.exec(schemaSQL)
	sub := lease.Subscription{Name: subscription, Target: category, Shards: 1}
	ensure := func(tx pgx.Tx) error { return lease.Ensure(t.Context(), tx, sub) }
	if err := pgx.BeginFunc(t.Context(), p.pool, ensure); err != nil {
		t.Fatal(err)
	}
	p.exec(`insert into kiroku.subscriptions (subscription_name, consumer_group_member) values ('chaos', 0)`)
	for name, id := range map[string]uuid.UUID{"a": p.a, "b": p.b} {
		p.exec(`insert into suisha.workers (subscription, worker, host, pid, version, session, weight, joined_at, heartbeat_at, expires_at)
			values ('chaos', $1, $2, 1, '', false, 1, now(), now(), now() + interval '1 minute')`, id, name)
	}
	for range 3 {
		_, err := kiroku.Append(t.Context(), p.pool, kiroku.StreamAppend{
			Stream: category + "-1", Events: []kiroku.Event{{Type: "Happened", Data: json.RawMessage(`{}`)}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.as("a", `update keiro.keiro_subscription_shards set owner_worker_id = $1, lease_expires_at = clock_timestamp() + interval '1 minute'`, p.a)
	p.exec(`insert into suisha.ownership_log (subscription, bucket, to_worker, reason, at) values ('chaos', 0, $1, 'free', now())`, p.a)
	return p
}

func (p planted) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.pool.Exec(context.Background(), sql, args...); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}

// as runs a statement under the name of a worker.
func (p planted) as(name, sql string, args ...any) {
	p.t.Helper()
	ctx := context.Background()
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `select set_config('application_name', $1, true)`, name); err != nil {
		p.t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
	if err := tx.Commit(ctx); err != nil {
		p.t.Fatal(err)
	}
}

// call notes a call for a version of the stream.
func (p planted) call(worker string, id uuid.UUID, version int64) {
	p.t.Helper()
	p.exec(callSQL, worker, id, 0, category+"-1", version, version, 0, time.Now())
}

const moveTo = `update kiroku.subscriptions set last_seen = $1`

func TestCheckerSeesWhatWasPlanted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		plant func(p planted)
		want  []string
	}{
		"nothing": {func(p planted) {
			p.call("a", p.a, 1)
			p.call("a", p.a, 2)
			p.call("a", p.a, 3)
			p.as("a", moveTo, 3)
		}, nil},
		"a repeat by the next owner": {func(p planted) {
			p.call("a", p.a, 1)
			p.as("a", moveTo, 1)
			p.call("a", p.a, 2)
			p.as("a", `update keiro.keiro_subscription_shards set owner_worker_id = null, lease_expires_at = null`)
			p.as("b", `update keiro.keiro_subscription_shards set owner_worker_id = $1, lease_expires_at = clock_timestamp() + interval '1 minute'`, p.b)
			p.call("b", p.b, 2)
			p.call("b", p.b, 3)
			p.as("b", moveTo, 3)
		}, nil},
		"a lost event": {func(p planted) {
			p.call("a", p.a, 1)
			p.call("a", p.a, 2)
		}, []string{"lost events"}},
		"a version too early": {func(p planted) {
			p.call("a", p.a, 1)
			p.call("a", p.a, 3)
			p.call("a", p.a, 2)
		}, []string{"order violations", "order violations in a tenure"}},
		"a checkpoint too early": {func(p planted) {
			p.call("a", p.a, 1)
			p.as("a", moveTo, 2)
			p.call("a", p.a, 2)
			p.call("a", p.a, 3)
		}, []string{"events covered before they were handled"}},
		"a checkpoint that goes back": {func(p planted) {
			p.call("a", p.a, 1)
			p.call("a", p.a, 2)
			p.call("a", p.a, 3)
			p.as("a", moveTo, 3)
			p.as("a", moveTo, 2)
		}, []string{"checkpoints that went back"}},
		"a zombie's checkpoint": {func(p planted) {
			p.call("a", p.a, 1)
			p.call("a", p.a, 2)
			p.call("a", p.a, 3)
			p.as("b", moveTo, 3)
		}, []string{"accepted zombie writes", "impossible histories"}},
		"a zombie's dead letter": {func(p planted) {
			p.call("a", p.a, 1)
			p.call("a", p.a, 2)
			p.call("a", p.a, 3)
			p.as("b", `insert into kiroku.dead_letters (subscription_name, global_position, event_id, reason, reason_summary, attempt_count)
				select 'chaos', 1, event_id, '{}', '', 5 from kiroku.events limit 1`)
		}, []string{"accepted zombie writes", "impossible histories"}},
		"a checkpoint of nobody's bucket": {func(p planted) {
			p.call("a", p.a, 1)
			p.call("a", p.a, 2)
			p.call("a", p.a, 3)
			p.as("a", `update keiro.keiro_subscription_shards set owner_worker_id = null, lease_expires_at = null`)
			p.as("a", moveTo, 3)
		}, []string{"impossible histories"}},
		"a theft": {func(p planted) {
			p.call("a", p.a, 1)
			p.call("a", p.a, 2)
			p.call("a", p.a, 3)
			p.as("b", `update keiro.keiro_subscription_shards set owner_worker_id = $1`, p.b)
		}, []string{"ownership violations", "impossible histories"}},
		"a call without the lease": {func(p planted) {
			p.call("a", p.a, 1)
			p.call("b", p.b, 2)
			p.call("a", p.a, 3)
		}, []string{"calls begun without the lease"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plant(t)
			tt.plant(p)
			findings, err := check(t.Context(), p.database, 1)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				if f.Count > 0 {
					got = append(got, f.Name)
				}
				if f.Count > 0 && !f.Promised && f.Name != "calls begun without the lease" { // a frozen worker's may
					t.Errorf("%s would not fail a run", f.Name)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got %q, want %q: %+v", got, tt.want, findings)
			}
		})
	}
}

// What the checker finds is in the row of the planned moves; a repeat alone breaks
// no promise.
func TestVerdictOnMovesSaysWhatTheCheckerFound(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		versions []int64
		want     string
		broken   bool
	}{
		"nothing":         {[]int64{1, 2, 3}, "0, 0, 0 of 3 events", false},
		"a repeat":        {[]int64{1, 2, 2, 3}, "1, 0, 0 of 3 events", false},
		"a lost event":    {[]int64{1, 2}, "0, 1, 0 of 3 events", true},
		"a wrong order":   {[]int64{1, 3, 2}, "0, 0, 1 of 3 events", true},
		"all of them":     {[]int64{2, 2}, "1, 2, 2 of 3 events", true},
		"nothing handled": {nil, "0, 3, 0 of 3 events", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plant(t)
			for _, version := range tt.versions {
				p.call("a", p.a, version)
			}
			findings, err := check(t.Context(), p.database, 1)
			if err != nil {
				t.Fatal(err)
			}
			again, err := repeats(t.Context(), p.database, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			f, err := verdict(1000, 3, again, findings)
			if f.N != 1000 || !strings.HasPrefix(f.Note, tt.want+",") {
				t.Errorf("got %d: %q, want %q", f.N, f.Note, tt.want)
			}
			if errors.Is(err, errBroken) != tt.broken {
				t.Errorf("got error %v", err)
			}
		})
	}
}

// A frozen proxy says nothing, a muted one leaves out notifications and nothing
// else.
func TestProxyHoldsBackWhatItIsTold(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	server, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	p, err := newProxy(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	client, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", p.port()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	behind, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	message := func(kind byte) { _, _ = behind.Write([]byte{kind, 0, 0, 0, 5, 'x'}) }
	next := func(within time.Duration) string {
		_ = client.SetReadDeadline(time.Now().Add(within))
		got := make([]byte, 6)
		if _, err := io.ReadFull(client, got); err != nil {
			return ""
		}
		return string(got[0])
	}
	message('A')
	if got := next(time.Minute); got != "A" {
		t.Errorf("got %q, want the notification", got)
	}
	p.setMuted(true)
	message('A')
	message('Z')
	if got := next(time.Minute); got != "Z" {
		t.Errorf("muted: got %q, want what follows the notification", got)
	}
	p.setMuted(false)
	p.freeze()
	message('A')
	if got := next(100 * time.Millisecond); got != "" {
		t.Errorf("frozen: got %q", got)
	}
	p.thaw()
	if got := next(time.Minute); got != "A" {
		t.Errorf("thawed: got %q, want what was held back", got)
	}
	_ = client.Close()
	_ = behind.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := behind.Read(make([]byte, 1)); err == nil {
		t.Error("the end of the connection was not carried")
	}
}

// A run ends with an error when it found what may not be, or had trouble; repeats may be.
func TestRunThatFoundAViolationFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		report report
		broken bool
	}{
		"nothing":     {report{Findings: []finding{{Name: foundLost, Promised: true}}}, false},
		"a violation": {report{Findings: []finding{{Name: "repeats"}, {Name: foundLost, Count: 1, Promised: true}}}, true},
		"repeats":     {report{Findings: []finding{{Name: "repeats", Count: 7}}}, false},
		"trouble":     {report{Troubles: []string{"it did not drain"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "report.json")
			if err := tt.report.finish(io.Discard, file); errors.Is(err, errBroken) != tt.broken {
				t.Errorf("got error %v", err)
			}
			if text, err := os.ReadFile(file); err != nil || !json.Valid(text) {
				t.Errorf("wrote %q, %v", text, err)
			}
		})
	}
}
