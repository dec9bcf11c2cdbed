package history_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/history"
)

func parse(s string) (out []history.Change, err error) {
	for c, err := range history.Parse(strings.NewReader(s)) {
		if err != nil {
			return out, err
		}
		out = append(out, c)
	}
	return out, nil
}

func TestBrokenOutputIsAnErrorNotAGuess(t *testing.T) {
	t.Parallel()
	const header = "commit abc 1700000000 Ada\x00"
	for name, s := range map[string]string{
		"cut off in a record":      header + "\n1\t0\tpa",
		"cut off in a header":      "commit abc",
		"cut off in a rename":      header + "\n0\t0\t\x00old\x00",
		"rename without a path":    header + "\n0\t0\t\x00\x00new\x00",
		"record without a commit":  "1\t0\tpath\x00",
		"header without an author": "commit abc\x00",
		"record without a path":    header + "\n1\t0\x00",
		"no number":                header + "\none\t0\tpath\x00",
		"half binary":              header + "\n-\t0\tpath\x00",
		"negative":                 header + "\n-1\t0\tpath\x00",
		"too large":                header + "\n99999999999999999999\t0\tpath\x00",
		"empty record":             header + "\x00",
	} {
		if got, err := parse(s); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestTimesThatNoCalendarShowsAreLeftOut(t *testing.T) {
	t.Parallel()
	for _, seconds := range []string{"", "-1", "253402300800", "99999999999999999999", "x"} {
		got, err := parse("commit abc " + seconds + " Ada\x00\n1\t0\tp\x00")
		if err != nil || len(got) != 1 || !got[0].At.IsZero() {
			t.Errorf("%q: got %v, %v", seconds, got, err)
		}
	}
}

// FuzzParse holds that the parser never panics, never makes up a change, and
// reads back what is written in git's form.
func FuzzParse(f *testing.F) {
	f.Add([]byte("commit abc 1700000000 Ada\x00\n1\t0\tpath\x00-\t-\tbin\x00commit def 1 B\x00commit 012 2 C\x00\n0\t0\t\x00old\x00new\x00"))
	f.Add([]byte("commit abc 1 A\x00\n1\t0\t\n\x00"))
	f.Add([]byte("\n\x00\t\t\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := parse(string(data))
		for _, c := range first {
			if c.Path == "" || c.Commit == "" || c.Added < 0 || c.Deleted < 0 || strings.Contains(c.Path, "\x00") {
				t.Fatalf("made up %+v", c)
			}
		}
		if n := bytes.Count(data, []byte{0}); len(first) > n {
			t.Fatalf("%d changes out of %d tokens", len(first), n)
		}
		if err != nil {
			return
		}
		again, err := parse(write(first))
		if err != nil || !slices.Equal(first, again) {
			t.Fatalf("wrote %+v, read %+v, %v", first, again, err)
		}
	})
}

// write prints changes as git would.
func write(changes []history.Change) string {
	var b strings.Builder
	for i, c := range changes {
		if i == 0 || changes[i-1].Commit != c.Commit || changes[i-1].Author != c.Author || changes[i-1].At != c.At {
			seconds := ""
			if c.At != (time.Time{}) {
				seconds = fmt.Sprint(c.At.Unix())
			}
			fmt.Fprintf(&b, "commit %s %s %s\x00\n", c.Commit, seconds, c.Author)
		}
		added, deleted := fmt.Sprint(c.Added), fmt.Sprint(c.Deleted)
		if c.Binary {
			added, deleted = "-", "-"
		}
		if len(c.Path)%2 == 0 {
			fmt.Fprintf(&b, "%s\t%s\t%s\x00", added, deleted, c.Path)
		} else {
			fmt.Fprintf(&b, "%s\t%s\t\x00old\x00%s\x00", added, deleted, c.Path)
		}
	}
	return b.String()
}
