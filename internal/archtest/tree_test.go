package archtest_test

import (
	"go/ast"
	"path"
	"strings"
)

// tree knows every name that the sources declare.
type tree struct {
	// names holds "pkg.Name", "pkg.Type.Member" and, for tests, "TestName".
	names map[string]bool
	// open holds "pkg.Type" of types whose members are not all in sight,
	// because they embed others.
	open map[string]bool
	// ours and imported hold package names.
	ours, imported map[string]bool
}

func newTree(all []source) tree {
	t := tree{names: map[string]bool{}, open: map[string]bool{}, ours: map[string]bool{}, imported: map[string]bool{}}
	for _, s := range all {
		if s.file == nil {
			continue
		}
		pkg := strings.TrimSuffix(s.file.Name.Name, "_test")
		if pkg != "main" {
			t.ours[pkg] = true
		}
		for _, imp := range s.file.Imports {
			t.imported[packageName(strings.Trim(imp.Path.Value, `"`))] = true
			if imp.Name != nil {
				t.imported[imp.Name.Name] = true
			}
		}
		for _, d := range s.file.Decls {
			t.add(pkg, d, s.test())
		}
	}
	return t
}

// packageName guesses the name from the path: the last element that is no
// major version.
func packageName(importPath string) string {
	base := path.Base(importPath)
	if len(base) > 1 && base[0] == 'v' && base[1] >= '0' && base[1] <= '9' {
		base = path.Base(path.Dir(importPath))
	}
	return base
}

func (t tree) add(pkg string, d ast.Decl, test bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			name = receiver(d.Recv.List[0].Type) + "." + name
		} else if test {
			t.names[name] = true
		}
		t.names[pkg+"."+name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			t.addSpec(pkg, spec)
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func (t tree) addSpec(pkg string, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, n := range spec.Names {
			t.names[pkg+"."+n.Name] = true
		}
	case *ast.TypeSpec:
		name := pkg + "." + spec.Name.Name
		t.names[name] = true
		switch typ := spec.Type.(type) {
		case *ast.StructType:
			t.addMembers(name, typ.Fields)
		case *ast.InterfaceType:
			t.addMembers(name, typ.Methods)
		default:
			// An alias or a type made of another shows that one's members.
			t.open[name] = true
		}
	}
}

func (t tree) addMembers(name string, list *ast.FieldList) {
	for _, f := range list.List {
		if len(f.Names) == 0 {
			t.open[name] = true
		}
		for _, n := range f.Names {
			t.names[name+"."+n.Name] = true
		}
	}
}

// has reports whether a name as documents write it exists.
func (t tree) has(name string) bool {
	if t.names[name] {
		return true
	}
	i := strings.LastIndexByte(name, '.')
	return i > 0 && t.open[name[:i]]
}
