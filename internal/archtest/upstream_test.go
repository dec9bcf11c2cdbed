package archtest_test

import (
	"errors"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	backticked = regexp.MustCompile("`([^`]+)`")
	qualified  = regexp.MustCompile(`^\(?\*?([a-z][a-z0-9]*)\.([A-Z]\w*)\)?((?:\.[A-Za-z]\w*)*)(?:\(.*\))?$`)
	testName   = regexp.MustCompile(`^(?:([a-z][a-z0-9]*)\.)?((?:Test|Fuzz|Example|Benchmark)[A-Z0-9_]\w*)(?:/.*)?$`)

	number      = regexp.MustCompile(`\b([STLRP])-(\d[0-9A-F]?)\b`)
	numberRange = regexp.MustCompile(`\b([STLRP])-(\d[0-9A-F]?)\s*(?:–|…|\.\.\.?|to)\s*(?:([STLRP])-)?(\d[0-9A-F]?)\b`)
	caseNumber  = regexp.MustCompile(`\b[Cc]ases? (\d+)\b`)
	inTestName  = regexp.MustCompile(`(?:^Test|^Fuzz|_)([STLRP])(\d[0-9A-F]?)(?:[A-Z_]|$)`)
)

// row is a row of one of the document's tables.
type row struct {
	line  int
	cells []string
}

// rows returns the rows of the tables of a Markdown document, without their
// heads.
func rows(doc string) []row {
	var out []row
	lines := strings.Split(doc, "\n")
	for i, l := range lines {
		l = strings.TrimSpace(l)
		head := i+1 < len(lines) && isRule(lines[i+1])
		if !strings.HasPrefix(l, "|") || isRule(l) || head {
			continue
		}
		out = append(out, row{line: i + 1, cells: cells(l)})
	}
	return out
}

// isRule reports whether a line is the one between a table's head and body.
func isRule(l string) bool {
	l = strings.TrimSpace(l)
	return strings.HasPrefix(l, "|") && strings.Contains(l, "-") && strings.Trim(l, "|-: ") == ""
}

// cells splits a row at the bars that are neither escaped nor in backticks.
func cells(l string) []string {
	l = strings.TrimSuffix(strings.TrimPrefix(l, "|"), "|")
	var out []string
	var cell strings.Builder
	code := false
	for i, r := range l {
		switch {
		case r == '`':
			code = !code
		case r == '|' && !code && (i == 0 || l[i-1] != '\\'):
			out = append(out, strings.TrimSpace(cell.String()))
			cell.Reset()
			continue
		}
		cell.WriteRune(r)
	}
	return append(out, strings.TrimSpace(cell.String()))
}

// normal spells a number one way: P-1 and P-01 are the same.
func normal(letter, digits string) string {
	if d := strings.TrimLeft(digits, "0"); d != "" {
		digits = d
	}
	return letter + "-" + digits
}

// numbersIn returns the numbers that a text mentions.
func numbersIn(text string) []string {
	var out []string
	for _, m := range number.FindAllStringSubmatch(text, -1) {
		out = append(out, normal(m[1], m[2]))
	}
	for _, m := range caseNumber.FindAllStringSubmatch(text, -1) {
		out = append(out, "case "+m[1])
	}
	return out
}

// covered returns the numbers that the first cell of a row stands for, ranges
// filled in. Numbers count in sixteens, so a range of tens also covers some
// that do not exist.
func covered(cell string) []string {
	out := numbersIn(cell)
	for _, m := range numberRange.FindAllStringSubmatch(cell, -1) {
		if m[3] != "" && m[3] != m[1] {
			continue
		}
		from, _ := strconv.ParseInt(m[2], 16, 32)
		to, _ := strconv.ParseInt(m[4], 16, 32)
		for n := from; n <= to; n++ {
			out = append(out, normal(m[1], fmt.Sprintf("%X", n)))
		}
	}
	return out
}

// nameFaults judges the names in the tables of a document.
func nameFaults(doc string, t tree) []string {
	var faults []string
	for _, r := range rows(doc) {
		for col, cell := range r.cells {
			for _, m := range backticked.FindAllStringSubmatch(cell, -1) {
				if f := nameFault(m[1], col == 1 || col == 2, t); f != "" {
					faults = append(faults, fmt.Sprintf("line %d: %s", r.line, f))
				}
			}
		}
	}
	return faults
}

