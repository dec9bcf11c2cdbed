package screen

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Screen writes views to a terminal or a log. Its methods are not safe for
// concurrent use, and its writer must be written to by it alone until Close.
type Screen struct {
	out   io.Writer
	size  func() (width, height int, ok bool)
	color bool

	frame []string      // what is on the terminal now
	last  time.Duration // when a log last got a view
	any   bool          // the log has got one
	told  bool          // Tell was called
}

// every is the time between two views in a log.
const every = 2 * time.Second

// Terminal is a screen that redraws in place. size is asked before each frame:
// windows change. When it answers no, nothing is drawn.
func Terminal(out io.Writer, size func() (width, height int, ok bool), color bool) *Screen {
	return &Screen{out: out, size: size, color: color}
}

// Log is a screen that writes a view every two seconds.
func Log(out io.Writer) *Screen { return &Screen{out: out} }

// Style is what lines given to Say may look like.
func (s *Screen) Style() Style {
	style := Style{Width: mostWidth, Height: 24, Color: s.color}
	if s.size == nil {
		return style
	}
	if width, height, ok := s.size(); ok {
		style.Width, style.Height = width, height
	}
	return style
}

// Draw shows a view in the place of the last one.
func (s *Screen) Draw(v View) {
	if s.size == nil {
		s.log(v)
		return
	}
	if width, height, ok := s.size(); ok {
		s.paint(nil, Frame(v, Style{Width: width, Height: height, Color: s.color}))
	}
}

// Say writes lines that stay, above the view.
func (s *Screen) Say(lines ...string) {
	if s.size != nil {
		s.paint(lines, s.frame)
		return
	}
	for _, line := range lines {
		fmt.Fprintln(s.out, line)
	}
}

// Tell writes lines as Say does, and on a terminal a gap before the first.
func (s *Screen) Tell(lines ...string) {
	if s.size != nil && !s.told {
		lines = append([]string{""}, lines...)
	}
	s.told = true
	s.Say(lines...)
}

// Clear takes the last view away.
func (s *Screen) Clear() {
	if s.size != nil {
		s.paint(nil, nil)
	}
}

// Keep leaves the last view where it is: what comes next goes below it.
func (s *Screen) Keep() { s.frame = nil }

// Close gives the terminal its cursor back. It is idempotent.
func (s *Screen) Close() {
	if s.size != nil {
		fmt.Fprint(s.out, "\x1b[?25h")
	}
}

func (s *Screen) log(v View) {
	if s.any && v.Elapsed-s.last < every {
		return
	}
	s.any, s.last = true, v.Elapsed
	for _, line := range Plain(v) {
		fmt.Fprintln(s.out, line)
	}
}

// paint writes lines over the last frame, and a frame below them, in one piece:
// line over line, so that nothing flickers.
func (s *Screen) paint(said, frame []string) {
	var b strings.Builder
	b.WriteString("\x1b[?25l")
	if n := len(s.frame); n > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", n)
	}
	for _, lines := range [][]string{said, frame} {
		for _, line := range lines {
			b.WriteString(line + "\x1b[K\n")
		}
	}
	b.WriteString("\x1b[J")
	s.frame = frame
	fmt.Fprint(s.out, b.String())
}
