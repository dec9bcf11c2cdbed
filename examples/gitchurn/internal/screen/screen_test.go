package screen_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/screen"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// middle is a run with a worker killed a moment ago.
func middle() screen.View {
	churn := screen.Map{Subscription: "churn"}
	for i := range 12 {
		churn.Buckets = append(churn.Buckets, screen.Bucket{Owner: i%3 + 1, Done: float64(40+i) / 100})
	}
	churn.Buckets[11] = screen.Bucket{Done: 1}
	return screen.View{
		Task: "handle", Done: 14_310, Total: 30_402, Unit: "events", Rate: 3120.4, Elapsed: 5200 * time.Millisecond,
		Workers: []screen.Worker{
			{Number: 1, PID: 4101, State: "running", Alive: true, Buckets: 4},
			{Number: 2, PID: 4102, State: "killed 1.2 s ago", Buckets: 4},
			{Number: 3, PID: 4103, State: "running", Alive: true, Buckets: 3},
			{Number: 4, PID: 41880, State: "running", Alive: true},
		},
		Maps: []screen.Map{churn, {Subscription: "revenue", Buckets: churn.Buckets[:5]}},
	}
}

func hottest() []screen.File {
	return []screen.File{
		{Path: "README.md", Commits: 1312, Added: 120_044, Deleted: 98_120},
		{Path: strings.Repeat("a/long/way/down/", 9) + "to/the/file.go", Commits: 7, Added: 1, Deleted: 0},
	}
}

func verdict(lost string, bad bool) []screen.Finding {
	return []screen.Finding{
		{Name: "events", Value: "30,402", Notes: []string{"18,402 file changes and 12,000 order lines"}},
		{Name: "lost", Value: lost, Bad: bad, Notes: []string{"1,911 files compared, row by row", "\"a\" is missing", "\"b\" is missing"}},
		{Name: "failover", Value: "3.4 s"},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

func text(lines []string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }

func TestFramesLookAsDrawn(t *testing.T) {
	t.Parallel()
	unknown := screen.View{Task: "import", Done: 1200, Unit: "changes"}
	for name, lines := range map[string][]string{
		"frame":         screen.Frame(middle(), screen.Style{Width: 100, Height: 40}),
		"frame-color":   screen.Frame(middle(), screen.Style{Width: 100, Height: 40, Color: true}),
		"frame-start":   screen.Frame(screen.View{Task: "start", Unit: "PostgreSQL"}, screen.Style{Width: 80, Height: 24}),
		"plain-start":   screen.Plain(screen.View{Task: "start", Unit: "PostgreSQL"}),
		"frame-80":      screen.Frame(middle(), screen.Style{Width: 80, Height: 24}),
		"frame-narrow":  screen.Frame(middle(), screen.Style{Width: 50, Height: 14, Color: true}),
		"frame-unknown": screen.Frame(unknown, screen.Style{Width: 80, Height: 24}),
		"plain":         screen.Plain(middle()),
		"plain-unknown": screen.Plain(unknown),
		"hottest":       screen.Hottest(hottest(), screen.Style{Width: 80}),
		"verdict":       screen.Verdict(verdict("0", false), screen.Style{Width: 80}),
		"verdict-color": screen.Verdict(verdict("3", true), screen.Style{Width: 80, Color: true}),
	} {
		golden(t, name, text(lines))
	}
}

func TestTerminalIsRedrawnInPlaceAndLinesStayAboveIt(t *testing.T) {
	t.Parallel()
	for name, color := range map[string]bool{"terminal": false, "terminal-color": true} {
		var out bytes.Buffer
		s := screen.Terminal(&out, func() (int, int, bool) { return 60, 24, true }, color)
		v := screen.View{Task: "handle", Total: 10, Unit: "events"}
		s.Draw(v)
		v.Done = 5
		s.Draw(v)
		s.Say("three workers")
		s.Tell("worker 2 was killed")
		s.Tell("worker 4 was started")
		s.Keep()
		s.Say("the end")
		s.Close()
		golden(t, name, out.Bytes())
	}
}

func TestWithoutColorThereIsNoColorCode(t *testing.T) {
	t.Parallel()
	for _, lines := range [][]string{
		screen.Frame(middle(), screen.Style{Width: 100, Height: 40}), screen.Plain(middle()),
		screen.Hottest(hottest(), screen.Style{Width: 80}), screen.Verdict(verdict("1", true), screen.Style{Width: 80}),
		screen.Title("suisha", "git churn", screen.Style{}),
		{screen.Fact("database", "PostgreSQL", screen.Style{})},
	} {
		if s := strings.Join(lines, "\n"); strings.Contains(s, "\x1b") {
			t.Errorf("got %q", s)
		}
	}
}

func TestLogGetsAViewEveryTwoSecondsAndNoCursorCodes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := screen.Log(&out)
	for i := range 50 {
		s.Draw(screen.View{Task: "handle", Done: int64(i), Total: 50, Unit: "events", Elapsed: time.Duration(i) * 100 * time.Millisecond})
	}
	s.Say("done")
	s.Clear()
	s.Close()
	if got := out.String(); strings.Count(got, "\n") != 4 || strings.Contains(got, "\x1b") {
		t.Errorf("got %q", got)
	}
}

func TestFrameFitsEveryTerminal(t *testing.T) {
	t.Parallel()
	for width := range 130 {
		for _, height := range []int{1, 2, 10, 50} {
			lines := screen.Frame(middle(), screen.Style{Width: width, Height: height})
			if len(lines) >= max(height, 1) && len(lines) > 0 {
				t.Fatalf("%d lines on %d", len(lines), height)
			}
			for _, l := range lines {
				if utf8.RuneCountInString(l) > width {
					t.Fatalf("%q on %d", l, width)
				}
			}
		}
	}
}

func ExampleCount() {
	fmt.Println(screen.Count(0), screen.Count(999), screen.Count(1_000), screen.Count(-1_234_567))
	fmt.Println(screen.Counted(1, "bucket", "buckets"), screen.Counted(12, "bucket", "buckets"))
	// Output:
	// 0 999 1,000 -1,234,567
	// 1 bucket 12 buckets
}

func ExampleFit() {
	fmt.Println(screen.Fit("short.go", 20))
	fmt.Println(screen.Fit("internal/very/deep/directory/file.go", 20))
	// Output:
	// short.go
	// interna…tory/file.go
}
