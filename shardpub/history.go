package shardpub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/suisha-go/suisha/kiroku"
	"github.com/suisha-go/suisha/lease"
)

// history makes sure that the log is the one that was being read, on every new
// connection, before anything else is said on it (P-31). So whatever is written
// on a connection of the Node was decided by the log that it leads to, if trust
// in the tenure is asked for once the connection is at hand.
type history struct {
	node *Node

	mu     sync.Mutex // one connection is examined at a time
	server string     // who answered last
}

// recognizeTime bounds the questions to a new connection.
const recognizeTime = 5 * time.Second

// recognize asks who answers and what stands at the places that were reached. If
// the log is another one, all that is known of the old one is forgotten, and the
// buckets begin again at their checkpoints.
func (h *history) recognize(ctx context.Context, conn *pgx.Conn) (changed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, recognizeTime)
	defer cancel()
	server, err := identify(ctx, conn)
	if err != nil {
		return false, &ReadError{Err: err}
	}
	reached := h.node.feed.reached()
	found, err := reached.compare(ctx, conn)
	if err != nil {
		return false, &ReadError{After: reached.last(), Err: err}
	}
	if h.server != "" && server != "" && server != h.server {
		found = &HistoryError{Position: reached.last(), Problem: fmt.Sprintf("server, timeline or version was %s and is %s", h.server, server)}
	}
	if server != "" {
		h.server = server
	}
	if found == nil {
		return false, nil
	}
	h.node.report(found)
	h.node.restart()
	return true, nil
}

// recognize is for connections other than the session's: that may lead to the old
// server still, and claim there what is worked on here.
func (n *Node) recognize(ctx context.Context, conn *pgx.Conn) (changed bool, err error) {
	changed, err = n.history.recognize(ctx, conn)
	if changed && n.session != nil {
		n.session.Reconnect()
	}
	return changed, err
}

// restart forgets the log. The tenures end; the keepers find their leases still
// theirs and open new ones, which load their checkpoints on new connections.
func (n *Node) restart() {
	n.feed.forget()
	n.pool.Reset()
	if n.beats != nil {
		n.beats.Reset()
	}
	for _, b := range n.buckets() {
		b.tenure.End(lease.ErrLost)
		b.stop()
		b.sub.wake()
	}
}

// identify asks who answers. A role that may not know, or a server that does not
// say, gets by without.
func identify(ctx context.Context, conn *pgx.Conn) (string, error) {
	var server string
	err := conn.QueryRow(ctx, serverSQL).Scan(&server)
	if stateOf(err) != "" {
		return "", nil
	}
	return server, err
}

// anchors are the positions that buckets have reached, those that drain included,
// each with the event that stands there, so far as one does: what the log is known
// again by.
type anchors map[kiroku.Position]uuid.UUID

// last is the furthest.
func (a anchors) last() kiroku.Position {
	if len(a) == 0 {
		return 0
	}
	return slices.Max(slices.Collect(maps.Keys(a)))
}

// compare looks for the anchors in the log. It returns what differs, nil if
// nothing does. Where nothing stands any more nothing can be told.
func (a anchors) compare(ctx context.Context, db kiroku.DB) (*HistoryError, error) {
	head, err := kiroku.Head(ctx, db)
	if err != nil {
		return nil, err
	}
	if last := a.last(); head < last {
		return &HistoryError{Position: last, Problem: fmt.Sprintf("the log ends at %d", head)}, nil
	}
	keys, err := kiroku.KeysAt(ctx, db, slices.Collect(maps.Keys(a)))
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if event := a[k.Position]; event != uuid.Nil && event != k.EventID {
			return &HistoryError{Position: k.Position, Event: event, Problem: fmt.Sprintf("event %s stands there now", k.EventID)}, nil
		}
	}
	return nil, nil //nolint:nilnil // nothing differs
}

// anchorsAt reads what stands at some positions.
func anchorsAt(ctx context.Context, db kiroku.DB, at []kiroku.Position) (anchors, error) {
	keys, err := kiroku.KeysAt(ctx, db, at)
	if err != nil {
		return nil, err
	}
	a := anchors{}
	for _, p := range at {
		a[p] = uuid.Nil
	}
	for _, k := range keys {
		a[k.Position] = k.EventID
	}
	return a, nil
}