// nameFault judges one name in backticks. In the columns "ours" and "test" a
// package that nobody knows is a fault too.
func nameFault(name string, ours bool, t tree) string {
	if m := testName.FindStringSubmatch(name); m != nil {
		full := m[2]
		if m[1] != "" {
			full = m[1] + "." + m[2]
		}
		if !t.has(full) {
			return "there is no test " + full
		}
		return ""
	}
	m := qualified.FindStringSubmatch(name)
	if m == nil {
		return ""
	}
	switch full := m[1] + "." + m[2] + m[3]; {
	case t.ours[m[1]] && !t.has(full):
		return "there is no " + full
	case ours && !t.ours[m[1]] && !t.imported[m[1]]:
		return "there is no package " + m[1]
	}
	return ""
}

// used returns the numbers that names and comments of the sources mention,
// each with a place.
func used(all []source) map[string]string {
	out := map[string]string{}
	note := func(place, text string) {
		for _, n := range numbersIn(text) {
			if _, ok := out[n]; !ok {
				out[n] = place
			}
		}
	}
	for _, s := range all {
		if s.file == nil {
			note(s.path, strings.Join(sqlComment.FindAllString(s.text, -1), "\n"))
			continue
		}
		for _, group := range s.file.Comments {
			// Text joins the lines, so a number is found across a break.
			note(fmt.Sprintf("%s:%d", s.path, line(group)), strings.ReplaceAll(group.Text(), "\n", " "))
		}
		if !s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, m := range inTestName.FindAllStringSubmatch(fn.Name.Name, -1) {
				note(fmt.Sprintf("%s:%d", s.path, line(fn)), m[1]+"-"+m[2])
			}
		}
		literals(s.file, func(n ast.Node, text string) { note(fmt.Sprintf("%s:%d", s.path, line(n)), text) })
	}
	return out
}

// rowFaults lists the numbers in use that have no row.
func rowFaults(doc string, all []source) []string {
	have := map[string]bool{}
	for _, r := range rows(doc) {
		for _, n := range covered(r.cells[0]) {
			have[n] = true
		}
	}
	var faults []string
	for n, place := range used(all) {
		if !have[n] {
			faults = append(faults, fmt.Sprintf("%s (%s) has no row", n, place))
		}
	}
	slices.Sort(faults)
	return faults
}

const upstream = "docs/UPSTREAM.md"

func TestUpstreamDocumentNamesThingsThatExist(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(upstream)))
	if errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is missing", upstream)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(rows(string(doc))) == 0 {
		t.Fatalf("%s has no table", upstream)
	}
	all := withoutSelf(sources(t))
	for _, f := range nameFaults(string(doc), newTree(all)) {
		t.Errorf("%s: %s", upstream, f)
	}
	for _, f := range rowFaults(string(doc), all) {
		t.Errorf("%s: %s", upstream, f)
	}
}

// withoutSelf leaves this package out: its fixtures name what does not exist.
func withoutSelf(all []source) []source {
	return slices.DeleteFunc(slices.Clone(all), func(s source) bool { return s.pkg() == "internal/archtest" })
}

func TestFaultsOfAnUpstreamDocumentAreReported(t *testing.T) {
	t.Parallel()
	all, err := readTree(filepath.Join("testdata", "tree"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		doc, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(doc)
	}
	good := read("good.md")
	if got := append(nameFaults(good, newTree(all)), rowFaults(good, all)...); len(got) != 0 {
		t.Errorf("the good document has faults: %q", got)
	}
	bad := read("bad.md")
	wantNames := []string{
		"line 3: there is no mill.Gone",
		"line 4: there is no mill.Blade.Depth",
		"line 5: there is no test TestNothing",
		"line 6: there is no package brook",
	}
	if got := nameFaults(bad, newTree(all)); !slices.Equal(got, wantNames) {
		t.Errorf("names: got %q, want %q", got, wantNames)
	}
	wantRows := []string{"L-D (wheel_test.go:13) has no row", "P-1 (wheel.go:6) has no row", "P-7 (wheel.go:6) has no row", "S-2A (wheel_test.go:8) has no row", "T-21 (wheel.sql) has no row", "case 12 (wheel_test.go:12) has no row"}
	if got := rowFaults(bad, all); !slices.Equal(got, wantRows) {
		t.Errorf("rows: got %q, want %q", got, wantRows)
	}
}
