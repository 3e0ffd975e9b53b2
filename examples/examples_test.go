// Package examples runs the examples offline, checks their output, and builds copies of them in other modules.
package examples

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

var update = flag.Bool("update", false, "write the golden files")

// servers run until they are stopped; each has its own test.
var servers = []string{"agui", "gateway", "users", "webchat"}

func TestExamples(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "./...").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, name := range examples(t) {
		if slices.Contains(servers, name) {
			if _, err := os.Stat(filepath.Join(name, "main_test.go")); err != nil {
				t.Errorf("the server %s has no test: %v", name, err)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(bin, name))
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "OPENAI_API_KEY=")
			if name == "hello" { // the only one with a real model
				s := openaitest.New(t, openaitest.Calls(openaitest.Call{Name: "add", Args: `{"A":2,"B":3}`}), openaitest.Text("2+3 is 5."))
				cmd.Env = append(os.Environ(), "OPENAI_API_KEY=key", "OPENAI_BASE_URL="+s.URL, "KITBAG_MODEL=test", "KITBAG_API=")
			}
			if in, err := os.ReadFile(filepath.Join("testdata", name+".in")); err == nil {
				cmd.Stdin = bytes.NewReader(in)
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			got, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("it prints\n%s\nnot\n%s\n(go test ./examples -update writes what it prints)", got, want)
			}
		})
	}
}

// TestCopies checks that the examples build in another module. Nothing is downloaded, because the copies
// require what this module requires.
func TestCopies(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range examples(t) {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edit := []string{"mod", "edit", "-module=example.com/copy", "-replace=github.com/kitbag-go/kitbag=" + root} // as in README.md
	for _, args := range [][]string{edit, {"vet", "./..."}, {"build", "-o", os.DevNull, "./..."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
	}
}

// TestLines counts the lines, without blank ones and comments, of programs that people compare with those of
// other toolkits.
func TestLines(t *testing.T) {
	for name, most := range map[string]int{"hello": 29, "toolset": 250, "batch": 120} {
		src, err := os.ReadFile(filepath.Join(name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(src)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				n++
			}
		}
		if n > most || n < 10 {
			t.Errorf("%s/main.go has %d lines, more than %d", name, n, most)
		}
	}
}

// TestPermissions checks that no example shows how to bypass the permission engine.
func TestPermissions(t *testing.T) {
	around := regexp.MustCompile(`Control: +true|permission\.(Mode)?Bypass|Tool: +"\*+"`)
	files, err := filepath.Glob("*/*.go")
	if err != nil || len(files) < 15 {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := around.Find(src); found != nil {
			t.Errorf("%s has %s; let a rule allow what the example calls", file, found)
		}
	}
}

// examples returns the directories of the examples of this module.
func examples(t *testing.T) []string {
	t.Helper()
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) < 12 {
		t.Fatalf("found %q, %v", mains, err)
	}
	var dirs []string
	for _, m := range mains {
		dir := filepath.Dir(m)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil { // it is not a module of its own
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
