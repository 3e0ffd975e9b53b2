// Package readme checks README.md against the code. It has no code of its own.
package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

const root = "../../.."

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestCode checks that the README's Go code is in the example it names and in its test.
func TestCode(t *testing.T) {
	blocks := goCode(t, "README.md")
	files := []string{"examples/hello/main.go", "examples/hello/main_test.go"}
	if len(blocks) != len(files) {
		t.Fatalf("README.md has %d blocks of Go code, want %d", len(blocks), len(files))
	}
	for i, file := range files {
		if !contains(read(t, file), blocks[i]) {
			t.Errorf("the code in README.md is not in %s", file)
		}
	}
}

// TestRecipes checks that each recipe is about an example, whose code it shows.
func TestRecipes(t *testing.T) {
	for _, name := range []string{"webchat", "batch", "users", "cli", "gateway"} {
		page := "docs/" + name + ".md"
		example := read(t, "examples/"+name+"/main.go")
		blocks := goCode(t, page)
		for _, b := range blocks {
			if !contains(example, b) {
				t.Errorf("%s shows code that is not in examples/%s/main.go:\n%s", page, name, b)
			}
		}
		if len(blocks) < 2 {
			t.Errorf("%s shows %d pieces of code only", page, len(blocks))
		}
		if !strings.Contains(read(t, "README.md"), page) {
			t.Errorf("README.md does not lead to %s", page)
		}
	}
}

// TestComingFrom checks that the program that is compared with others is an example.
func TestComingFrom(t *testing.T) {
	if blocks := goCode(t, "docs/coming-from.md"); len(blocks) != 3 || !contains(read(t, "examples/approval/main.go"), blocks[0]) {
		t.Error("docs/coming-from.md does not begin with the code of examples/approval/main.go")
	}
}

// TestHowDoI checks that the code of the page is in a test that runs it.
func TestHowDoI(t *testing.T) {
	tests := read(t, "examples/internal/howdoi/howdoi_test.go") + read(t, "agent/agentotel/example_test.go")
	blocks := goCode(t, "docs/how-do-i.md")
	for _, b := range blocks {
		if !contains(tests, b) {
			t.Errorf("docs/how-do-i.md shows code that no test has:\n%s", b)
		}
		if n := strings.Count(b, "\n") + 1; n > 10 {
			t.Errorf("docs/how-do-i.md shows %d lines at once:\n%s", n, b)
		}
	}
	if len(blocks) != 9 {
		t.Errorf("docs/how-do-i.md shows %d pieces of code, want 9", len(blocks))
	}
}

func goCode(t *testing.T, page string) []string {
	t.Helper()
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)\n```").FindAllStringSubmatch(read(t, page), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// contains reports whether src has the lines of the block, perhaps indented further.
func contains(src, block string) bool {
	for range 4 {
		if strings.Contains("\n"+src, "\n"+block+"\n") {
			return true
		}
		block = regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block, "\t$1")
	}
	return false
}

// TestLinks checks that every local link has a target.
func TestLinks(t *testing.T) {
	pages := pages(t)
	link := regexp.MustCompile(`\]\(([^)]+)\)`)
	count := 0
	for _, page := range pages {
		prose := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(read(t, page), "")
		for _, l := range link.FindAllStringSubmatch(prose, -1) {
			count++
			if strings.HasPrefix(l[1], "https://") {
				continue
			}
			file, heading, _ := strings.Cut(l[1], "#")
			target := filepath.Join(filepath.Dir(page), file)
			if file == "" {
				target = page
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if heading != "" && !slices.Contains(headings(read(t, target)), heading) {
				t.Errorf("%s: %s has no heading #%s", page, target, heading)
			}
		}
	}
	if len(pages) < 4 || count < 30 {
		t.Fatalf("found %d links in %d pages only", count, len(pages))
	}
}

// TestNames checks that what the pages name of our packages is in their API. Left columns of
// docs/coming-from.md are about others.
func TestNames(t *testing.T) {
	apis := map[string]string{}
	files, err := filepath.Glob("../apitest/testdata/api/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		api := read(t, filepath.Join("internal/apitest/testdata/api", filepath.Base(f)))
		name, _, _ := strings.Cut(strings.TrimPrefix(api, "package "), " ")
		apis[name] += api
	}
	name := regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*)[^`]*`")
	count := 0
	for _, page := range pages(t) {
		for line := range strings.Lines(read(t, page)) {
			if cells := strings.Split(line, " | "); page == "docs/coming-from.md" && len(cells) == 2 {
				line = cells[1]
			}
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				api, ours := apis[m[1]]
				if count++; ours && !regexp.MustCompile(`(?m)^(const|func|type|var) `+m[2]+`\b`).MatchString(api) {
					t.Errorf("%s: package %s has no %s", page, m[1], m[2])
				}
			}
		}
	}
	if count < 30 {
		t.Fatalf("found %d names only", count)
	}
}

// pages are the texts for people: those of the root, and of docs.
func pages(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", ":(glob)*.md", "docs/*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// headings returns the anchors of a page, as hosts of repositories make them.
func headings(text string) []string {
	var list []string
	for _, h := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(h[1]), "")
		list = append(list, strings.ReplaceAll(anchor, " ", "-"))
	}
	return list
}

// TestMap checks that CONTRIBUTING.md says what each directory is for.
func TestMap(t *testing.T) {
	text := read(t, "CONTRIBUTING.md")
	out, err := exec.Command("git", "-C", root, "ls-tree", "-d", "--name-only", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dir := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(dir, ".") && dir != "cmd" && !strings.Contains(text, "`"+dir+"`") {
			t.Errorf("CONTRIBUTING.md does not say what %s is for", dir)
		}
	}
}

// TestGateway checks that the README's configuration of a gateway is valid.
func TestGateway(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, "docs/gateway.md"), "```json\n")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("docs/gateway.md has no configuration")
	}
	file := filepath.Join(t.TempDir(), "kitbag.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := mcpgateway.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Servers) != 2 || len(cfg.Groups) != 1 || cfg.Serve.Policy == nil || cfg.AuditFile == "" {
		t.Errorf("%+v", cfg)
	}
}

