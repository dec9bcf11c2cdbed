// Package callers is for what several callers share.
package callers

import (
	"context"
	"time"
)

// UntilLast is a context for what all of them wait for: it ends when the deadlines of
// all have passed, never when one lacks a deadline, and has the values of the first.
func UntilLast(all []context.Context) (context.Context, context.CancelFunc) {
	base := context.WithoutCancel(all[0])
	var last time.Time
	for _, ctx := range all {
		deadline, ok := ctx.Deadline()
		if !ok {
			return context.WithCancel(base)
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(base, last)
}
