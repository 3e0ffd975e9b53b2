// Package apitest keeps the exported API of every package in testdata/api, so that a
// change of it shows in review, and counts its names. It has no code of its own.
package apitest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kitbag-go/kitbag"

// maxNames is how many constants, variables, types and functions a package may export.
const maxNames = 40

// over says why a package exports more than maxNames names.
var over = map[string]string{}

var update = flag.Bool("update", false, "write the golden files")

func TestAPI(t *testing.T) {
	golden := map[string]bool{}
	for _, p := range publicPackages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.Path(), module), "/")
		file := filepath.Join("testdata", "api", strings.ReplaceAll(name, "/", "_")+".txt")
		golden[file] = true
		t.Run(name, func(t *testing.T) {
			text := describe(p)
			compare(t, file, text)
			if hidden := regexp.MustCompile(`\S*/internal/\S*`).FindString(text); hidden != "" {
				t.Errorf("its API names %s, which nobody outside of the module can read or import", hidden)
			}
			n, why := len(exported(p.Scope())), over[name]
			if n > maxNames && why == "" {
				t.Errorf("%s exports %d names, more than %d: make some internal, methods or fields, or add it with a reason to the list over", name, n, maxNames)
			}
			if n <= maxNames && why != "" {
				t.Errorf("%s exports %d names: take it from the list over", name, n)
			}
		})
	}
	files, err := filepath.Glob("testdata/api/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if golden[f] {
			continue
		}
		if !*update {
			t.Errorf("%s is of no package; go test ./internal/apitest -update removes it", f)
		} else if err := os.Remove(f); err != nil {
			t.Error(err)
		}
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; go test ./internal/apitest -update writes it", err)
	}
	if got != string(want) {
		t.Errorf("the API is not that of %s:\n%sgo test ./internal/apitest -update writes what it is", file, changed(string(want), got))
	}
}

// changed lists the lines that only one of two texts has.
func changed(old, now string) string {
	var b strings.Builder
	was, is := slices.Collect(strings.Lines(old)), slices.Collect(strings.Lines(now))
	for _, line := range was {
		if !slices.Contains(is, line) {
			b.WriteString("- " + line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			b.WriteString("+ " + line)
		}
	}
	return b.String()
}

// A listed package is what go list says of one.
type listed struct {
	ImportPath, Name, Export, Dir string
	GoFiles                       []string
}

// list returns the packages of all modules that others can import, and the export files
// of these and of all that they import.
func list(t *testing.T) (pkgs []listed, export map[string]string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Name,Export,Dir,GoFiles", "work")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	export = map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		export[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, module+"/") && public(p.ImportPath) && p.Name != "main" && p.Export != "" {
			pkgs = append(pkgs, p)
		}
	}
	if len(pkgs) < 20 {
		t.Fatalf("found %d packages only; the test would check nothing", len(pkgs))
	}
	slices.SortFunc(pkgs, func(a, b listed) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return pkgs, export
}

// publicPackages returns the packages that others can import.
func publicPackages(t *testing.T) []*types.Package {
	t.Helper()
	all, export := list(t)
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(export[path])
	})
	var pkgs []*types.Package
	for _, l := range all {
		for _, f := range l.GoFiles { // so that go test does not reuse a result from before a change of them
			if _, err := os.Stat(filepath.Join(l.Dir, f)); err != nil {
				t.Fatal(err)
			}
		}
		p, err := imp.Import(l.ImportPath)
		if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs
}

// TestDocs checks that the documentation of a package begins with code that uses it, and
// leaves what it costs to bench.
func TestDocs(t *testing.T) {
	all, _ := list(t)
	for _, l := range all {
		var text string
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(l.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			text += f.Doc.Text()
		}
		head, _, _ := strings.Cut(text, "\n# ")
		if lines := strings.Split(head, "\n"); !strings.Contains(strings.Join(lines[:min(len(lines), 20)], "\n"), "\n\t") {
			t.Errorf("the documentation of %s does not begin with code that uses it", l.ImportPath)
		}
		if strings.Contains(text, "# What it costs") {
			t.Errorf("the documentation of %s says what it costs; move that to bench/COSTS.md", l.ImportPath)
		}
	}
}

