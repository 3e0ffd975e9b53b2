package config_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
	"github.com/kitbag-go/kitbag/toolkit/config"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the errors of Apply to testdata")

func named(name string) tool.Tool {
	return tool.Must(tool.New(name, "Does "+name+".", func(context.Context, struct{}) (string, error) { return name, nil }))
}

func base() toolkit.Config {
	return toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{named("query"), named("update"), named("now")}}}
}

// TestErrors runs the files in testdata: each has a configuration and its errors,
// one a line; none if it is valid.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no rows: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if _, err := config.Apply(base(), ar.Files[0].Data); err != nil {
				got = err.Error() + "\n"
			}
			if want := string(ar.Files[1].Data); got != want {
				if *update {
					ar.Files[1].Data = []byte(got)
					if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func visible(t testing.TB, tk *toolkit.Toolkit, s *toolkit.Scope) string {
	t.Helper()
	v, err := tk.View(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range v.Tools() {
		names = append(names, i.Name)
	}
	return strings.Join(names, " ")
}

// TestApply: the toolkit does what a file says, and an invalid file leaves
// the old configuration in use.
func TestApply(t *testing.T) {
	cfg, err := config.Apply(base(), []byte(`{
		"groups": [{"name": "db", "description": "Orders.", "tools": ["query", "update"]},
		           {"name": "other", "description": "Others."}],
		"tools": [{"name": "update", "available_in_states": ["open"]}, {"name": "query", "state": "open"}],
		"exclusive": [["db", "other"]], "initial_groups": ["db"], "max_tools": 2, "max_groups": 1, "max_bytes": 100000}`))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.MaxTools != 2 || cfg.MaxGroups != 1 || cfg.MaxBytes != 100000 {
		t.Errorf("quotas: %d %d %d", cfg.MaxTools, cfg.MaxGroups, cfg.MaxBytes)
	}
	tk, err := toolkit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := new(toolkit.Scope)
	if got := visible(t, tk, s); got != "reset_tools now query" {
		t.Errorf("visible: %s", got)
	}
	v, err := tk.View(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	v.Advance("query")
	if got := visible(t, tk, s); got != "reset_tools now query update" {
		t.Errorf("visible in the next state: %s", got)
	}
	reload := func(data string) error {
		return tk.Update(func(cfg *toolkit.Config) error {
			next, err := config.Apply(base(), []byte(data))
			if err == nil {
				*cfg = next
			}
			return err
		})
	}
	if err := reload(`{"groups": [{"name": "db", "tools": "query"}]}`); err == nil {
		t.Error("an invalid file was accepted")
	}
	if err := reload(`{"groups": [{"name": "db", "parents": ["db"], "description": "x"}]}`); err == nil {
		t.Error("a file with an invalid configuration was accepted")
	}
	if got := visible(t, tk, s); got != "reset_tools now query update" {
		t.Errorf("after invalid files: %s", got)
	}
	if err := reload(`{}`); err != nil {
		t.Error(err)
	}
	if got := visible(t, tk, s); got != "query update now" {
		t.Errorf("after an empty file: %s", got)
	}
}

// TestReplace: a later setting for a tool in the file replaces an earlier one of the file,
// but not other fields of the base's setting.
func TestReplace(t *testing.T) {
	b := base()
	b.Preset = toolkit.TrustGraph()
	b.Settings = []toolkit.Setting{{Tool: "query", Always: true, When: func(func(string) bool) bool { return false }}}
	cfg, err := config.Apply(b, []byte(`{
		"groups": [{"name": "db", "description": "Orders.", "tools": ["query"]}],
		"tools": [{"name": "query", "group": ["web"], "state": "first"}, {"name": "query", "available_in_states": ["open"]}]}`))
	if err != nil || len(cfg.Settings) != 1 {
		t.Fatalf("%+v, %v", cfg.Settings, err)
	}
	s := cfg.Settings[0]
	if !slices.Equal(s.Groups, []string{"db"}) || !slices.Equal(s.Phases, []string{"open"}) || s.Next != "" || !s.Always || s.When == nil {
		t.Errorf("the setting is %+v", s)
	}
}

// TestDepth: a file that is nested too deep is an error, not a stack overflow.
func TestDepth(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		_, err := config.Apply(base(), []byte(strings.Repeat(open, 5_000_000)))
		if err == nil || !strings.Contains(err.Error(), "line 1: ") || !strings.Contains(err.Error(), "deep") || len(err.Error()) > 1000 {
			t.Errorf("%s…: %.300v", open, err)
		}
	}
}

// TestBaseUntouched: Apply does not modify base.
func TestBaseUntouched(t *testing.T) {
	b := base()
	b.Groups = []toolkit.Group{{Name: "db", Description: "Old."}}
	b.Settings = []toolkit.Setting{{Tool: "query", Next: "old"}}
	if _, err := config.Apply(b, []byte(`{"groups": [{"name": "db", "description": "New.", "tools": ["query"]}], "tools": [{"name": "query", "state": "new"}]}`)); err != nil {
		t.Fatal(err)
	}
	if b.Groups[0].Description != "Old." || b.Settings[0].Next != "old" || b.Settings[0].Groups != nil {
		t.Errorf("base is now %+v", b)
	}
}

func TestSchema(t *testing.T) {
	var s struct {
		Type string
	}
	if err := json.Unmarshal(config.Schema(), &s); err != nil || s.Type != "object" {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzApply(f *testing.F) {
	f.Add([]byte(`{"groups":[{"name":"a","description":"A."}],"tools":[{"name":"now","group":["a"]}]}`))
	f.Add([]byte(`{"tools":[{"name":"now","group":null}]} x`))
	f.Add([]byte(`[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := config.Apply(base(), data)
		if err != nil {
			if !strings.Contains(err.Error(), "line ") {
				t.Errorf("no line: %v", err)
			}
			return
		}
		_, _ = toolkit.New(cfg) // may fail, must not panic
	})
}

func ExampleApply() {
	cfg, err := config.Apply(base(), []byte(`{
  "groups": [{"name": "database", "description": "Orders.", "tools": ["query", "updat"]}]
}`))
	fmt.Println(err)
	fmt.Println(cfg.Groups[0].Name)
	// Output:
	// line 2: groups[0].tools[1]: unknown tool "updat"; the tools are query, update, now
	// database
}
