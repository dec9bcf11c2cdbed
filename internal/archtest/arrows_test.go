package archtest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// ranks order the packages from the ground up: a package imports what lies
// strictly below it, and its own subpackages. The longest prefix counts.
var ranks = map[string]int{
	"internal/callers":  0,
	"internal/clock":    0,
	"internal/backoff":  0,
	"internal/pgserver": 0,
	"internal/session":  5,
	"internal/migrate":  5,
	"internal/pgtest":   5,
	"kiroku":            10,
	"lease":             10,
	"internal/outcome":  15,
	"shardpub":          20,
	"middleware":        30,
	"router":            40,
	"examples":          50,
	"cmd":               50,
	"integration":       50,
	"internal/bench":    45,
	"internal/archtest": 50,
}

// library are the packages that users compile into their programs.
var library = []string{"kiroku", "lease", "shardpub", "middleware", "router", "internal/outcome", "internal/session", "internal/migrate", "internal/backoff", "internal/callers", "internal/clock"}

const (
	watermill = "github.com/ThreeDotsLabs/watermill"
	pgx       = "github.com/jackc/pgx"
)

// denials say what a package may not import itself although its rank would
// let it, by prefix.
var denials = []struct {
	from, to []string
	why      string
}{
	{[]string{"middleware"}, []string{module + "/lease", pgx}, "middleware sees deliveries only and reaches the database through shardpub"},
	{[]string{"internal/outcome"}, []string{module + "/internal", module + "/lease"}, "an outcome knows kiroku only"},
	{library, []string{module + "/internal/pgserver", module + "/internal/pgtest"}, "a library starts no server"},
	{[]string{"shardpub", "middleware", "router", "kiroku", "lease", "internal", "cmd"}, []string{"log"}, "use log/slog"},
	{[]string{""}, []string{"math/rand", "github.com/pkg/errors", "github.com/lib/pq", "github.com/stretchr/testify"}, "there is a better way: math/rand/v2, errors, pgx, testing"},
}

// closures say what a package may not depend on, not even through others.
var closures = []struct {
	from, to []string
	why      string
}{
	{[]string{"kiroku", "lease", "internal/callers", "internal/clock", "internal/backoff", "internal/session", "internal/migrate", "internal/pgserver", "internal/pgtest"}, []string{watermill}, "what lies below shardpub knows nothing of Watermill"},
}

// within reports whether path is prefix or lies below it.
func within(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
	})
}

// place returns the entry of ranks that a package falls under.
func place(name string) (entry string, rank int, ok bool) {
	for prefix, r := range ranks {
		if within(name, []string{prefix}) && len(prefix) >= len(entry) {
			entry, rank, ok = prefix, r, true
		}
	}
	return entry, rank, ok
}

// arrowFaults judges what one package imports. Tests of a package may also
// use what only tests may.
func arrowFaults(name string, imports []string, test bool) []string {
	entry, rank, ok := place(name)
	if !ok {
		return []string{name + " has no rank: say in ranks where it belongs"}
	}
	var faults []string
	for _, path := range imports {
		other := below(path)
		if other == "" {
			continue
		}
		if test && within(other, []string{"internal/pgtest", "internal/pgserver"}) {
			continue
		}
		otherEntry, otherRank, _ := place(other)
		if otherRank >= rank && otherEntry != entry {
			faults = append(faults, fmt.Sprintf("%s imports %s, which is not below it", name, other))
		}
	}
	return faults
}

// denialFaults judges what the code of one package imports itself.
func denialFaults(name string, imports []string) []string {
	var faults []string
	for _, d := range denials {
		for _, path := range imports {
			if within(name, d.from) && within(path, d.to) && !within(path, []string{"math/rand/v2"}) {
				faults = append(faults, fmt.Sprintf("%s imports %s: %s", name, path, d.why))
			}
		}
	}
	for _, path := range imports {
		if within(name, []string{"examples"}) && within(path, []string{module + "/internal"}) && below(path) != "internal/pgserver" {
			faults = append(faults, fmt.Sprintf("%s imports %s: an example shows what users can write", name, path))
		}
	}
	return faults
}

