package archtest_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	mostLines         = 300
	mostFunctionLines = 80
)

// forbidden are the calls that library code does not make.
var forbidden = []struct {
	in, calls []string
	why       string
}{
	{
		in:    []string{"lease", "shardpub"},
		calls: []string{"time.Now", "time.Since", "time.Until"},
		why:   "the local clock is read through internal/clock only; expiry is the database's",
	},
	{
		in:    library,
		calls: []string{"time.Sleep"},
		why:   "wait on a timer and the context",
	},
	{
		in:    library,
		calls: []string{"fmt.Print", "fmt.Printf", "fmt.Println", "os.Getenv", "os.LookupEnv", "os.Exit"},
		why:   "a library does not print, read the environment or exit",
	},
	{
		in:    library,
		calls: []string{"context.Background", "context.TODO"},
		why:   "take the caller's context; context.WithoutCancel outlives it",
	},
}

func unquote(lit string) string {
	s, err := strconv.Unquote(lit)
	if err != nil {
		return lit
	}
	return s
}

// callFaults judges what a file that is not a test calls.
func callFaults(s source) []string {
	var faults []string
	used := calls(s.file)
	for _, rule := range forbidden {
		if !within(s.pkg(), rule.in) {
			continue
		}
		for _, call := range rule.calls {
			if n, ok := used[call]; ok && !excused(s, n) {
				faults = append(faults, fmt.Sprintf("%s:%d uses %s: %s", s.path, line(n), call, rule.why))
			}
		}
	}
	return faults
}

// excused reports whether the line of a node tells the linter, and us, why it
// may make the call.
func excused(s source, n ast.Node) bool {
	text := strings.Split(s.text, "\n")[line(n)-1]
	_, why, ok := strings.Cut(text, "//nolint:forbidigo // ")
	return ok && why != ""
}

func TestLibraryMakesNoForbiddenCalls(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.file == nil || s.test() {
			continue
		}
		for _, f := range callFaults(s) {
			t.Error(f)
		}
	}
}

func TestPlantedCallsAreReported(t *testing.T) {
	t.Parallel()
	tests := []struct {
		path, imports, body string
		faults              int
	}{
		{"lease/keeper.go", `"time"`, "time.Now()", 1},
		{"lease/keeper.go", `clock "time"`, "clock.Since(clock.Time{})", 1},
		{"shardpub/sub/feed.go", `"time"`, "_ = time.Until", 1},
		{"kiroku/read.go", `"time"`, "time.Now()", 0},
		{"router/worker.go", `"context"`, "context.Background()", 1},
		{"examples/x/main.go", `"context"`, "context.Background()", 0},
		{"lease/keeper.go", `"time"`, "time.NewTimer(1)", 0},
		{"router/worker.go", `"context"`, "context.TODO() //nolint:forbidigo // ended by Close\n", 0},
		{"router/worker.go", `"context"`, "context.TODO() //nolint:forbidigo // \n", 1},
	}
	for _, tt := range tests {
		s := parse(t, tt.path, "package x\nimport "+tt.imports+"\nfunc f() { "+tt.body+" }\n")
		if got := callFaults(s); len(got) != tt.faults {
			t.Errorf("%s with %s: got %q, want %d faults", tt.path, tt.body, got, tt.faults)
		}
	}
}

func TestFilesAndFunctionsOfTheLibraryAreShort(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.file == nil || s.test() || within(s.pkg(), []string{"examples"}) {
			continue
		}
		if n := strings.Count(s.text, "\n"); n > mostLines {
			t.Errorf("%s has %d lines, more than %d", s.path, n, mostLines)
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := fileSet.Position(fn.End()).Line - line(fn) + 1; n > mostFunctionLines {
				t.Errorf("%s:%d: %s has %d lines, more than %d", s.path, line(fn), fn.Name.Name, n, mostFunctionLines)
			}
		}
	}
}

// skipAllowed is what the file of a test that may be skipped shows: it asks
// for a download, or for a long run.
var skipAllowed = regexp.MustCompile(`SUISHA_(TEST|SUITE)|testing\.Short\(\)`)

// skipKnown are the tests that have another reason.
var skipKnown = map[string]string{
	"TestBothReadersAgreeOnThisClone": "the sources may come without their history",
}

// A test without its server fails. It is skipped only on a wish of the person
// who runs it, and a fuzz function may pass over inputs.
func TestNoTestIsSkippedForWantOfAServer(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if !s.test() || within(s.pkg(), []string{"internal/archtest"}) {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || strings.HasPrefix(fn.Name.Name, "Fuzz") || skipKnown[fn.Name.Name] != "" {
				continue
			}
			body := s.text[offset(fn.Pos()):offset(fn.End())]
			for _, call := range []string{".Skip(", ".Skipf(", ".SkipNow("} {
				if strings.Contains(body, call) && !skipAllowed.MatchString(body) {
					t.Errorf("%s:%d: %s skips itself: let it fail, or say SUISHA_TEST_… or testing.Short", s.path, line(fn), fn.Name.Name)
				}
			}
		}
	}
}

func offset(p token.Pos) int { return fileSet.Position(p).Offset }

// Without a seed the ordinary test run proves nothing about a fuzz target.
func TestEveryFuzzTargetHasASeed(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "Fuzz") || fn.Type.Params.NumFields() != 1 {
				continue
			}
			if !strings.Contains(s.text[offset(fn.Pos()):offset(fn.End())], ".Add(") {
				t.Errorf("%s:%d: %s has no seed", s.path, line(fn), fn.Name.Name)
			}
		}
	}
}
