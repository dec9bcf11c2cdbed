package screen

import (
	"fmt"
	"strings"
)

// Plain says a view in lines for a log: no colours, no cursor, nothing but ASCII.
func Plain(v View) []string {
	line := fmt.Sprintf("%6.1f s  %-8s", v.Elapsed.Seconds(), v.Task)
	switch {
	case v.Done == 0 && v.Total == 0:
		line += " " + v.Unit
	case v.Total > 0:
		line += fmt.Sprintf(" %3d %%  %s of %s %s", percent(share(v.Done, v.Total)), Count(v.Done), Count(v.Total), v.Unit)
	default:
		line += fmt.Sprintf("        %s %s", Count(v.Done), v.Unit)
	}
	if v.Rate > 0 {
		line += fmt.Sprintf("  %s/s", Count(int64(v.Rate)))
	}
	lines := []string{line}
	for _, m := range v.Maps {
		lines = append(lines, fmt.Sprintf("%10s%-8s %s", "", m.Subscription, owners(m)))
	}
	return lines
}

// owners writes owner:percent for each bucket, in order.
func owners(m Map) string {
	cells := make([]string, 0, len(m.Buckets))
	for _, b := range m.Buckets {
		owner := "-"
		if b.Owner > 0 {
			owner = fmt.Sprintf("w%d", b.Owner)
		}
		cells = append(cells, fmt.Sprintf("%s:%d%%", owner, percent(b.Done)))
	}
	return strings.Join(cells, " ")
}
