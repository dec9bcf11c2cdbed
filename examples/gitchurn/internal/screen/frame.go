package screen

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Style says what a frame may look like.
type Style struct {
	// Width and Height are the terminal's, in characters.
	Width, Height int
	// Color allows colours; everything else works without.
	Color bool
}

// Widths of the parts of a frame.
const (
	mostWidth  = 92 // wider frames are harder to read
	margin     = "  "
	cellBar    = 8
	cellWidth  = 20 // "00 w1 ████████ 100 %"
	cellGap    = 3
	labelWidth = 8
)

// Frame draws a view as lines that fit the style.
func Frame(v View, s Style) []string {
	width := min(s.Width, mostWidth)
	p := palette(s.Color)
	lines := []string{"", margin + p.bar(v, width-len(margin))}
	if len(v.Workers) > 0 {
		lines = append(lines, "")
	}
	for _, w := range v.Workers {
		lines = append(lines, margin+p.worker(w))
	}
	for _, m := range v.Maps {
		lines = append(lines, "")
		lines = append(lines, p.ownership(m, width)...)
	}
	if len(lines) > s.Height-1 {
		lines = lines[:max(s.Height-1, 0)]
	}
	for i, l := range lines {
		lines[i] = clip(l, s.Width)
	}
	return lines
}

// palette writes colours, or nothing.
type palette bool

// The colours of the workers, by number: not red, which means trouble, and not
// the ones that vanish on black or on white.
var workerColors = []int{36, 35, 33, 32, 34, 96, 95, 93}

const (
	dim = 2
	red = 31
)

func (p palette) paint(code int, s string) string {
	if !p || s == "" {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", code, s)
}

func (p palette) owner(number int, s string) string {
	if number < 1 {
		return p.paint(dim, s)
	}
	return p.paint(workerColors[(number-1)%len(workerColors)], s)
}

// bar is the progress of the whole, with its numbers behind it.
func (p palette) bar(v View, width int) string {
	if v.Done == 0 && v.Total == 0 {
		return fmt.Sprintf("%-*s %s", labelWidth, v.Task, v.Unit)
	}
	text := fmt.Sprintf("%3d %%   %s of %s %s", percent(share(v.Done, v.Total)), Count(v.Done), Count(v.Total), v.Unit)
	if v.Total <= 0 {
		text = fmt.Sprintf("        %s %s", Count(v.Done), v.Unit)
	}
	if v.Rate > 0 {
		text += fmt.Sprintf("   %s/s", Count(int64(v.Rate)))
	}
	room := max(width-labelWidth-2-max(utf8.RuneCountInString(text), 44), 10)
	return fmt.Sprintf("%-*s %s %s", labelWidth, v.Task, p.meter(share(v.Done, v.Total), room, 0), text)
}

// meter is a bar of so many characters.
func (p palette) meter(share float64, width, owner int) string {
	full := int(min(max(share, 0), 1) * float64(width))
	return p.owner(owner, strings.Repeat("█", full)) + p.paint(dim, strings.Repeat("░", width-full))
}

func (p palette) worker(w Worker) string {
	sign := p.owner(w.Number, "●")
	state := w.State
	if !w.Alive {
		sign, state = p.paint(red, "✗"), p.paint(red, w.State)
	}
	buckets := ""
	if w.Buckets > 0 {
		buckets = Counted(int64(w.Buckets), "bucket", "buckets")
	}
	return fmt.Sprintf("worker %d %s pid %-8d %-12s %s", w.Number, sign, w.PID, buckets, state)
}

// ownership is a grid of buckets, filled row by row.
func (p palette) ownership(m Map, width int) []string {
	label := fmt.Sprintf("%-*s ", labelWidth, Fit(m.Subscription, labelWidth))
	columns := max((width-len(margin)-labelWidth-1+cellGap)/(cellWidth+cellGap), 1)
	var lines []string
	for first := 0; first < len(m.Buckets); first += columns {
		var b strings.Builder
		b.WriteString(margin + label)
		for i, bucket := range m.Buckets[first:min(first+columns, len(m.Buckets))] {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", cellGap))
			}
			b.WriteString(p.cell(first+i, bucket))
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
		label = strings.Repeat(" ", labelWidth+1)
	}
	return lines
}

func (p palette) cell(number int, b Bucket) string {
	owner := "--"
	if b.Owner > 0 {
		owner = fmt.Sprintf("w%d", b.Owner)
	}
	return fmt.Sprintf("%2d %s %s %3d %%", number, p.owner(b.Owner, owner), p.meter(b.Done, cellBar, b.Owner), percent(b.Done))
}

// clip cuts a line to so many characters; colours count for nothing and are
// closed behind the cut.
func clip(s string, width int) string {
	var b strings.Builder
	n, escape, colored := 0, false, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape, colored = true, true
		case escape:
			escape = r != 'm'
		default:
			if n == width {
				if colored {
					b.WriteString("\x1b[0m")
				}
				return b.String()
			}
			n++
		}
		b.WriteRune(r)
	}
	return b.String()
}
