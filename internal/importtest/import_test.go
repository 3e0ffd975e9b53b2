// Package importtest checks the direction of imports between packages. It has no code of
// its own.
package importtest

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kitbag-go/kitbag"

// allowed lists the packages of the module that each package may import, in addition to
// what those import, and to internal packages, which are checked by internalUsers. A
// package that is not listed may import nothing of the module. "*" is everything.
var allowed = map[string][]string{
	"message":          {},
	"permission":       {},
	"redact":           {},
	"tool":             {"tool/docs", "message", "permission"},
	"tool/tooltest":    {"tool", "tool/toolstate", "message", "permission"},
	"model":            {"tool", "message", "permission"},
	"model/openai":     {"model", "model/httperror", "model/internal/again", "model/internal/provider", "tool", "message"},
	"model/middleware": {"model", "model/internal/again", "model/internal/size", "message"},
	"model/catalog":    {"message"},
	"model/anthropic":  {"model", "model/httperror", "model/internal/again", "model/internal/provider", "tool", "message"},
	"model/httperror":  {"model"},
	"model/scripted":   {"model", "model/internal/size", "message"},
	"model/replay":     {"model"},
	"model/modeltest":  {"model", "message"},
	"skill":            {},
	"toolkit":          {"tool", "tool/toolstate", "skill", "message", "permission"},
	"toolkit/config":   {"toolkit", "tool"},
	"agent/event":      {"message", "permission", "tool", "tool/host"},
	"agent":            {"agent/event", "toolkit", "model", "model/catalog", "model/middleware", "tool", "tool/host", "tool/toolstate", "skill", "message", "permission", "redact", "agent/internal/decide", "agent/internal/window", "agent/internal/picture"},
	"agent/agentotel":  {"agent", "agent/event", "message", "model", "redact"},
	"agent/agentlog":   {"agent", "agent/event", "message", "permission", "redact"},
	"mcpclient":        {"tool", "tool/host", "skill", "message", "permission"},
	"mcpserver": {"toolkit", "skill", "tool", "tool/host", "tool/toolstate", "message", "permission",
		"mcpserver/internal/rpc", "mcpserver/internal/wire", "mcpserver/internal/park", "mcpserver/internal/replica"},
	"mcpgateway": {"mcpclient", "mcpserver", "toolkit", "skill", "tool", "tool/host", "tool/toolstate", "permission"},
	"builtin": {"tool", "tool/toolstate", "message", "permission", "redact", "builtin/sandbox",
		"builtin/internal/shell", "builtin/internal/pathrule", "builtin/internal/grep", "builtin/internal/gitignore"},
	"builtin/pdf":     {},
	"builtin/sandbox": {"permission"},
	"cmd/kitbag":      {"*"},
	"inspect":         {"agent", "agent/event", "agent/session", "message", "model/catalog", "permission", "tool", "tool/toolstate", "toolkit"},

	"postgres/pggateway":          {"mcpserver"},
	"mcpserver/oauth":             {"mcpserver"},
	"mcpserver/sharedtest":        {"mcpserver"},
	"mcpserver/internal/rpc":      {},
	"mcpserver/internal/wire":     {},
	"mcpserver/internal/replica":  {"mcpserver/internal/wire"},
	"mcpserver/internal/park":     {"mcpserver/internal/rpc", "mcpserver/internal/wire", "mcpserver/internal/replica"},
	"model/internal/again":        {},
	"model/internal/size":         {"model", "message"},
	"model/internal/provider":     {"model", "model/httperror", "tool", "message"},
	"model/internal/providertest": {"model", "tool", "message"},
	"agent/internal/decide":       {"message", "permission"},
	"agent/internal/window":       {"message", "tool"},
	"agent/internal/picture":      {},

	"tool/middleware": {"tool"},
	"tool/host":       {"tool", "message"},
	"tool/docs":       {},
	"tool/toolstate":  {},

	"agent/session":                 {"agent", "agent/event", "message"},
	"agent/session/internal/killed": {"agent"},
	"agent/session/sessiontest":     {"agent/session", "agent/session/internal/killed", "agent", "agent/event", "model", "model/scripted", "toolkit", "tool", "message", "permission"},
	"agent/session/sqlite":          {"agent", "agent/session"},
	"postgres/pgsession":            {"agent", "agent/session"},
	"agent/temporal":                {"agent", "agent/event", "agent/session", "message", "tool"},
	"agui":                          {"agent", "agent/event", "agent/session", "toolkit", "tool", "tool/toolstate", "message", "permission"},
	"agui/internal/desk":            {"*"},
	"agui/interop/server":           {"agui", "agui/internal/desk", "agent/session"},
	"agent/agenttest":               {"agent", "agent/event", "model", "model/scripted", "tool", "message"},

	"internal/genai": {"agent", "agent/event", "model", "tool", "message"},

	"builtin/internal/shell":            {"builtin/internal/pathrule"},
	"builtin/internal/pathrule":         {},
	"builtin/internal/gitignore":        {},
	"builtin/internal/grep":             {},
	"cmd/kitbag/internal/docgen":        {},
	"cmd/kitbag/internal/docgen/sample": {"tool", "tool/docs"},

	"internal/pgtest":               {},
	"internal/testproc":             {},
	"internal/heavy/temporalserver": {},

	"internal/heavy/distributed":        {},
	"internal/heavy/distributed/sim":    {},
	"internal/heavy/interop/confclient": {"mcpclient", "tool", "tool/host"},
	"internal/heavy/interop/replicas":   {"mcpclient", "mcpgateway", "mcpserver", "postgres/pggateway", "message", "permission", "tool", "tool/host", "toolkit"},
	"internal/heavy/interop/confserver": {"mcpserver", "toolkit", "skill", "tool", "tool/host", "message", "permission"},
	"internal/budget":                   {},
	"internal/demoserver":               {},
	"internal/denial":                   {"permission", "toolkit"},
	"internal/mcpgroups":                {"mcpclient", "permission", "skill", "toolkit", "tool"},
	"internal/anthropictest":            {},
	"internal/openaitest":               {},
	"internal/wiretest":                 {},
	"internal/oauthtest":                {},
	"internal/oauthurl":                 {"internal/loopback"},
	"internal/loopback":                 {},
	"internal/hostcheck":                {"internal/loopback"},
	"internal/casetest":                 {"permission"},
	"internal/groupcase":                {"toolkit", "tool"},
	"internal/seed":                     {},
	"internal/countdown":                {},
	"internal/near":                     {},
	"internal/lazy":                     {},
	"internal/replacefile":              {},
	"internal/tracecontext":             {"internal/lazy"},
	"internal/envref":                   {"internal/lazy"},
	"internal/visible":                  {"internal/strictjson"},
	"internal/strictjson":               {},
	"internal/mcpcontent":               {"internal/strictjson", "internal/visible", "message"},
	"internal/mcpupstream":              {},
	"internal/policycheck":              {"permission", "tool"},
}

