package lease

// SetRandom fixes the jitter. Call it before the first pass.
func (k *Keeper) SetRandom(f func() float64) { k.random = f }

// SetPlan has the Keeper decide otherwise. Call it before the first pass.
func (k *Keeper) SetPlan(f func(View) Decision) { k.plan = f }

// Successor is whose session one watches.
var Successor = successor

// Sessions are those that a Watch is to watch, and Changed tells of changes of
// that; for whoever runs in its stead.
func (w *Watch) Sessions() []int64 { return w.sessions() }

// Changed holds one.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// BeatsWaiting counts the beats that wait for the one under way.
func (p *Postgres) BeatsWaiting() int {
	p.beats.mu.Lock()
	defer p.beats.mu.Unlock()
	return len(p.beats.waiting)
}
