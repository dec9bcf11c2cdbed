// Package mill is a fixture.
package mill

import "context"

// Wheel turns, or fails with ErrDry. It keeps
// P-07, and what lies between P-1 … P-7 is not used by that.
type Wheel struct {
	Width int
	Base
}

// Base is embedded.
type Base struct{ Level int }

// Blade has no embedded field.
type Blade struct{ Angle int }

// Turn turns.
func (b *Blade) Turn(context.Context) error { return ErrDry }

// ErrDry says that there is no water.
var ErrDry error
