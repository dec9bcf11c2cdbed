package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/router"
	"github.com/suisha-go/suisha/shardpub"
)

// childEnv tells a process that it is a worker of a case, and which.
const childEnv = "SUISHA_BENCH_CHILD"

// childSpec is a worker in a process of its own.
type childSpec struct {
	DSN                               string
	Subscription, Category            string
	Buckets, Concurrency, MaxInFlight int
	Work                              time.Duration
	Events, Streams                   int
}

// said is one line of a child. Its sum tells sets of events of one size apart.
type said struct {
	Count, Sum       int64
	Heap, Goroutines int64 // when it was asked
	Peak             int64 // resident bytes, so far
	Err              string
}

// Child runs what a parent of this program wants of it, and does not return, if
// it has one.
func Child() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	var spec childSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = spec.work()
	}
	if err != nil {
		say(said{Err: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

func say(s said) { _ = json.NewEncoder(os.Stdout).Encode(s) }

// work runs until the parent closes the input. A line on it asks for the memory.
func (c childSpec) work() error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, c.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	var bad troubles
	worker, err := router.New(pool, router.Config{
		Shards: c.Buckets, Concurrency: c.Concurrency, Node: shardpub.NodeConfig{OnError: bad.note},
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	m := NewMeter(c.Events, max(c.Streams, 1), true, 0)
	_, err = worker.Add(router.Handler{
		Name: c.Subscription, Category: c.Category, Consume: handler(m, c.Work), Options: shardpub.SubscriberConfig{MaxInFlight: c.MaxInFlight},
	})
	if err != nil {
		return err
	}
	if err := worker.Start(ctx); err != nil {
		return err
	}
	asked, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			asked <- struct{}{}
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-asked:
			say(c.memory(m))
		case <-tick.C:
			if n := m.Count(); n != last || m.Err() != nil {
				last = n
				say(said{Count: n, Sum: m.sum.Load(), Peak: peak()})
			}
			if err := errors.Join(m.Err(), bad.err()); err != nil {
				return err
			}
		case <-over:
			err := worker.Stop(ctx)
			say(said{Count: m.Count(), Sum: m.sum.Load(), Peak: peak()})
			return errors.Join(err, m.Err())
		}
	}
}

func (childSpec) memory(m *Meter) said {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return said{Count: m.Count(), Sum: m.sum.Load(), Heap: int64(s.HeapAlloc + s.StackInuse), Goroutines: int64(runtime.NumGoroutine()), Peak: peak()} //nolint:gosec // G115: bytes
}

// peak is the most memory that this process had in use, 0 where the system does
// not say.
func peak() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10
}

// child is a process as its parent sees it.
type child struct {
	cmd   *exec.Cmd
	input interface{ Close() error }
	ask   func() error

	mu   sync.Mutex // guards what follows
	last said
	news chan struct{} // holds one: something was said

	ended chan error
}

// startChild starts this program as a worker.
func startChild(ctx context.Context, spec childSpec) (*child, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self), news: make(chan struct{}, 1), ended: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.cmd.WaitDelay = time.Minute
	input, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.input = input
	c.ask = func() error {
		_, err := input.Write([]byte("\n"))
		return err
	}
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var s said
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				c.heard(s)
			}
		}
		err := c.cmd.Wait()
		if s := c.said(); s.Err != "" {
			err = errors.Join(errors.New(s.Err), err)
		}
		c.ended <- err
		c.heard(c.said())
	}()
	return c, nil
}

func (c *child) heard(s said) {
	c.mu.Lock()
	c.last = s
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (c *child) said() said {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// memory asks for it, and waits for the answer.
func (c *child) memory(ctx context.Context) (said, error) {
	if err := c.ask(); err != nil {
		return said{}, err
	}
	for {
		select {
		case <-c.news:
			if s := c.said(); s.Heap > 0 {
				return s, nil
			} else if s.Err != "" {
				return s, errors.New(s.Err)
			}
		case <-ctx.Done():
			return said{}, context.Cause(ctx)
		case <-time.After(stallAfter):
			return said{}, fmt.Errorf("a worker says nothing: %w", errStalled)
		}
	}
}

// stop lets it stop in good order.
func (c *child) stop() error { return errors.Join(c.input.Close(), <-c.ended) }