// testOnlyFaults judges a package that helps tests: only tests import it.
func testOnlyFaults(p listed, all []listed) []string {
	if !slices.Contains(p.Imports, "testing") {
		return nil
	}
	var faults []string
	for i := range all {
		other := &all[i]
		if slices.Contains(other.Imports, p.ImportPath) && !slices.Contains(other.Imports, "testing") {
			faults = append(faults, fmt.Sprintf("%s imports %s, which imports testing: tests only", other.name(), p.name()))
		}
	}
	if within(p.name(), library) || p.Name == "main" {
		faults = append(faults, p.name()+" imports testing: tests only")
	}
	return faults
}

func TestArrowsPointDown(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		faults := arrowFaults(p.name(), p.Imports, false)
		faults = append(faults, arrowFaults(p.name(), p.TestImports, true)...)
		if _, rank, _ := place(p.name()); rank < ranks["shardpub"] {
			// Above, an external test may look at its package from where users
			// stand.
			faults = append(faults, arrowFaults(p.name(), p.XTestImports, true)...)
		}
		faults = append(faults, denialFaults(p.name(), p.Imports)...)
		faults = append(faults, testOnlyFaults(p, packages(t))...)
		for _, f := range faults {
			t.Error(f)
		}
	}
}

func TestNothingBelowShardpubDependsOnWatermill(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, c := range closures {
			for _, path := range p.Deps {
				if within(p.name(), c.from) && within(path, c.to) {
					t.Errorf("%s depends on %s: %s", p.name(), path, c.why)
				}
			}
		}
	}
}

func TestPlantedArrowsAreReported(t *testing.T) {
	t.Parallel()
	tests := []struct {
		from, to string
		test, ok bool
	}{
		{"lease", module + "/kiroku", false, false},
		{"kiroku", module + "/lease", false, false},
		{"lease", module + "/internal/clock", false, true},
		{"shardpub", module + "/lease", false, true},
		{"shardpub", module + "/router", false, false},
		{"shardpub", module + "/shardpub/sql", false, true},
		{"middleware", module + "/lease", false, false},
		{"middleware", "github.com/jackc/pgx/v5", false, false},
		{"middleware", module + "/internal/outcome", false, true},
		{"internal/outcome", module + "/kiroku", false, true},
		{"internal/outcome", module + "/lease", false, false},
		{"internal/outcome", module + "/internal/clock", false, false},
		{"router", module + "/internal/pgserver", false, false},
		{"router", module + "/internal/pgtest", false, false},
		{"router", "math/rand", false, false},
		{"router", "math/rand/v2", false, true},
		{"kiroku", module + "/internal/pgtest", true, true},
		{"kiroku", module + "/shardpub", true, false},
		{"examples/quickstart", module + "/internal/pgserver", false, true},
		{"examples/quickstart", module + "/internal/session", false, false},
		{"somewhere/new", "fmt", false, false},
	}
	for _, tt := range tests {
		faults := arrowFaults(tt.from, []string{tt.to}, tt.test)
		if !tt.test {
			faults = append(faults, denialFaults(tt.from, []string{tt.to})...)
		}
		if (len(faults) == 0) != tt.ok {
			t.Errorf("%s → %s (test %v): got %q, want ok = %v", tt.from, tt.to, tt.test, faults, tt.ok)
		}
	}
}

func TestPlantedTestHelpersAreReported(t *testing.T) {
	t.Parallel()
	helper := listed{ImportPath: module + "/examples/x/fixture", Name: "fixture", Imports: []string{"testing"}}
	tests := []struct {
		name string
		p    listed
		by   listed
		ok   bool
	}{
		{"a helper of tests", helper, listed{ImportPath: module + "/examples/x", XTestImports: []string{helper.ImportPath}}, true},
		{"a helper of a helper", helper, listed{ImportPath: module + "/examples/y", Imports: []string{helper.ImportPath, "testing"}}, true},
		{"a helper in a program", helper, listed{ImportPath: module + "/examples/x", Imports: []string{helper.ImportPath}}, false},
		{"the library", listed{ImportPath: module + "/router", Imports: []string{"testing"}}, listed{}, false},
	}
	for _, tt := range tests {
		if got := testOnlyFaults(tt.p, []listed{tt.p, tt.by}); (len(got) == 0) != tt.ok {
			t.Errorf("%s: got %q, want ok = %v", tt.name, got, tt.ok)
		}
	}
}
