package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/history"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/orders"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/projection"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
	"github.com/suisha-go/suisha/shardpub"
)

// batchSize is how many events are appended at once.
const batchSize = 500

// tiny is the number of changes below which a history keeps nobody busy;
// fillTo is how many events there then are, orders included.
const (
	tiny   = 2_000
	fillTo = 30_000
)

// loader appends events in batches.
type loader struct {
	publisher *shardpub.Publisher
	category  string
	waiting   []*message.Message
	appended  int
}

func newLoader(pool *pgxpool.Pool, category string) (*loader, error) {
	p, err := shardpub.NewPublisher(pool, shardpub.PublisherConfig{}, watermill.NopLogger{})
	return &loader{publisher: p, category: category}, err
}

// add appends an event to the stream of a key, sooner or later.
func (l *loader) add(ctx context.Context, key, eventType string, event any) error {
	payload, err := json.Marshal(event)
	if err != nil {
		return err
	}
	msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), payload)
	msg.Metadata.Set(shardpub.MetadataKey, key)
	msg.Metadata.Set(shardpub.MetadataName, eventType)
	if l.waiting = append(l.waiting, msg); len(l.waiting) < batchSize {
		return nil
	}
	return l.flush()
}

// flush appends what is waiting.
func (l *loader) flush() error {
	if err := l.publisher.Publish(l.category, l.waiting...); err != nil {
		return err
	}
	l.appended += len(l.waiting)
	l.waiting = l.waiting[:0]
	return nil
}

// loadHistory appends an event for each file that each commit changed.
func (d *demo) loadHistory(ctx context.Context) (files int, err error) {
	l, err := newLoader(d.pool, projection.Files)
	if err != nil {
		return 0, err
	}
	streams, commits, last := map[string]struct{}{}, 0, ""
	for c, err := range d.repo.Changes(ctx) {
		if err != nil {
			return 0, err
		}
		if c.Commit != last {
			commits, last = commits+1, c.Commit
		}
		key := history.Key(c.Path)
		streams[key] = struct{}{}
		event := projection.FileChanged{
			Path: history.Escape(c.Path), Commit: c.Commit, Author: c.Author, At: c.At,
			Added: c.Added, Deleted: c.Deleted, Binary: c.Binary,
		}
		if err := l.add(ctx, key, projection.FileChangedType, event); err != nil {
			return 0, err
		}
		d.draw(screen.View{Task: "append", Done: int64(commits), Total: int64(d.repo.Commits), Unit: "commits"})
	}
	err = l.flush()
	d.changes = l.appended
	return len(streams), err
}

// loadOrders appends generated orders where the history is too small.
func (d *demo) loadOrders(ctx context.Context) error {
	if d.changes >= tiny && !d.repo.Shallow {
		return nil
	}
	d.orders = orders.For(d.options.fill - d.changes)
	l, err := newLoader(d.pool, projection.Orders)
	if err != nil {
		return err
	}
	for line := range orders.Lines(d.orders) {
		event := projection.LineAdded{Order: line.Order, Line: line.Number, Amount: line.Amount}
		if err := l.add(ctx, orders.Key(line.Order), projection.LineAddedType, event); err != nil {
			return err
		}
		d.draw(screen.View{Task: "append", Done: int64(l.appended), Total: int64(orders.Count(d.orders)), Unit: "order lines"})
	}
	err = l.flush()
	d.lines = l.appended
	return err
}

// frameInterval is the time between two frames.
const frameInterval = 100 * time.Millisecond

// draw shows a view, unless the last one is too fresh.
func (d *demo) draw(v screen.View) {
	if now := time.Now(); now.Sub(d.drawn) >= frameInterval {
		d.drawn = now
		v.Elapsed = now.Sub(d.began)
		d.screen.Draw(v)
	}
}
