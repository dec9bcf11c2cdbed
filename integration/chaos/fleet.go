//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// process is one worker process and its way to the server.
type process struct {
	name  string
	spec  workerSpec
	proxy *proxy
	cmd   *exec.Cmd
	stdin io.WriteCloser
	exit  chan struct{} // closed when it is gone
	code  int           // read after exit
	began time.Time

	// guarded by fleet.mu
	lost   bool // its line stays open
	busy   bool // a fault has it
	wanted bool // its end is wanted
}

// fleet is all worker processes.
type fleet struct {
	base     workerSpec
	upstream string
	dsn      func(port int, name string) string
	log      io.Writer
	died     func(p *process) // hears of ends that nobody wanted

	mu    sync.Mutex
	all   []*process
	count int
}

// start starts a process; change adapts its spec.
func (f *fleet) start(ctx context.Context, change ...func(*workerSpec)) (*process, error) {
	proxy, err := newProxy(ctx, f.upstream)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.count++
	p := &process{name: fmt.Sprintf("w%d", f.count), spec: f.base, proxy: proxy, exit: make(chan struct{})}
	if f.count%2 == 0 {
		p.spec.Batch = 1
	}
	f.mu.Unlock()
	for _, c := range change {
		c(&p.spec)
	}
	p.spec.Name, p.spec.DSN = p.name, f.dsn(proxy.port(), p.name)
	if err := f.spawn(p); err != nil {
		proxy.close()
		return nil, err
	}
	f.mu.Lock()
	f.all = append(f.all, p)
	f.mu.Unlock()
	go f.await(p)
	return p, nil
}

func (f *fleet) spawn(p *process) error {
	text, err := json.Marshal(p.spec)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(self) //nolint:noctx // it is killed by its pid, and ends with our end of its stdin
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stdout, p.cmd.Stderr = f.log, f.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	p.began = time.Now()
	return p.cmd.Start()
}

func (f *fleet) await(p *process) {
	_ = p.cmd.Wait()
	p.code = p.cmd.ProcessState.ExitCode()
	f.mu.Lock()
	wanted, lost := p.wanted, p.lost
	p.wanted = true
	f.mu.Unlock()
	if !lost {
		p.proxy.close()
	}
	close(p.exit)
	if !wanted && f.died != nil {
		f.died(p)
	}
}

// signal does nothing when the process is gone.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends a process as a power cut would.
func (f *fleet) kill(p *process) {
	f.want(p)
	p.signal(syscall.SIGKILL)
	<-p.exit
}

// lose ends a process as if its machine had gone: nobody tells the server.
func (f *fleet) lose(p *process) {
	p.proxy.freeze()
	f.mu.Lock()
	p.lost = true
	f.mu.Unlock()
	f.kill(p)
}

// stop asks a process to leave and waits for it; false if it had to be killed.
func (f *fleet) stop(p *process) bool {
	f.want(p)
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(25 * time.Second)
	defer timer.Stop()
	select {
	case <-p.exit:
		return true
	case <-timer.C:
		f.kill(p)
		return false
	}
}

func (f *fleet) want(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.wanted = true
}

// live are the processes whose end nobody wanted yet.
func (f *fleet) live() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.all), func(p *process) bool { return p.wanted })
}

// take gives one live process to a fault alone; nil when all are taken.
func (f *fleet) take(rng *rand.Rand) *process {
	free := f.takeAll()
	if len(free) == 0 {
		return nil
	}
	chosen := rng.IntN(len(free))
	for i, p := range free {
		if i != chosen {
			f.give(p)
		}
	}
	return free[chosen]
}

// takeAll gives all live processes that no fault has.
func (f *fleet) takeAll() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	var free []*process
	for _, p := range f.all {
		if !p.busy && !p.wanted {
			p.busy = true
			free = append(free, p)
		}
	}
	return free
}

// give ends what take began.
func (f *fleet) give(all ...*process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range all {
		p.busy = false
	}
}

// stopAll stops all processes at once and returns those that did not leave well.
func (f *fleet) stopAll() []*process {
	var wait sync.WaitGroup
	live := f.live()
	for _, p := range live {
		wait.Go(func() { f.stop(p) })
	}
	wait.Wait()
	return slices.DeleteFunc(live, func(p *process) bool { return p.code == exitOK })
}

// killAll ends whatever still runs.
func (f *fleet) killAll() {
	f.mu.Lock()
	all := slices.Clone(f.all)
	f.mu.Unlock()
	for _, p := range all {
		f.kill(p)
		p.proxy.close()
	}
}
