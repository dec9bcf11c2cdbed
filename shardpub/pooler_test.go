//go:build pgbouncer

package shardpub_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/internal/pgtest"
	"github.com/suisha-go/suisha/shardpub"
)

// pooler starts a PgBouncer in front of the rig's server that lends a connection
// for a transaction, and returns a pool of connections through it.
func (r *rig) pooler() *pgxpool.Pool {
	r.t.Helper()
	server := r.pool.Config().ConnConfig
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	dir := r.t.TempDir()
	file := filepath.Join(dir, "pgbouncer.ini")
	ini := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
`, server.Host, server.Port, server.User, port)
	if err := os.WriteFile(file, []byte(ini), 0o644); err != nil { //nolint:gosec // another user reads it
		r.t.Fatal(err)
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) //nolint:gosec // the same
	}
	cmd := exec.CommandContext(r.t.Context(), "pgbouncer", "-q", file)
	if home, err := os.Stat(server.Host); err == nil && os.Getuid() == 0 { // it refuses root, and has to reach the socket
		owner := home.Sys().(*syscall.Stat_t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	cfg := r.pool.Config()
	cfg.ConnConfig.Host, cfg.ConnConfig.Port = "127.0.0.1", uint16(port)
	cfg.ConnConfig.Fallbacks = nil
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // it keeps no prepared statements
	pool := newPool(r.t, cfg)
	deadline := time.Now().Add(10 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		err := pool.Ping(ctx)
		cancel()
		if err == nil {
			return pool
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the pooler does not answer: %v", err)
		}
	}
}

// Behind a transaction pooler there is no session: that is said once, no lock is
// taken that would be somebody else's, and polling carries on (P-17).
func TestBehindATransactionPoolerPollingCarriesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node, said := r.newNode(r.pooler(), quick)
	sub := r.subscriber(on(node), shards(4))
	serve(r.subscribe(sub, orders), func(*message.Message) error { return nil })
	for range 5 {
		r.appendRound(orders, 20)
	}
	r.until("all are handled", func() bool { return r.covered(4) == 100 })
	r.until("it is said", func() bool {
		_, ok := reported[*shardpub.SessionError](said)
		return ok
	})
	if locks := r.locks(); len(locks) != 0 {
		t.Errorf("locks %v", locks)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	if n := r.owned(); n != 0 {
		t.Errorf("%d buckets are still owned", n)
	}
}

// With a direct way to the server the session is one, whatever the pool goes through.
func TestSessionDSNLeadsAroundThePooler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node, said := r.newNode(r.pooler(), quick, func(c *shardpub.NodeConfig) { c.SessionDSN = pgtest.DSN(r.pool) })
	serve(r.subscribe(r.subscriber(on(node), shards(4)), orders), func(*message.Message) error { return nil })
	r.until("its lock is known", func() bool { return len(r.locks()) == 1 })
	r.appendRound(orders, 20)
	r.until("all are handled", func() bool { return r.covered(4) == 20 })
	if errs := said.errors(); len(errs) != 0 {
		t.Errorf("%v", errs)
	}
}
