package shardpub_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// wire is a network that can be cut, or turned into a black hole.
type wire struct {
	mu      sync.Mutex
	refuses bool
	conns   []*wireConn
	read    atomic.Int64 // bytes that came over it
	silent  atomic.Bool  // what is closed at one end stays open at the other
}

type wireConn struct {
	net.Conn
	wire   *wire
	frozen atomic.Bool
}

func (c *wireConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.wire.read.Add(int64(n))
		if !c.frozen.Load() || err != nil {
			return n, err
		}
	}
}

func (c *wireConn) Write(b []byte) (int, error) {
	if c.frozen.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wireConn) Close() error {
	if c.wire.silent.Load() {
		return c.SetDeadline(time.Unix(1, 0)) // whoever reads is told
	}
	return c.Conn.Close()
}

// pool reaches the rig's database over the wire.
func (w *wire) pool(r *rig) *pgxpool.Pool {
	r.t.Helper()
	return w.over(r.t, r.pool.Config())
}

// over makes a pool whose connections go over the wire.
func (w *wire) over(t *testing.T, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.refuses {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &wireConn{Conn: conn, wire: w}
		w.conns = append(w.conns, c)
		return c, nil
	}
	p, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// cut ends all connections and refuses new ones until mend.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = true
	for _, c := range w.conns {
		_ = c.Conn.Close()
	}
	w.conns = nil
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = false
}

// freeze turns the connections of now into black holes; new ones work.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.frozen.Store(true)
	}
}

// vanish is the end of a machine: nobody is told anything, not that a connection is
// closed either.
func (w *wire) vanish() {
	w.freeze()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = true
	w.silent.Store(true)
}