// internalUsers lists the packages that may import an internal package; tests may import all.
var internalUsers = map[string][]string{
	"internal/genai":    {"agent/agentlog", "agent/agentotel"},
	"internal/visible":  {"tool", "tool/host", "toolkit", "skill", "mcpclient", "mcpserver", "mcpgateway", "cmd/kitbag", "cmd/kitbag/internal/term", "inspect", "internal/mcpcontent"},
	"internal/pgtest":   {"internal/heavy/interop/replicas"},
	"internal/near":     {"tool", "toolkit", "skill", "mcpgateway", "internal/policycheck"},
	"internal/casetest": {"internal/groupcase"},
	"internal/testproc": {"internal/pgtest", "internal/heavy/temporalserver"},
	"internal/lazy": {"tool", "tool/host", "toolkit", "skill", "redact", "agent", "agent/session", "builtin", "builtin/internal/pathrule", "builtin/internal/shell",
		"mcpclient", "mcpserver", "mcpserver/internal/rpc", "mcpgateway", "internal/mcpgroups", "internal/tracecontext", "internal/envref"},

	"internal/tracecontext": {"agent/agentotel", "mcpclient", "mcpserver"},
	"internal/envref":       {"mcpclient", "mcpgateway"},
	"internal/loopback":     {"internal/oauthurl", "internal/hostcheck", "model/anthropic", "mcpclient", "mcpserver/oauth", "cmd/kitbag"},
	"internal/hostcheck":    {"mcpserver", "inspect", "cmd/kitbag"},
	"internal/replacefile":  {"model/replay", "mcpclient", "internal/mcpgroups", "cmd/kitbag", "cmd/kitbag/internal/term"},

	"internal/strictjson":  {"redact", "internal/visible", "internal/mcpcontent", "internal/wiretest", "model", "model/replay", "toolkit", "agent", "agui", "cmd/kitbag", "mcpclient", "mcpserver", "mcpserver/internal/rpc", "mcpgateway"},
	"internal/mcpcontent":  {"agent", "mcpclient", "mcpserver", "mcpgateway"},
	"internal/mcpupstream": {"mcpserver", "mcpgateway"},
	"internal/policycheck": {"agent", "mcpserver"},
	"internal/oauthurl":    {"mcpclient", "mcpserver", "mcpserver/oauth", "mcpgateway"},
	"internal/wiretest":    {"internal/anthropictest", "internal/openaitest"},
	"internal/denial":      {"agent", "mcpserver"},
	"internal/mcpgroups":   {"mcpgateway", "cmd/kitbag"},
}

func TestImports(t *testing.T) {
	for _, p := range listPackages(t) {
		name := short(p.ImportPath)
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			if why := forbidden(name, short(imp)); why != "" {
				t.Errorf("%s imports %s: %s", name, short(imp), why)
			}
		}
	}
}

