package shardpub

import "github.com/suisha-go/suisha/kiroku"

// reached is how far the log was read for a bucket that may still be written for.
func (b *bucket) reached() (kiroku.Position, bool) {
	if b.tenure.Context().Err() != nil {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil {
		return 0, false
	}
	return b.lanes.read, true
}

// nothingRead is what release.sql takes for no checkpoint.
const nothingRead = kiroku.Position(-1)

// final is the checkpoint that goes with the release.
func (b *bucket) final() kiroku.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil {
		return nothingRead
	}
	return b.lanes.mark()
}

// unsaved is the checkpoint if the row does not hold it yet.
func (b *bucket) unsaved() (kiroku.Position, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil || b.given || b.lanes.mark() <= b.flushed {
		return 0, false
	}
	return b.lanes.mark(), true
}

// due is the checkpoint that may be written now, if there is one.
func (b *bucket) due() (kiroku.Position, bool) {
	p, ok := b.unsaved()
	return p, ok && b.trusted()
}

// give ends the writing of checkpoints beside the release.
func (b *bucket) give() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = true
}

func (b *bucket) saved(p kiroku.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushed = max(b.flushed, p)
}

func (b *bucket) markWithout(e *entry) kiroku.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lanes.markWithout(e)
}
