package bench

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Backlog is a drain of a peer: events wait, and one handler of a Watermill
// router gets them.
type Backlog struct {
	// Events is how many wait, of which Skip are spared and Stop are enough.
	Events, Skip, Stop int
	// Within bounds the measurement if it is not 0.
	Within time.Duration
	// Work is how long the handler takes.
	Work time.Duration
	// Ordered: the peer promises the order in which they were written.
	Ordered bool
}

// Drain measures a subscriber. The router closes it.
func (b Backlog) Drain(ctx context.Context, topic string, quiet *Quiet, subscribe func() (message.Subscriber, error)) (Values, error) {
	m := b.Meter()
	began := time.Now()
	s, err := subscribe()
	if err != nil {
		return nil, err
	}
	stop, err := RunRouter(ctx, s, topic, handler(m, b.Work))
	if err != nil {
		return nil, err
	}
	n, err := m.Wait(ctx, b.Within)
	took := time.Since(began)
	err = errors.Join(err, quiet.Stop(), stop())
	return b.Values(n, took), err
}

// Meter is one that sees what a peer hands out.
func (b Backlog) Meter() *Meter {
	streams := b.Events
	if b.Ordered {
		streams = 1 // what is in order as a whole is so in each stream
	}
	m := NewMeter(b.Events, streams, b.Ordered, b.Stop)
	m.Spare(b.Skip)
	return m
}

// Values are the rate of n events, those skipped included.
func (b Backlog) Values(n int64, took time.Duration) Values {
	return Values{"rate": float64(n-int64(b.Skip)) / took.Seconds()}
}

// Span names a range of events in a key of [Server.Prepared].
func Span(from, to int) string { return " " + strconv.Itoa(from) + "-" + strconv.Itoa(to) }
