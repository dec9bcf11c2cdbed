//go:build unix

package pgserver

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Signals that end a server: fast rolls back what runs and writes a
// checkpoint, immediate is a crash.
const (
	fast      = syscall.SIGINT
	immediate = syscall.SIGQUIT
)

const pollEvery = 5 * time.Millisecond

// process is a child that is polled, not waited for: a goroutine that waits
// would be a leak in the eyes of every test that looks for leaks.
type process struct {
	pid   int
	ended bool
}

// spawn starts cmd without any of our standard streams, so that nobody who
// reads them waits for the child.
func spawn(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid}
	return p, cmd.Process.Release()
}

// running reaps the child when it has ended.
func (p *process) running() bool {
	if p.ended {
		return false
	}
	var status syscall.WaitStatus
	for {
		got, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		p.ended = err != nil || got == p.pid
		return !p.ended
	}
}

// end sends sig and waits; after limit the child is killed.
func (p *process) end(sig syscall.Signal, limit time.Duration) {
	if !p.running() {
		return
	}
	_ = syscall.Kill(p.pid, sig)
	if p.await(limit) {
		return
	}
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
	p.await(limit)
}

// await waits until the child has ended, limit at most.
func (p *process) await(limit time.Duration) bool {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); p.running(); {
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
	return true
}

// guardScript reads what to end from a pipe, one line per change: a process
// group, or nothing. When the pipe closes it ends that group, waits until its
// leader is gone, and removes the directory. Data that is kept lies elsewhere.
const guardScript = `
trap '' INT TERM HUP QUIT
sig=$1 dir=$2 pid=
while read -r line; do pid=$line; done
alive() {
	kill -0 "$1" 2>/dev/null || return 1
	read -r _ _ state _ 2>/dev/null <"/proc/$1/stat" && [ "$state" = Z ] && return 1
	return 0
}
if [ -n "$pid" ]; then
	kill -s "$sig" -- "-$pid" 2>/dev/null
	n=0
	while alive "$pid" && [ $n -lt 200 ]; do
		sleep 0.05
		n=$((n + 1))
		if [ $n -eq 199 ]; then kill -s KILL -- "-$pid" 2>/dev/null; fi
	done
fi
n=0
while rm -rf "$dir" || [ $n -lt 20 ]; do
	[ -e "$dir" ] || break
	sleep 0.1
	n=$((n + 1))
done
`

// guard cleans up after this process: when it closes the pipe or dies.
type guard struct {
	shell *process
	pipe  *os.File
}

func newGuard(dir string, kept bool) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	sig := "QUIT"
	if kept {
		sig = "INT"
	}
	cmd := exec.Command("/bin/sh", "-c", guardScript, "suisha-pg-guard", sig, dir) //nolint:noctx // it outlives every context
	cmd.Dir = "/"
	cmd.Stdin = r
	cmd.SysProcAttr = account{}.attributes()
	shell, err := spawn(cmd)
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	return &guard{shell: shell, pipe: w}, nil
}

// watch tells the guard which process group to end, "" for none.
func (g *guard) watch(pid string) error {
	_, err := g.pipe.WriteString(pid + "\n")
	return err
}

// close makes the guard do its work now and waits for it.
func (g *guard) close() {
	_ = g.pipe.Close()
	g.shell.await(30 * time.Second)
}
