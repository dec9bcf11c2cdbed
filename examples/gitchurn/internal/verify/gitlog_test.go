package verify_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/fixture"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/history"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/verify"
)

// imported adds up what the importer reads.
func imported(t *testing.T, dir string, limit int) (*history.Repository, map[string]verify.Totals) {
	t.Helper()
	r, err := history.Open(t.Context(), dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]verify.Totals{}
	for c, err := range r.Changes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		sum := out[c.Path]
		sum.Commits, sum.Added, sum.Deleted = sum.Commits+1, sum.Added+c.Added, sum.Deleted+c.Deleted
		out[c.Path] = sum
	}
	return r, out
}

func TestBothReadersAgreeOnEveryOddName(t *testing.T) {
	t.Parallel()
	dir := fixture.Odd(t)
	for _, limit := range []int{0, 1, 4, 5, 100} {
		r, want := imported(t, dir, limit)
		got, err := verify.Expected(t.Context(), dir, r.Head, limit)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Errorf("limit %d: verifier %+v, importer %+v", limit, got, want)
		}
	}
}

func TestCountsAreThoseOfTheFixture(t *testing.T) {
	t.Parallel()
	dir := fixture.Odd(t)
	got, err := verify.Expected(t.Context(), dir, "main", 0)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]verify.Totals{
		"a.txt":           {Commits: 2, Added: 40, Deleted: 2},
		fixture.Renamed:   {Commits: 1},
		fixture.Both:      {Commits: 1, Added: 1},
		fixture.Binary:    {Commits: 2},
		fixture.Binary2:   {Commits: 1},
		fixture.Latin1:    {Commits: 2, Added: 3, Deleted: 1},
		fixture.Escaped:   {Commits: 1, Added: 1},
		fixture.Replaced:  {Commits: 1, Added: 2},
		fixture.Newline:   {Commits: 1, Added: 2},
		fixture.Quotes:    {Commits: 2, Added: 1, Deleted: 1},
		fixture.Arrow:     {Commits: 1, Added: 1},
		fixture.Long:      {Commits: 1, Added: 4},
		fixture.Symlink:   {Commits: 2, Added: 3, Deleted: 1},
		fixture.Unchanged: {Commits: 2, Added: 1},
		"side.txt":        {Commits: 1, Added: 1},
	} {
		if got[path] != want {
			t.Errorf("%q: got %+v, want %+v", path, got[path], want)
		}
	}
	if _, ok := got["only-in-the-merge.txt"]; ok {
		t.Error("a merge commit was counted")
	}
}

func TestBothReadersAgreeOnThisClone(t *testing.T) {
	t.Parallel()
	if _, err := history.Open(t.Context(), ".", 1); err != nil {
		t.Skip("these sources are no clone:", err)
	}
	r, want := imported(t, ".", 200)
	got, err := verify.Expected(t.Context(), ".", r.Head, 200)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("verifier has %d paths, importer %d, or their totals differ", len(got), len(want))
	}
}

func TestUnreadableHistoryIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := verify.Expected(t.Context(), fixture.Odd(t), strings.Repeat("0", 40), 0); err == nil {
		t.Error("a missing commit was read")
	}
	for name, s := range map[string]string{
		"count without a path":  "@abc\n\n1\t0\tpath\n",
		"path without a count":  "@abc\n\n:100644 100644 a b M\tpath\n",
		"two paths, one count":  "@abc\n\n:1 1 a b M\tp\n:1 1 a b M\tq\n1\t0\tp\n@def\n",
		"no path":               "@abc\n\n:100644 100644 a b M\n",
		"broken quotes":         "@abc\n\n:100644 100644 a b M\t\"path\n1\t0\t\"path\n",
		"no number":             "@abc\n\n:1 1 a b M\tp\nx\t0\tp\n",
		"negative":              "@abc\n\n:1 1 a b M\tp\n0\t-1\tp\n",
		"something else":        "@abc\nwarning\n",
		"longer than any line":  "@abc\n\n:1 1 a b M\t" + strings.Repeat("p", 2<<20) + "\n",
		"count of half a field": "@abc\n\n:1 1 a b M\tp\n1\t0\n",
	} {
		if got, err := verify.Tally(strings.NewReader(s)); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// FuzzTally holds that the verifier's parser never panics and counts no commit
// that no line of counts stands for.
func FuzzTally(f *testing.F) {
	f.Add("@abc\n\n:100644 100644 a b R100\told\t\"\\303\\274\"\n1\t2\told => new\n@def\n\n:1 1 a b M\tp\n-\t-\tp\n")
	f.Fuzz(func(t *testing.T, s string) {
		files, err := verify.Tally(strings.NewReader(s))
		if err != nil {
			return
		}
		var commits int64
		for path, sum := range files {
			if path == "" {
				t.Fatal("made up a path")
			}
			commits += sum.Commits
		}
		if lines := strings.Count(s, "\n") + 1; commits > int64(lines) {
			t.Fatalf("%d commits out of %d lines", commits, lines)
		}
	})
}
