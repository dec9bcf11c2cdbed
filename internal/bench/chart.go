package bench

import (
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func sortedNames(v Values) []string { return slices.Sorted(maps.Keys(v)) }

// Sizes of a chart, in pixels.
const (
	chartWidth  = 760
	chartBars   = 300 // where they begin
	chartNumber = 100 // room for the number behind the longest
	chartTop    = 44
	chartRow    = 24
	chartBar    = 15
)

// Colors that are readable on white and on black.
const (
	colorOurs  = "#2f9e6e"
	colorPeer  = "#7b8794"
	colorLimit = "#c08a3e"
	colorText  = "#8b949e"
)

// Chart draws the medians of a question as bars, ours first, then the best.
func (a Answered) Chart() string {
	rows := slices.DeleteFunc(slices.Clone(a.Rows), func(r Row) bool { return len(r.Runs) == 0 })
	slices.SortStableFunc(rows, func(x, y Row) int {
		if x.ours() != y.ours() {
			return map[bool]int{true: -1, false: 1}[x.ours()]
		}
		if x.ours() {
			return 0 // as they were listed
		}
		less := x.Median[a.Primary] < y.Median[a.Primary]
		return map[bool]int{true: -1, false: 1}[less == a.Low]
	})
	most := 0.0
	for _, r := range rows {
		most = max(most, r.Median[a.Primary])
	}
	hint := "more is better"
	if a.Low {
		hint = "less is better"
	}
	var b strings.Builder
	height := chartTop + len(rows)*chartRow + 12
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="system-ui, sans-serif" font-size="12">`+"\n",
		chartWidth, height, chartWidth, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(a.Title))
	fmt.Fprintf(&b, `<text x="8" y="18" font-size="14" font-weight="600" fill="%s">%s</text>`+"\n", colorText, escape(a.Title))
	fmt.Fprintf(&b, `<text x="8" y="34" font-size="11" fill="%s">%s, %s</text>`+"\n", colorText, escape(a.Unit), hint)
	for i, r := range rows {
		x := r.Median[a.Primary]
		width := 0.0
		if most > 0 {
			width = max(x/most*(chartWidth-chartBars-chartNumber), 1)
		}
		y := chartTop + i*chartRow
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`, chartBars-8, y+12, colorText, escape(r.Name))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/>`, chartBars, y, width, chartBar, r.color())
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="%s">%s</text>`+"\n", chartBars+width+6, y+12, colorText, short(x))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (r Row) ours() bool { return strings.HasPrefix(r.Name, Ours) }

func (r Row) color() string {
	switch {
	case r.ours():
		return colorOurs
	case strings.HasPrefix(r.Name, "limit"):
		return colorLimit
	}
	return colorPeer
}

func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return ""
	}
	return b.String()
}

// WriteCharts writes one file per question into a directory.
func (r *Report) WriteCharts(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: documentation
		return err
	}
	for _, q := range r.Questions {
		if err := os.WriteFile(filepath.Join(dir, q.ID+".svg"), []byte(q.Chart()), 0o644); err != nil { //nolint:gosec // G306: documentation
			return err
		}
	}
	return nil
}