// TestTemplates checks that no library imports a template package: they look methods up by name, for which the linker
// keeps all methods of every package in a program.
func TestTemplates(t *testing.T) {
	for _, p := range listPackages(t) {
		name := short(p.ImportPath)
		for _, imp := range []string{"text/template", "html/template"} {
			if slices.Contains(p.Imports, imp) {
				t.Errorf("%s imports %s; write the text with strings and fmt", name, imp)
			}
		}
	}
}

// modules are the nested modules of go.work, without the path of the root. Those that are public each have a heavy
// dependency, or are the command.
var modules = map[string]bool{ // public
	"agent/agentotel":      true,
	"agent/session/sqlite": true,
	"agent/temporal":       true,
	"builtin/pdf":          true,
	"cmd/kitbag":           true,
	"mcpserver/oauth":      true,
	"postgres":             true,
	"examples":             false,
	"internal/heavy":       false,
}

// TestModules checks that the root requires no other module of this repository, not even for its tests, as "go mod tidy"
// in a module that uses kitbag would have to find it too; and that a public module requires only those of them that its
// code imports.
func TestModules(t *testing.T) {
	pkgs := listPackages(t)
	imported := map[string]map[string]bool{} // what the code of a module imports, by their paths
	dirs := map[string]string{}
	owner := map[string]string{}
	for _, p := range pkgs {
		owner[p.ImportPath] = p.Module.Path
		dirs[p.Module.Path], imported[p.Module.Path] = p.Module.Dir, map[string]bool{}
	}
	for _, p := range pkgs {
		for _, imp := range p.Imports {
			imported[p.Module.Path][owner[imp]] = true
		}
	}
	for path, dir := range dirs {
		public, listed := modules[short(path)]
		if path != module && !listed {
			t.Errorf("%s is not in the table modules; add it to the root, unless it has a heavy dependency", path)
		}
		for _, required := range requires(t, dir) {
			switch {
			case !strings.HasPrefix(required, module+"/"):
			case path == module:
				t.Errorf("the root requires %s", required)
			case public && !imported[path][required]:
				t.Errorf("%s requires %s, which only its tests import; move them to internal/heavy", path, required)
			}
		}
	}
	if len(dirs) != len(modules)+1 {
		t.Errorf("go.work has %d modules, and the table has %d and the root", len(dirs), len(modules))
	}
}

// requires returns the paths of the modules that the go.mod of a directory requires.
func requires(t *testing.T, dir string) (paths []string) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(dir, "go.mod")).Output()
	var file struct{ Require []struct{ Path string } }
	if err == nil {
		err = json.Unmarshal(out, &file)
	}
	if err != nil || len(file.Require) == 0 {
		t.Fatalf("go.mod of %s requires %v: %v", dir, file.Require, err)
	}
	for _, r := range file.Require {
		paths = append(paths, r.Path)
	}
	return paths
}

func forbidden(from, to string) string {
	top := func(s string) string { a, _, _ := strings.Cut(s, "/"); return a }
	switch {
	case top(from) == "examples" && top(to) == "internal":
		return "an example builds when it is copied out of the repository"
	case top(from) == "examples":
		return ""
	case to == "cmd/kitbag" || top(to) == "examples":
		return "programs are not imported"
	case top(to) == "internal":
		if slices.Contains(internalUsers[to], from) || slices.Contains(allowed[from], "*") {
			return ""
		}
		return "an internal package is used only by " + strings.Join(internalUsers[to], ", ") + " and by tests"
	}
	list, known := allowed[from]
	switch {
	case !known:
		return "the package is not in the table allowed; add it"
	case slices.Contains(list, "*"), slices.Contains(list, to):
		return ""
	}
	return "not allowed; it may import  " + strings.Join(list, ", ")
}

func short(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

type pkg struct {
	ImportPath                string
	Imports                   []string // of non-test files
	TestImports, XTestImports []string
	Module                    struct{ Path, Dir string }
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-tags=pdfium", "-json=ImportPath,Imports,TestImports,XTestImports,Module", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 5 {
		t.Fatalf("found %d packages only; the test would check nothing", len(pkgs))
	}
	return pkgs
}

func TestForbidden(t *testing.T) {
	for _, row := range []struct {
		from, to string
		ok       bool
	}{
		{"agent", "toolkit", true},
		{"toolkit", "agent", false},
		{"tool", "model", false},
		{"mcpclient", "toolkit", false},
		{"mcpclient", "mcpserver", false},
		{"mcpserver", "mcpclient", false},
		{"mcpgateway", "mcpclient", true},
		{"model/openai", "model/scripted", false},
		{"agent", "builtin/internal/shell", false},
		{"builtin", "builtin/internal/shell", true},
		{"brandnew", "message", false},
		{"agent", "cmd/kitbag", false},
		{"examples/hello", "agent", true},
		{"examples/hello", "internal/near", false},
	} {
		if why := forbidden(row.from, row.to); (why == "") != row.ok {
			t.Errorf("%s → %s: ok=%v, want %v (%s)", row.from, row.to, why == "", row.ok, why)
		}
	}
}
