package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// source is one file of ours.
type source struct {
	// path is relative to the module, with slashes.
	path string
	text string
	// file is nil for what is not Go.
	file *ast.File
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// pkg is the directory of the file below the module.
func (s source) pkg() string { return filepath.ToSlash(filepath.Dir(s.path)) }

var fileSet = token.NewFileSet()

// line returns where a node is, for messages.
func line(n ast.Node) int { return fileSet.Position(n.Pos()).Line }

var sourcesOnce = sync.OnceValues(func() ([]source, error) { return readTree(root) })

// sources returns the Go and SQL files of the tree.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := sourcesOnce()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// readTree reads and parses the files below dir.
func readTree(dir string) ([]source, error) {
	var all []source
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			skip := path != dir && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == "bin")
			if skip {
				return filepath.SkipDir
			}
			return nil
		}
		ext := filepath.Ext(path)
		if ext != ".go" && ext != ".sql" {
			return nil
		}
		s, err := readSource(dir, path)
		all = append(all, s)
		return err
	})
	return all, err
}

func readSource(dir, path string) (source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return source{}, err
	}
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return source{}, err
	}
	s := source{path: filepath.ToSlash(rel), text: string(text)}
	if filepath.Ext(path) == ".go" {
		s.file, err = parser.ParseFile(fileSet, path, text, parser.ParseComments|parser.SkipObjectResolution)
	}
	return s, err
}

// parse makes a source of a piece of Go, for tests of the rules themselves.
func parse(t *testing.T, path, text string) source {
	t.Helper()
	f, err := parser.ParseFile(fileSet, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{path: path, text: text, file: f}
}

// calls returns the selectors of imported packages in a file, as
// "import/path.Name", each with the node that uses it.
func calls(f *ast.File) map[string]ast.Node {
	names := map[string]string{}
	for _, imp := range f.Imports {
		path := strings.Trim(imp.Path.Value, `"`)
		name := filepath.Base(path)
		if imp.Name != nil {
			name = imp.Name.Name
		}
		names[name] = path
	}
	out := map[string]ast.Node{}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && names[x.Name] != "" {
			out[names[x.Name]+"."+sel.Sel.Name] = sel
		}
		return true
	})
	return out
}

// literals calls f with each string literal of a file, unquoted.
func literals(file *ast.File, f func(n ast.Node, text string)) {
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			f(lit, unquote(lit.Value))
		}
		return true
	})
}
