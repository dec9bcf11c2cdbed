package history_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/suisha-go/suisha/examples/gitchurn/internal/fixture"
	"github.com/suisha-go/suisha/examples/gitchurn/internal/history"
)

func read(t *testing.T, dir string, limit int) (*history.Repository, []history.Change) {
	t.Helper()
	r, err := history.Open(t.Context(), dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	var out []history.Change
	for c, err := range r.Changes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return r, out
}

// change is what the fixture's author meant, without hash and time.
type change struct {
	commit         int // 0-based, merges not counted
	author, path   string
	added, deleted int64
	binary         bool
}

var odd = []change{
	{0, "Ada", "a.txt", 39, 0, false},
	{0, "Ada", "b.txt", 40, 0, false},
	{0, "Ada", fixture.Binary, 0, 0, true},
	{0, "Ada", fixture.Unchanged, 1, 0, false},
	{1, "O'Brien \"quoted\" 水", "a.txt", 1, 2, false},
	{1, "O'Brien \"quoted\" 水", fixture.Binary, 0, 0, true},
	{2, "Ada", fixture.Renamed, 0, 0, false},
	{3, "caf\uFFFD", fixture.Both, 1, 0, false},
	{4, "Ada", fixture.Newline, 2, 0, false},
	{4, "Ada", fixture.Quotes, 1, 0, false},
	{4, "Ada", fixture.Latin1, 3, 0, false},
	{4, "Ada", fixture.Escaped, 1, 0, false},
	{4, "Ada", fixture.Dash, 1, 0, false},
	{4, "Ada", fixture.Spaces, 1, 0, false},
	{4, "Ada", fixture.Arrow, 1, 0, false},
	{4, "Ada", fixture.Braces, 1, 0, false},
	{4, "Ada", fixture.Kanji, 1, 0, false},
	{4, "Ada", fixture.Replaced, 2, 0, false},
	{4, "Ada", fixture.Record, 1, 0, false},
	{4, "Ada", fixture.Header, 1, 0, false},
	{4, "Ada", fixture.Long, 4, 0, false},
	{6, "Grace", "side.txt", 1, 0, false},
	{7, "Ada", fixture.Unchanged, 0, 0, false},
	{7, "Ada", fixture.Symlink, 1, 0, false},
	{7, "Ada", fixture.Vendored, 1, 0, false},
	{8, "Ada", fixture.Binary2, 0, 0, true},
	{8, "Ada", fixture.Latin1, 0, 1, false},
	{8, "Ada", fixture.Symlink, 2, 1, false},
	{8, "Ada", fixture.Quotes, 0, 1, false},
}

func TestChangesAreWhatTheCommitsDidOldestFirst(t *testing.T) {
	t.Parallel()
	r, got := read(t, fixture.Odd(t), 0)
	if r.Commits != 9 || r.Shallow {
		t.Errorf("commits %d, shallow %v; want 9, false", r.Commits, r.Shallow)
	}
	var commits []string // in the order of their times
	at := map[string]time.Time{}
	for _, c := range got {
		if _, ok := at[c.Commit]; !ok {
			commits = append(commits, c.Commit)
		}
		at[c.Commit] = c.At
	}
	if !slices.IsSortedFunc(commits, func(a, b string) int { return at[a].Compare(at[b]) }) {
		t.Errorf("commits are not oldest first: %v", at)
	}
	left := slices.Clone(odd)
	for _, c := range got {
		i := slices.IndexFunc(left, func(w change) bool {
			minute := w.commit
			if minute > 6 {
				minute++ // the merge came between
			}
			return w.path == c.Path && w.author == c.Author && w.added == c.Added && w.deleted == c.Deleted &&
				w.binary == c.Binary && c.At.Unix() == int64(fixture.Epoch+60*minute) && len(c.Commit) == 40
		})
		if i < 0 {
			t.Errorf("unexpected change %+v", c)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, w := range left {
		t.Errorf("missing change %+v", w)
	}
}

func TestLimitKeepsTheNewestCommitsOldestFirst(t *testing.T) {
	t.Parallel()
	r, got := read(t, fixture.Odd(t), 2)
	if r.Commits != 2 || len(got) != 7 {
		t.Fatalf("%d commits, %d changes; want 2, 7", r.Commits, len(got))
	}
	if got[0].Path != fixture.Symlink || got[6].At.Before(got[0].At) {
		t.Errorf("first %q at %v, last at %v", got[0].Path, got[0].At, got[6].At)
	}
}

func TestUserConfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	dir := fixture.Odd(t)
	_, want := read(t, dir, 0)
	for key, value := range map[string]string{
		"diff.renames": "false", "core.quotePath": "false", "log.showRoot": "false", "color.ui": "always", "diff.external": "false",
		"log.showSignature": "true", "log.follow": "true", "i18n.logOutputEncoding": "ISO-8859-1", "diff.relative": "true", "format.pretty": "fuller",
	} {
		fixture.Git(t, dir, nil, "config", key, value)
	}
	if _, got := read(t, dir, 0); !slices.Equal(got, want) {
		t.Errorf("got %d changes, want %d, or others", len(got), len(want))
	}
}

func TestRepositoryWithoutCommitsHasNoChanges(t *testing.T) {
	t.Parallel()
	if r, got := read(t, fixture.New(t).Build(), 0); r.Head != "" || r.Commits != 0 || len(got) != 0 {
		t.Errorf("got %+v, %v", r, got)
	}
}

func TestShallowCloneSaysSo(t *testing.T) {
	t.Parallel()
	from, to := fixture.Odd(t), t.TempDir()
	fixture.Git(t, to, nil, "clone", "--quiet", "--bare", "--depth=1", "file://"+from, ".")
	r, got := read(t, to, 0)
	if !r.Shallow || r.Commits != 1 || len(got) == 0 {
		t.Errorf("got %+v, %d changes", r, len(got))
	}
}

func TestDirectoryWithoutRepositoryIsAnErrorWithGitsWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := history.Open(t.Context(), dir, 0); err == nil || !strings.Contains(err.Error(), "not a git repository") {
		t.Errorf("got %v", err)
	}
}

func TestReadingStopsWithTheLoop(t *testing.T) {
	t.Parallel()
	r, err := history.Open(t.Context(), fixture.Odd(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range r.Changes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("got %d", n)
	}
}

func TestMissingCommitIsAnError(t *testing.T) {
	t.Parallel()
	r := &history.Repository{Dir: fixture.Odd(t), Head: strings.Repeat("0", 40)}
	var last error
	for _, err := range r.Changes(t.Context()) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "bad object") {
		t.Errorf("got %v", last)
	}
}

func TestKeysAreShortValidDistinctAndReversible(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, path := range []string{
		fixture.Newline, fixture.Quotes, fixture.Latin1, fixture.Escaped, fixture.Dash, fixture.Spaces, fixture.Arrow, fixture.Kanji,
		fixture.Replaced, fixture.Long, fixture.Long + "x", strings.Repeat("水", 200), strings.Repeat("\xff", 4096), "%", "%25", "+", "\u202e",
	} {
		key, text := history.Key(path), history.Escape(path)
		if len(key) > 507 || !utf8.ValidString(key) || !utf8.ValidString(text) {
			t.Errorf("%q: key %q", path, key)
		}
		if back, err := url.PathUnescape(text); err != nil || back != path {
			t.Errorf("%q came back as %q, %v", path, back, err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q share the key %q", path, other, key)
		}
		seen[key] = path
	}
}
