//go:build unix

package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	socketPort  = 5432
	stopLimit   = 30 * time.Second
	tcpAttempts = 3
)

// local is a server that we run.
type local struct {
	options Options
	account account
	in      installation
	// dir holds socket and log, and the data unless they are kept elsewhere.
	dir, data string
	port      int
	guard     *guard
	process   *process
}

func startLocal(ctx context.Context, o Options) (*local, error) {
	acc, err := serverAccount()
	if err != nil {
		return nil, err
	}
	l := &local{options: o, account: acc, port: socketPort}
	major := 0
	if o.Dir != "" {
		kept, err := keptDir(acc, o.Dir)
		if err != nil {
			return nil, err
		}
		l.data = filepath.Join(kept, "data")
		if major, err = dataMajor(l.data); err != nil {
			return nil, err
		}
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	if l.in, err = machine(acc).find(ctx, major, cache); err != nil {
		return nil, err
	}
	if l.dir, err = tempDir(acc); err != nil {
		return nil, err
	}
	if l.data == "" {
		l.data = filepath.Join(l.dir, "data")
	}
	if l.guard, err = newGuard(l.dir, o.Dir != ""); err != nil {
		return nil, errors.Join(err, os.RemoveAll(l.dir))
	}
	if err := l.create(ctx, major > 0); err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

// dataMajor returns the major version that wrote the data, 0 when there are
// none.
func dataMajor(data string) (int, error) {
	b, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("pgserver: %s: %w", data, err)
	}
	return major, nil
}

// create makes the data, unless they exist, and starts the server. A free
// TCP port may be taken before the server has it, so that is tried again.
func (l *local) create(ctx context.Context, exists bool) error {
	if !exists {
		if err := l.initdb(ctx); err != nil {
			return err
		}
	}
	if !l.options.TCP {
		return l.run(ctx)
	}
	var err error
	for range tcpAttempts {
		if l.port, err = freePort(ctx); err != nil {
			return err
		}
		if err = l.run(ctx); err == nil || l.process.running() {
			return err
		}
	}
	return err
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = ln.Close() }()
	addr, err := netip.ParseAddrPort(ln.Addr().String())
	return int(addr.Port()), err
}

// initdb makes the data beside their place and moves them there when they are
// whole, so that an interrupted attempt is never taken for data.
func (l *local) initdb(ctx context.Context) error {
	fresh := l.data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(l.in.bin, "initdb"), "-D", fresh, "-U", "postgres",
		"-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	cmd.Dir = l.dir
	cmd.SysProcAttr = l.account.attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	err := l.guard.watch(strconv.Itoa(cmd.Process.Pid))
	if err := errors.Join(cmd.Wait(), err); err != nil {
		return &StartError{Program: "initdb", Output: tail(out.Bytes()), Err: errors.Join(context.Cause(ctx), err)}
	}
	return errors.Join(l.guard.watch(""), os.Rename(fresh, l.data))
}

// run starts the server's program and returns when it answers.
func (l *local) run(ctx context.Context) error {
	log, err := os.OpenFile(l.logFile(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	args := []string{"-D", l.data}
	for _, s := range l.options.settings(l.dir, l.port) {
		args = append(args, "-c", s)
	}
	cmd := exec.Command(filepath.Join(l.in.bin, "postgres"), args...) //nolint:noctx // Stop ends it, not a context
	cmd.Dir = l.dir
	cmd.SysProcAttr = l.account.attributes()
	cmd.Stdout, cmd.Stderr = log, log
	if l.process, err = spawn(cmd); err != nil {
		return err
	}
	if err := l.guard.watch(strconv.Itoa(l.process.pid)); err != nil {
		return err
	}
	return l.answers(ctx)
}

// answers waits until the server takes a connection.
func (l *local) answers(ctx context.Context) error {
	tick := time.NewTicker(2 * pollEvery)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, l.dsn("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		if !l.process.running() {
			return l.failed(errors.New("ended before it answered"))
		}
		select {
		case <-ctx.Done():
			return l.failed(errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}

func (l *local) failed(cause error) error {
	out, err := os.ReadFile(l.logFile())
	return &StartError{Program: "postgres", Output: tail(out), Err: errors.Join(cause, err)}
}

func (l *local) logFile() string { return filepath.Join(l.dir, "log") }

func (l *local) dsn(database string) string {
	host := l.dir
	if l.options.TCP {
		host = "127.0.0.1"
	}
	return fmt.Sprintf("host=%s port=%d user=postgres sslmode=disable dbname=%s", quote(host), l.port, quote(database))
}

// halt ends the server's program and keeps its data.
func (l *local) halt(sig syscall.Signal) error {
	if l.process == nil {
		return nil
	}
	l.process.end(sig, stopLimit)
	if l.process.running() {
		return fmt.Errorf("pgserver: process %d does not end", l.process.pid)
	}
	return l.guard.watch("")
}

func (l *local) crash() error { return l.halt(immediate) }

// restart needs no second look at the port: the socket's is ours alone, and
// a TCP port that was taken meanwhile is an error.
func (l *local) restart(ctx context.Context) error {
	if err := l.halt(fast); err != nil {
		return err
	}
	return l.run(ctx)
}

func (l *local) stop() error {
	sig := immediate
	if l.options.Dir != "" {
		sig = fast
	}
	err := l.halt(sig)
	l.guard.close()
	return errors.Join(err, os.RemoveAll(l.dir))
}

func (l *local) bin() string { return l.in.bin }
