// Package archtest holds the shape of the house: who may import whom, what a
// library may call, where SQL lives, and that docs/UPSTREAM.md speaks of
// things that exist.
package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/suisha-go/suisha"

// root is the module's directory as seen from this package.
var root = filepath.Join("..", "..")

// listed is what go list knows about a package.
type listed struct {
	ImportPath, Dir, Name              string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

// name is the package's path below the module.
func (p listed) name() string { return below(p.ImportPath) }

// below returns the part of an import path below the module, "" when the
// package is not ours.
func below(path string) string {
	rest, _ := strings.CutPrefix(path, module+"/")
	if rest == path {
		return ""
	}
	return rest
}

var packagesOnce = sync.OnceValues(func() ([]listed, error) {
	cmd := exec.Command("go", "list", "-deps=false", "-json=ImportPath,Dir,Name,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

// packages returns the module's own packages.
func packages(t *testing.T) []listed {
	t.Helper()
	all, err := packagesOnce()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("go list knows only %d packages", len(all))
	}
	return all
}
