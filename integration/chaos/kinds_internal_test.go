//go:build unix

package main

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

const waitingSQL = `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`

// A full lock queue is twenty sessions behind the one that has the row, and
// nobody is left when the fault is over, however early that is.
func TestLockQueueIsFullAndEndsByItself(t *testing.T) {
	t.Parallel()
	p := plant(t)
	some, err := chosen(kinds(), "lock-queue")
	if err != nil {
		t.Fatal(err)
	}
	if some[0].class != classLesser {
		t.Errorf("its class is %s", some[0].class)
	}
	s := &storm{o: options{buckets: 1}, db: p.database}
	for range 5 { // on a busy machine, two seconds may be too short
		ctx, cancel := context.WithCancel(t.Context())
		happened := make(chan bool, 1)
		go func() { happened <- some[0].run(ctx, s, rand.New(rand.NewPCG(1, 1)), &incident{}) }()
		full, over := false, false
		for !over {
			if p.waiting() == queueLength {
				full = true
				cancel() // the end of a run
			}
			select {
			case yes := <-happened:
				if !yes {
					t.Error("the fault did not happen")
				}
				over = true
			case <-time.After(10 * time.Millisecond):
			}
		}
		cancel()
		if n := p.waiting(); n != 0 {
			t.Fatalf("%d sessions still wait", n)
		}
		if full {
			return
		}
	}
	t.Errorf("there were never %d sessions in the queue", queueLength)
}

// waiting is how many sessions wait for locks.
func (p planted) waiting() int {
	p.t.Helper()
	n, err := ask[int](context.Background(), p.database, waitingSQL)
	if err != nil {
		p.t.Fatal(err)
	}
	return n[0]
}
