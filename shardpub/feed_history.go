package shardpub

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// recognize makes sure, after every reconnect, that the log is still the one
// that was being read. If not, it forgets all it knows of it, and the buckets
// begin again at their checkpoints (P-31).
func (f *feed) recognize(ctx context.Context) error {
	f.mu.Lock()
	check := f.verify
	anchors := maps.Clone(f.anchors)
	var cursor kiroku.Position
	if last := f.groups.last(); last != nil {
		cursor = last.cursor
	}
	f.mu.Unlock()
	if !check {
		return nil
	}
	changed, server, err := f.compare(ctx, anchors, cursor)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.verify, f.server = false, server
	f.mu.Unlock()
	if changed != nil {
		f.node.report(changed)
		f.forget()
	}
	return nil
}

// compare looks whether the log changed under the cursors. It returns what
// differs, nil if nothing does, and who answered.
func (f *feed) compare(ctx context.Context, anchors map[kiroku.Position]uuid.UUID, cursor kiroku.Position) (*HistoryError, string, error) {
	server, err := f.identify(ctx)
	if err != nil {
		return nil, "", err
	}
	f.mu.Lock()
	before := f.server
	f.mu.Unlock()
	if before != "" && server != before {
		return &HistoryError{Position: cursor, Problem: fmt.Sprintf("server, timeline or version was %s and is %s", before, server)}, server, nil
	}
	head, err := kiroku.Head(ctx, f.node.pool)
	if err != nil {
		return nil, "", &ReadError{After: cursor, Err: err}
	}
	if head < cursor {
		return &HistoryError{Position: cursor, Problem: fmt.Sprintf("the log ends at %d", head)}, server, nil
	}
	for position, event := range anchors {
		k, found, err := kiroku.KeyAt(ctx, f.node.pool, position)
		if err != nil {
			return nil, "", &ReadError{After: position, Err: err}
		}
		if found && k.EventID != event {
			return &HistoryError{Position: position, Event: event, Problem: fmt.Sprintf("event %s stands there now", k.EventID)}, server, nil
		}
	}
	return nil, server, nil
}

// identify asks who answers. A role that may not know gets by without.
func (f *feed) identify(ctx context.Context) (string, error) {
	var server string
	err := f.node.pool.QueryRow(ctx, serverSQL).Scan(&server)
	if isDenied(err) {
		return "", nil
	}
	if err != nil {
		return "", &ReadError{Err: err}
	}
	return server, nil
}

// forget drops directory, cursors and lanes. The tenures end; the keepers find
// their leases still theirs and open new ones.
func (f *feed) forget() {
	f.dir.clear()
	f.mu.Lock()
	buckets := slices.Collect(maps.Keys(f.parked))
	for _, g := range f.groups.all {
		buckets = slices.AppendSeq(buckets, maps.Keys(g.sinks))
	}
	f.groups = newGroups[*bucket](maxPageKeys)
	clear(f.parked)
	clear(f.anchors)
	f.mu.Unlock()
	for _, b := range buckets {
		b.tenure.End(lease.ErrLost)
		b.sub.wake()
	}
}