func public(path string) bool { return !strings.Contains(path+"/", "/internal/") }

func exported(s *types.Scope) []string {
	return slices.DeleteFunc(s.Names(), func(name string) bool { return !token.IsExported(name) })
}

// describe returns the exported declarations of a package, sorted: constants with their
// values, types with their exported fields and methods.
func describe(p *types.Package) string {
	var b strings.Builder
	short := types.Qualifier(func(q *types.Package) string {
		switch {
		case q == p:
			return ""
		case !public(q.Path()):
			return q.Path()
		}
		return q.Name()
	})
	fmt.Fprintf(&b, "package %s // %d names\n", p.Name(), len(exported(p.Scope())))
	for _, name := range exported(p.Scope()) {
		switch obj := p.Scope().Lookup(name).(type) {
		case *types.Const:
			fmt.Fprintf(&b, "\nconst %s %s = %s\n", name, types.TypeString(obj.Type(), short), obj.Val().ExactString())
		case *types.TypeName:
			b.WriteString("\n")
			describeType(&b, obj, short)
		default:
			fmt.Fprintf(&b, "\n%s\n", types.ObjectString(obj, short))
		}
	}
	return b.String()
}

func describeType(b *strings.Builder, obj *types.TypeName, short types.Qualifier) {
	if obj.IsAlias() {
		b.WriteString(types.ObjectString(obj, short) + "\n")
		return
	}
	// The head of a type declaration, with type parameters, but not what it is made of.
	named := obj.Type().(*types.Named)
	head, _, _ := strings.Cut(types.ObjectString(obj, short), " struct{")
	switch u := named.Underlying().(type) {
	case *types.Struct:
		b.WriteString(head + " struct\n")
		describeFields(b, u, short)
	case *types.Interface:
		head, _, _ = strings.Cut(head, " interface{")
		b.WriteString(head + " interface\n")
		describeInterface(b, u, short)
		return
	default:
		b.WriteString(head + "\n")
	}
	methods := types.NewMethodSet(types.NewPointer(named))
	for m := range methods.Methods() {
		if fn := m.Obj().(*types.Func); fn.Exported() {
			sig := strings.TrimPrefix(types.TypeString(fn.Type(), short), "func")
			fmt.Fprintf(b, "\tfunc (%s) %s%s\n", receiver(fn, obj.Name()), fn.Name(), sig)
		}
	}
}

// receiver returns the receiver of a method of the type, which may be a promoted one.
func receiver(fn *types.Func, name string) string {
	if _, ok := fn.Signature().Recv().Type().(*types.Pointer); ok {
		return "*" + name
	}
	return name
}

func describeFields(b *strings.Builder, s *types.Struct, short types.Qualifier) {
	for i := range s.NumFields() {
		f := s.Field(i)
		if !f.Exported() {
			continue
		}
		name := f.Name() + " "
		if f.Embedded() {
			name = ""
		}
		fmt.Fprintf(b, "\t%s%s", name, types.TypeString(f.Type(), short))
		if tag := s.Tag(i); tag != "" {
			fmt.Fprintf(b, " `%s`", tag)
		}
		b.WriteString("\n")
	}
}

func describeInterface(b *strings.Builder, u *types.Interface, short types.Qualifier) {
	for e := range u.EmbeddedTypes() {
		fmt.Fprintf(b, "\t%s\n", types.TypeString(e, short))
	}
	closed := false
	for m := range u.ExplicitMethods() {
		if closed = closed || !m.Exported(); m.Exported() {
			fmt.Fprintf(b, "\t%s%s\n", m.Name(), strings.TrimPrefix(types.TypeString(m.Type(), short), "func"))
		}
	}
	if closed {
		b.WriteString("\t(others cannot implement it)\n")
	}
}
