//go:build unix

package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// proxy is the only way of one worker process to the server.
type proxy struct {
	upstream string // a unix socket
	listener net.Listener

	mu      sync.Mutex
	lines   map[*line]struct{}
	refuse  bool
	muted   bool
	delay   time.Duration
	thawed  chan struct{} // not nil while frozen; closed by thaw
	stopped bool
}

// line is one connection through the proxy.
type line struct {
	client, server net.Conn
	done           chan struct{}
	once           sync.Once
	dead           bool // stays open and carries nothing any more; guarded by proxy.mu
}

func (l *line) close() {
	l.once.Do(func() {
		close(l.done)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

func newProxy(ctx context.Context, upstream string) (*proxy, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{upstream: upstream, listener: listener, lines: map[*line]struct{}{}}
	go p.serve()
	return p, nil
}

func (p *proxy) port() int {
	if a, ok := p.listener.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.connect(client)
	}
}

func (p *proxy) connect(client net.Conn) {
	l := &line{client: client, done: make(chan struct{})}
	var dialer net.Dialer
	server, err := dialer.DialContext(context.Background(), "unix", p.upstream)
	if err != nil {
		reset(client)
		return
	}
	l.server = server
	p.mu.Lock()
	if p.refuse || p.stopped {
		p.mu.Unlock()
		reset(client)
		_ = server.Close()
		return
	}
	p.lines[l] = struct{}{}
	p.mu.Unlock()
	var ways sync.WaitGroup
	ways.Go(func() { p.pump(l, plain(client), server) })
	ways.Go(func() { p.pump(l, messages(server, p.isMuted), client) })
	ways.Wait()
	l.close()
	p.mu.Lock()
	delete(p.lines, l)
	p.mu.Unlock()
}

// reset closes a connection with RST, as a machine that is gone does.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// cut ends all connections at once.
func (p *proxy) cut() {
	for _, l := range p.open() {
		if tcp, ok := l.client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		l.close()
	}
}

func (p *proxy) open() []*line {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*line, 0, len(p.lines))
	for l := range p.lines {
		all = append(all, l)
	}
	return all
}

// setRefuse says whether new connections are refused.
func (p *proxy) setRefuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// setMuted says whether notifications are dropped.
func (p *proxy) setMuted(muted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = muted
}

func (p *proxy) isMuted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.muted
}

// setDelay delays each way by so much.
func (p *proxy) setDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// freeze stops forwarding without closing anything; new connections are taken and
// carry nothing, either. What is sent meanwhile arrives after thaw, also from
// connections that the worker has given up.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thawed == nil {
		p.thawed = make(chan struct{})
	}
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thawed != nil {
		close(p.thawed)
		p.thawed = nil
	}
}

// strand leaves all open connections open for ever and carries nothing on them
// any more. New ones work.
func (p *proxy) strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.lines {
		l.dead = true
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.thaw()
	for _, l := range p.open() {
		l.close()
	}
}
