package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Count writes a number with commas: 1,234,567.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	var b strings.Builder
	for i, digit := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return sign + b.String()
}

// Counted writes a number and what it counts, in the singular for one.
func Counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// Seconds writes a duration as seconds with one decimal.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// Fit shortens s to width characters in its middle: both ends of a path say
// more than what lies between.
func Fit(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width {
		return s
	}
	r := []rune(s)
	if width < 3 {
		return string(r[:max(width, 0)])
	}
	tail := (width - 1) * 2 / 3
	return string(r[:width-1-tail]) + "…" + string(r[n-tail:])
}

// percent is floor(100 × share), so that only what is complete shows 100.
func percent(share float64) int { return int(100 * min(max(share, 0), 1)) }

// share is done of total, 0 where the total is not known.
func share(done, total int64) float64 {
	if total <= 0 {
		return 0
	}
	return float64(done) / float64(total)
}
