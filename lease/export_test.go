package lease

// SetRandom fixes the jitter. Call it before the first pass.
func (k *Keeper) SetRandom(f func() float64) { k.random = f }

// Successor is whose session one watches.
var Successor = successor
