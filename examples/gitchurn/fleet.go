package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
)

// process is one worker process. It ends when its standard input does, so it
// cannot outlive this program, however this program ends.
type process struct {
	number int
	cmd    *exec.Cmd
	stdin  io.Closer
	said   *tail
	exited chan struct{} // closed when it has ended
	err    error         // how it ended; read it after exited

	killed time.Time // zero unless we killed it
}

// fleet is all worker processes that were started, in the order of their
// numbers. It is used by one goroutine.
type fleet struct {
	config  workerConfig
	workers []*process
}

// start starts one more worker process: this program, in its other part.
func (f *fleet) start(ctx context.Context) (*process, error) {
	c := f.config
	c.Number = len(f.workers) + 1
	line, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{number: c.Number, said: &tail{}, exited: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), exe, workerFlag) // ended by its input, not by a signal
	p.cmd.Stderr = p.said
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("worker %d: %w", p.number, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	f.workers = append(f.workers, p)
	if _, err := stdin.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("worker %d: %w", p.number, err)
	}
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process as a crash would, and waits until it is gone.
func (p *process) kill() error {
	p.killed = time.Now()
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("worker %d: %w", p.number, err)
	}
	<-p.exited
	return nil
}

// stop asks all workers to stop and waits for them. The error names those that
// did not end well, with what they said.
func (f *fleet) stop() error {
	for _, p := range f.workers {
		p.stdin.Close() //nolint:errcheck // it may be gone already
	}
	late := time.After(stopLimit + time.Second)
	for _, p := range f.workers {
		select {
		case <-p.exited:
		case <-late:
			p.cmd.Process.Kill() //nolint:errcheck // it may just have ended
			<-p.exited
		}
	}
	return f.failed()
}

// failed is an error when a worker has ended that nobody killed and not well.
func (f *fleet) failed() error {
	for _, p := range f.workers {
		if p.killed.IsZero() && !p.running() && p.err != nil {
			return fmt.Errorf("worker %d ended: %w\n%s", p.number, p.err, p.said)
		}
	}
	return nil
}

// numbers says which worker has which process id.
func (f *fleet) numbers() map[int]int {
	out := map[int]int{}
	for _, p := range f.workers {
		out[p.cmd.Process.Pid] = p.number
	}
	return out
}

// view is what the screen shows of the workers; owned is by worker number.
func (f *fleet) view(owned map[int]int) []screen.Worker {
	out := make([]screen.Worker, 0, len(f.workers))
	for _, p := range f.workers {
		w := screen.Worker{Number: p.number, PID: p.cmd.Process.Pid, Buckets: owned[p.number], Alive: p.running(), State: "running"}
		switch {
		case !p.killed.IsZero():
			w.State = "killed " + screen.Seconds(time.Since(p.killed)) + " ago"
		case !w.Alive:
			w.State = "ended"
		}
		out = append(out, w)
	}
	return out
}

// tail keeps the last of what is written. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - tailSize; n > 0 {
		t.buf = bytes.Clone(t.buf[n:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