// TestFigures checks the figures that can change: the number of attacks, which tests of
// builtin/internal/shell prove to be refused, and the ratios of bench.
func TestFigures(t *testing.T) {
	readme := read(t, "README.md")
	count := func(file, expect string, is bool) int {
		n := 0
		for line := range strings.Lines(read(t, "testdata/cases/"+file)) {
			var row struct{ Expect string }
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatal(err)
			}
			if (row.Expect == expect) == is {
				n++
			}
		}
		return n
	}
	attacks, everyday := count("bash_adversarial.jsonl", "readonly_allow", false), count("bash_benign.jsonl", "readonly_allow", true)
	for _, want := range []string{fmt.Sprintf("of %d commands that try", attacks), fmt.Sprintf("%d of %d everyday", allowed(t, "bash_benign.jsonl"), everyday)} {
		if !strings.Contains(readme, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
	results := read(t, "bench/RESULTS.md")
	for _, row := range []struct{ name, claim string }{
		{"a step in a run of 20: CPU, µs", "takes %s times the CPU of a loop"}, {"a step with 1,000 tools: CPU, µs", "%s times with 1,000 tools"},
	} {
		_, rest, _ := strings.Cut(results, "| "+row.name+" | ")
		ratio, _, ok := strings.Cut(rest, " |")
		if claim := fmt.Sprintf(row.claim, ratio); !ok || !strings.Contains(readme, claim) {
			t.Errorf("bench/RESULTS.md has %s for %s, README.md does not say %q", ratio, row.name, claim)
		}
	}
	for _, peer := range []struct {
		column int
		claim  string
	}{{2, "eino takes %s and %s"}, {4, "adk-go %s and %s"}, {6, "genkit %s and %s"}} {
		step, many := peerRatio(t, results, "a step in a run of 20: CPU, µs", peer.column), peerRatio(t, results, "a step with 1,000 tools: CPU, µs", peer.column)
		if claim := fmt.Sprintf(peer.claim, step, many); !strings.Contains(readme, claim) {
			t.Errorf("bench/RESULTS.md says otherwise: README.md does not say %q", claim)
		}
	}
}

// allowed returns how many commands of a file run without a question in an empty directory.
func allowed(t *testing.T, file string) int {
	dir := t.TempDir()
	bash, err := builtin.Bash(builtin.Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(read(t, "testdata/cases/"+file)) {
		var row struct {
			Command string `json:"command"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		input, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		if permission.Decide(&permission.Policy{Dirs: []string{dir}}, tool.PermissionCall(bash, input)).Behavior == permission.Allow {
			n++
		}
	}
	return n
}

// peerRatio returns a ratio of bench/RESULTS.md; column 0 is kitbag, and 1 the floor.
func peerRatio(t *testing.T, results, row string, column int) string {
	t.Helper()
	_, rest, ok := strings.Cut(results, "\n| "+row+" |")
	line, _, _ := strings.Cut(rest, "\n")
	cells := strings.Split(line, "|")
	if !ok || len(cells) <= column {
		t.Fatalf("bench/RESULTS.md has no column %d of %q", column, row)
	}
	return strings.TrimSpace(cells[column])
}

// TestDependencies checks that the table names every direct dependency.
func TestDependencies(t *testing.T) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	readme := read(t, "README.md")
	direct := 0
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		direct++
		// The README writes a module without host and version.
		name := regexp.MustCompile(`^(github\.com|go\.uber\.org|pgregory\.net)/|/v\d+$`).ReplaceAllString(r.Path, "")
		name = strings.TrimPrefix(name, "rogpeppe/")
		if !strings.Contains(readme, name) {
			t.Errorf("README.md does not say why %s (%s) is needed", r.Path, name)
		}
	}
	if direct < 5 {
		t.Fatalf("go.mod has %d direct dependencies; the test would check nothing", direct)
	}
}

// TestTestCommand checks that CI runs the README's test command.
func TestTestCommand(t *testing.T) {
	for file, want := range map[string]string{"README.md": "\n    make test\n", ".ci/run": " make test\n", ".github/workflows/test.yml": " make test\n"} {
		if !strings.Contains(read(t, file), want) {
			t.Errorf("%s does not run make test", file)
		}
	}
}
