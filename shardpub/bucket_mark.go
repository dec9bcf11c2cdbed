package shardpub

import "github.com/suisha-go/suisha/kiroku"

// progress is what a statement writes for a bucket: its checkpoint, and what is
// settled above it (P-39).
type progress struct {
	mark    kiroku.Position
	settled []byte // nil: nothing is, and no row says otherwise; empty: the row goes
	settles uint64
}

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

// progress is how far all is settled, or will be once e is, which is out; nil
// means none (P-37).
func (b *bucket) progress(e *entry) progress {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil {
		return progress{mark: nothingRead}
	}
	p := progress{mark: b.lanes.markWithout(e), settles: b.lanes.settles}
	if settled := b.lanes.settledAhead(e); len(settled.at) > 0 || b.stored {
		p.settled, b.stored = settled.encode(), true
	}
	return p
}

// unsaved reports whether there is something that the rows do not hold yet.
func (b *bucket) unsaved() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil || b.given {
		return false
	}
	return b.lanes.mark() > b.flushed || b.lanes.settles != b.settles && b.lanes.ahead() > 0
}

// due reports whether there is something that may be written now.
func (b *bucket) due() bool { return b.unsaved() && b.trusted() }

// give ends the writing of checkpoints beside the release.
func (b *bucket) give() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = true
}

func (b *bucket) saved(p progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushed = max(b.flushed, p.mark)
	b.settles, b.stored = p.settles, len(p.settled) > 0
}

// grasp takes the pen, if nobody has it. Of two statements at once the one that
// was made first could be done last, and bring back an older settled set.
func (b *bucket) grasp() bool {
	select {
	case b.pen <- struct{}{}:
		return true
	default:
		return false
	}
}
