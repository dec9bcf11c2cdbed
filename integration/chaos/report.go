//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// report is the result of one run.
type report struct {
	Seed          uint64         `json:"seed,omitempty"`
	Seconds       float64        `json:"seconds,omitempty"`
	Workers       int            `json:"workers,omitempty"`
	Buckets       int            `json:"buckets,omitempty"`
	TTL           string         `json:"ttl,omitempty"`
	Renew         string         `json:"renew,omitempty"`
	Processes     int            `json:"processes,omitempty"`
	Events        int64          `json:"events,omitempty"`
	FailedAppends int64          `json:"failed_appends,omitempty"`
	Drained       bool           `json:"drained"`
	Findings      []finding      `json:"findings,omitempty"`
	Repeats       map[string]int `json:"repeats,omitempty"`
	Claims        map[string]int `json:"claims,omitempty"`
	Figures       []figure       `json:"figures"`
	Troubles      []string       `json:"troubles,omitempty"`
	Incidents     []*incident    `json:"incidents,omitempty"`
}

// errBroken is the end of a run that found a violation.
var errBroken = errors.New("a promise was broken, see above")

// finish prints the report, writes it to a file if there is a name, and judges it.
func (r *report) finish(out io.Writer, file string) error {
	if r.Findings != nil {
		r.printFaults(out)
		r.printFindings(out)
	}
	printFigures(out, r.Figures)
	for _, t := range r.Troubles {
		fmt.Fprintf(out, "TROUBLE  %s\n", t)
	}
	if file != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil { //nolint:gosec // G703: the file that the command line names
			return err
		}
	}
	if r.broken() {
		return errBroken
	}
	return nil
}

func (r *report) broken() bool {
	return len(r.Troubles) > 0 || slices.ContainsFunc(r.Findings, func(f finding) bool { return f.Promised && f.Count > 0 })
}

func (r *report) printFaults(out io.Writer) {
	classes, kinds := map[string]int{}, map[string]map[string]int{}
	for _, i := range r.Incidents {
		classes[i.Class]++
		if kinds[i.Class] == nil {
			kinds[i.Class] = map[string]int{}
		}
		kinds[i.Class][i.Kind]++
	}
	fmt.Fprintf(out, "\nseed %d, %.0f s, %d worker processes in all\n\n", r.Seed, r.Seconds, r.Processes)
	fmt.Fprintf(out, "%-10s %5d\n", "faults", len(r.Incidents))
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		fmt.Fprintf(out, "  %-8s %5d  %s\n", class, classes[class], counts(kinds[class]))
	}
}

func (r *report) printFindings(out io.Writer) {
	fmt.Fprintf(out, "\n%-42s %8d\n", "events", r.Events)
	for _, f := range r.Findings {
		mark := ""
		if f.Promised && f.Count > 0 {
			mark = "  VIOLATION"
		}
		fmt.Fprintf(out, "%-42s %8d%s\n", f.Name, f.Count, mark)
		for _, e := range f.Evidence {
			fmt.Fprintf(out, "    %s\n", e)
		}
	}
	total := 0
	for _, n := range r.Repeats {
		total += n
	}
	fmt.Fprintf(out, "%-42s %8d  %s\n", "repeats", total, counts(r.Repeats))
	total = 0
	for _, n := range r.Claims {
		total += n
	}
	fmt.Fprintf(out, "%-42s %8d  %s\n", "claims of buckets", total, counts(r.Claims))
}

// counts writes names and numbers, the most frequent first.
func counts(m map[string]int) string {
	names := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(names, func(a, b string) int { return m[b] - m[a] })
	parts := make([]string, 0, len(names))
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", name, m[name]))
	}
	return strings.Join(parts, ", ")
}

func printFigures(out io.Writer, figures []figure) {
	fmt.Fprintf(out, "\n%-34s %6s %10s %10s %10s\n", "", "n", "p50", "p99", "max")
	for _, f := range figures {
		fmt.Fprintf(out, "%-34s %6d %10s %10s %10s  %s\n", f.Name, f.N, milliseconds(f.P50), milliseconds(f.P99), milliseconds(f.Max), f.Note)
	}
}

func milliseconds(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.2f s", ms/1000)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
