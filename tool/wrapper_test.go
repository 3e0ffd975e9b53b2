package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// guarded judges its calls.
type guarded struct{ bare }

func (guarded) Judge(c *permission.Call) {
	c.ReadOnly, c.Checker = strings.Contains(string(c.Input), "read"), guard{}
}

type guard struct{}

func (guard) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Behavior: permission.Deny, Reason: "never"}
}
func (guard) Match(*permission.Policy, permission.Rule) (bool, error) {
	return false, errors.New("unreadable")
}
func (guard) Suggest(*permission.Policy) []permission.Rule {
	return []permission.Rule{{Tool: "bare"}}
}
func (guard) Parts(*permission.Policy) []permission.Part { return []permission.Part{{}} }

// TestWrappersKeepCapabilities: a call is judged by the tool, even if it is wrapped several times.
func TestWrappersKeepCapabilities(t *testing.T) {
	pass := func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, c tool.Call) iter.Seq2[tool.Chunk, error] {
			return next(ctx, t, c)
		}
	}
	for _, tl := range []tool.Tool{guarded{}, tool.With(guarded{}, pass), tool.With(tool.With(guarded{}))} {
		c := tool.PermissionCall(tl, json.RawMessage(`{"read":1}`))
		if !c.ReadOnly || c.Checker != (guard{}) {
			t.Errorf("%T: the judge is hidden: %+v", tl, c)
		}
	}
}

// TestAsFindsNothing looks for a capability that a tool lacks.
func TestAsFindsNothing(t *testing.T) {
	if _, ok := tool.As[tool.Judge](bare{}); ok {
		t.Error("found a capability that the tool lacks")
	}
	if _, ok := tool.As[tool.Judge](nil); ok {
		t.Error("found a capability of nil")
	}
}

// TestWrappersUnwrap finds types of the module that wrap a Tool but have no Unwrap method: they would
// hide safety checks.
func TestWrappersUnwrap(t *testing.T) {
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != ".." && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		for name, w := range wrappers(t, path) {
			if w.holds && (w.methods["Info"] && w.methods["Call"] || w.embeds) {
				found++
				if !w.methods["Unwrap"] {
					t.Errorf("%s: the type %s wraps a tool.Tool and has no method Unwrap() tool.Tool", path, name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("not even the wrapper of With was found: the test shows nothing")
	}
}

type wrapper struct {
	holds, embeds bool
	methods       map[string]bool
}

// wrappers returns the struct types of a directory that have a part of a wrapper.
func wrappers(t *testing.T, dir string) map[string]*wrapper {
	types := map[string]*wrapper{}
	get := func(name string) *wrapper {
		if types[name] == nil {
			types[name] = &wrapper{methods: map[string]bool{}}
		}
		return types[name]
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				s, ok := n.Type.(*ast.StructType)
				if !ok {
					break
				}
				for _, field := range s.Fields.List {
					if isTool(field.Type, f.Name.Name) {
						get(n.Name.Name).holds = true
						get(n.Name.Name).embeds = get(n.Name.Name).embeds || field.Names == nil
					}
				}
			case *ast.FuncDecl:
				if n.Recv != nil {
					recv := n.Recv.List[0].Type
					if star, ok := recv.(*ast.StarExpr); ok {
						recv = star.X
					}
					if id, ok := recv.(*ast.Ident); ok {
						get(id.Name).methods[n.Name.Name] = true
					}
				}
			}
			return true
		})
	}
	return types
}

func isTool(e ast.Expr, pkg string) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return pkg == "tool" && e.Name == "Tool"
	case *ast.SelectorExpr:
		id, ok := e.X.(*ast.Ident)
		return ok && id.Name == "tool" && e.Sel.Name == "Tool"
	}
	return false
}
