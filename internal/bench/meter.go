package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Meter sees every event that a case hands to its handler, and knows which there
// must be. Its methods are safe for concurrent use.
type Meter struct {
	events, streams int
	ordered         bool
	stop            int64 // ends the measurement, events at most

	first  atomic.Pointer[time.Time]
	count  atomic.Int64
	sum    atomic.Int64   // of the numbers of the events, from 1
	last   []atomic.Int32 // by stream: events seen, if they come in order
	seen   []atomic.Bool  // by event, if they may come in any
	failed atomic.Pointer[error]
	ended  sync.Once // closes done
	done   chan struct{}
}

// NewMeter expects events of a category that Load made. Ordered says that those
// of one stream must come in order. stop is how many are enough; 0 means all.
func NewMeter(events, streams int, ordered bool, stop int) *Meter {
	m := &Meter{events: events, streams: streams, ordered: ordered, stop: int64(events), done: make(chan struct{})}
	if stop > 0 {
		m.stop = int64(min(stop, events))
	}
	if ordered {
		m.last = make([]atomic.Int32, streams)
	} else {
		m.seen = make([]atomic.Bool, events)
	}
	return m
}

// Spare tells it that the first n events are not coming.
func (m *Meter) Spare(n int) {
	m.count.Store(int64(n))
	for k := range n {
		if m.ordered {
			m.last[k%m.streams].Add(1)
		} else {
			m.seen[k].Store(true)
		}
	}
}

// Note takes an event's payload. What is wrong with it ends the measurement.
func (m *Meter) Note(payload []byte) {
	n, err := number(payload)
	if err != nil {
		m.fail(err)
		return
	}
	m.NoteNumber(n)
}

// NoteNumber takes an event by its number, where the payload is read already.
func (m *Meter) NoteNumber(n int) {
	if err := m.note(n); err != nil {
		m.fail(err)
		return
	}
	m.sum.Add(int64(n) + 1)
	switch m.count.Add(1) {
	case 1:
		now := time.Now()
		m.first.Store(&now)
	case m.stop:
		m.end()
	}
}

func (m *Meter) note(n int) error {
	switch {
	case n < 0 || n >= m.events:
		return fmt.Errorf("event %d does not exist", n)
	case !m.ordered:
		if m.seen[n].Swap(true) {
			return fmt.Errorf("event %d came twice", n)
		}
	default:
		stream, version := n%m.streams, int32(n/m.streams+1) //nolint:gosec // G115: a few million at most
		if before := m.last[stream].Swap(version); before != version-1 {
			return fmt.Errorf("stream %d: event %d came after event %d", stream, version, before)
		}
	}
	return nil
}

func (m *Meter) fail(err error) {
	m.failed.CompareAndSwap(nil, &err)
	m.end()
}

func (m *Meter) end() { m.ended.Do(func() { close(m.done) }) }

// Count is how many came so far.
func (m *Meter) Count() int64 { return m.count.Load() }

// Err is what was wrong first.
func (m *Meter) Err() error {
	if err := m.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// errStalled is what ends a measurement in which nothing happens any more.
var errStalled = errors.New("events are missing")

// stallAfter is how long nothing may happen.
const stallAfter = 30 * time.Second

// Wait waits until all events that are enough have come, or for limit if that is
// not 0. It returns how many came.
func (m *Meter) Wait(ctx context.Context, limit time.Duration) (int64, error) {
	var end <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		end = timer.C
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	last, moved := int64(-1), time.Now()
	for {
		select {
		case <-m.done:
			return m.Count(), m.Err()
		case <-end:
			return m.Count(), m.Err()
		case <-ctx.Done():
			return m.Count(), context.Cause(ctx)
		case <-look.C:
			if n := m.Count(); n != last {
				last, moved = n, time.Now()
			} else if time.Since(moved) > stallAfter {
				return n, fmt.Errorf("%w: %d of %d came, and none for %s", errStalled, n, m.stop, stallAfter)
			}
		}
	}
}
