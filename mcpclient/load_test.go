package mcpclient

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestLoad loads the JSON files of each archive, in order.
func TestLoad(t *testing.T) {
	t.Setenv("KITBAG_TEST_DIR", "/data")
	t.Setenv("KITBAG_TEST_HOST", "example.org")
	t.Setenv("KITBAG_TEST_TOKEN", "t0ken")
	archives, err := filepath.Glob("testdata/load/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal(err)
	}
	for _, path := range archives {
		t.Run(filepath.Base(path), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			var got, errs strings.Builder
			var want, wantErrs string
			for _, f := range ar.Files {
				switch f.Name {
				case "want":
					want = string(f.Data)
				case "errors":
					wantErrs = string(f.Data)
				default:
					file := filepath.Join(dir, f.Name)
					if err := os.WriteFile(file, f.Data, 0o600); err != nil {
						t.Fatal(err)
					}
					configs, err := Load(file)
					for _, c := range configs {
						got.WriteString(strings.ReplaceAll(describeServer(c), dir, "DIR") + "\n")
					}
					if err != nil {
						errs.WriteString(strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "") + "\n")
					}
				}
			}
			if got.String() != want {
				t.Errorf("got\n%s\nwant\n%s", got.String(), want)
			}
			lines, wantLines := strings.Split(errs.String(), "\n"), strings.Split(wantErrs, "\n")
			for i, line := range lines {
				if i >= len(wantLines) || !strings.HasPrefix(line, wantLines[i]) || len(lines) != max(len(wantLines), 1) {
					t.Errorf("errors\n%s\nwant lines that start\n%s", errs.String(), wantErrs)
					break
				}
			}
		})
	}
}

func describeServer(c Server) string {
	var b strings.Builder
	pairs := func(label string, m map[string]string) {
		for i, k := range slices.Sorted(maps.Keys(m)) {
			if i == 0 {
				b.WriteString(" " + label)
			}
			fmt.Fprintf(&b, " %s=%s", k, m[k])
		}
	}
	switch t := c.Transport.(type) {
	case Command:
		fmt.Fprintf(&b, "%s: stdio %s %q", c.Name, t.Path, t.Args)
		if t.Dir != "" {
			b.WriteString(" dir " + t.Dir)
		}
		pairs("env", t.Env)
		if t.Sandbox.Profile != "" {
			fmt.Fprintf(&b, " sandbox %s %q %t", t.Sandbox.Profile, t.Sandbox.Write, t.Sandbox.Network)
		}
	case HTTP:
		kind := "http"
		if t.SSE {
			kind = "sse"
		}
		fmt.Fprintf(&b, "%s: %s %s", c.Name, kind, t.URL)
		pairs("header", t.Headers)
	}
	if c.Options.IncludeTools != nil {
		fmt.Fprintf(&b, " include %q", c.Options.IncludeTools)
	}
	if c.Options.ExcludeTools != nil {
		fmt.Fprintf(&b, " exclude %q", c.Options.ExcludeTools)
	}
	if c.Options.TrustReadOnly {
		b.WriteString(" trusted")
	}
	if c.WantsRoots {
		b.WriteString(" roots")
	}
	if c.Options.Timeouts.Idle != 0 {
		fmt.Fprintf(&b, " timeout %v", c.Options.Timeouts.Idle)
	}
	if c.Options.Timeouts.Start != 0 {
		fmt.Fprintf(&b, " start %v", c.Options.Timeouts.Start)
	}
	return b.String()
}

func TestLoadErrorNamesTheServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers":{"a":{"url":"x"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file)
	le, ok := errors.AsType[*LoadError](err)
	if !ok || le.File != file || le.Key != "mcpServers.a" || le.Server != "a" {
		t.Errorf("%#v", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestPlainJSON(t *testing.T) {
	for in, want := range map[string]string{
		"\xef\xbb\xbf{}":                   "{}",
		`{"a": 1, // b` + "\r\n}":          `{"a": 1  ` + "\n}",
		`["//", "/*", ",]", "\\\"//", 1,]`: `["//", "/*", ",]", "\\\"//", 1]`,
		`["\\" /* "x" */ , /* y */ ]`:      `["\\"      ]`,
		"[1,\n/* a\n// b */\n]":            "[1\n \n]",
		`{"a": "b", "c`:                    `{"a": "b", "c`,
		`[1,, ]`:                           `[1, ]`,
	} {
		if got := string(plainJSON([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"mcpServers":{"a":{"command":["x"],"args":["${HOME}"]}}}`))
	f.Add([]byte("\xef\xbb\xbf{\"servers\":{\"a\":{\"url\":\"http://x/\",},},} // \"end"))
	f.Add([]byte(`{"mcp":{"servers":{"a":{"command":{"path":"/*"}}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if plain := plainJSON(data); len(plain) > len(data) {
			t.Fatalf("the result is longer than the input: %q", plain)
		}
		file := filepath.Join(t.TempDir(), "m.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		configs, _ := Load(file)
		for _, c := range configs {
			if _, err := New(c.Name, c.Transport, &c.Options); err != nil {
				t.Fatalf("Load accepts what New does not: %v", err)
			}
		}
	})
}
