package mcpgateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kitbag-go/kitbag/mcpgateway"
)

var update = flag.Bool("update", false, "write the results of Load to testdata, and the picture of the costs")

// TestLoad loads the files in testdata/config. Each contains a configuration and the result of Load: the
// errors, one per line, or the groups and credentials.
func TestLoad(t *testing.T) {
	files, err := filepath.Glob("testdata/config/*.txtar")
	if err != nil || len(files) < 2 {
		t.Fatalf("too few rows: %q %v", files, err)
	}
	t.Setenv("CI_TOKEN", "0123456789abcdef")
	t.Setenv("SHORT_TOKEN", "s3cret")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil || len(ar.Files) != 2 {
				t.Fatalf("%v, %d files, want kitbag.json and want", err, len(ar.Files))
			}
			dir := t.TempDir()
			path := filepath.Join(dir, "kitbag.json")
			if err := os.WriteFile(path, ar.Files[0].Data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "token"), []byte("fedcba9876543210\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := mcpgateway.Load(path)
			got := describe(t, cfg)
			if err != nil {
				got = err.Error() + "\n"
			}
			got = strings.ReplaceAll(got, dir+string(filepath.Separator), "")
			for _, secret := range []string{"0123456789abcdef", "fedcba9876543210", "s3cret"} {
				if err != nil && strings.Contains(got, secret) {
					t.Errorf("the error contains a token: %s", got)
				}
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

// describe prints a configuration, in the order of the file.
func describe(t *testing.T, cfg mcpgateway.Config) string {
	t.Helper()
	var servers []string
	for _, s := range cfg.Servers {
		if s.Options.TrustReadOnly {
			s.Name += " trusted"
		}
		servers = append(servers, s.Name)
	}
	out := []any{servers, cfg.Groups, cfg.Labels, cfg.PerSession, cfg.Initial, cfg.Style, cfg.AuditFile, cfg.AuditArguments,
		cfg.Serve.Instructions, cfg.Serve.Hosts, cfg.Serve.Origins, cfg.Serve.Policy}
	for _, c := range cfg.Serve.Credentials {
		out = append(out, c)
	}
	if cfg.OAuth != nil {
		out = append(out, cfg.OAuth)
	}
	if cfg.Serve.Rates != nil {
		out = append(out, cfg.Serve.Rates, cfg.Serve.TaskAfter)
	}
	if cfg.Serve.Replicas != nil {
		out = append(out, cfg.ReplicaStore, cfg.Serve.Replicas)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, v := range out {
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestExample checks that the configuration in the documentation of Load is valid.
func TestExample(t *testing.T) {
	src, err := os.ReadFile("file.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(src), "// Load reads a configuration.")
	_, rest, ok2 := strings.Cut(rest, "//\n//\t")
	text, _, ok3 := strings.Cut(rest, "\n//\n")
	if !ok || !ok2 || !ok3 {
		t.Fatal("Load has no example in its documentation")
	}
	text = strings.ReplaceAll(text, "\n//\t", "\n")
	path := filepath.Join(t.TempDir(), "kitbag.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CI_TOKEN", "0123456789abcdef")
	t.Setenv("GITHUB_TOKEN", "x")
	t.Setenv("CRM_SECRET", "x")
	t.Setenv("LOGIN_SECRET", "x")
	t.Setenv("LOGIN_KEY", "0123456789abcdef0123456789abcdef")
	cfg, err := mcpgateway.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Servers) != 4 || len(cfg.Groups) != 2 || len(cfg.Serve.Credentials) != 1 || cfg.OAuth == nil || len(cfg.UpstreamTokens) != 2 || cfg.Logins == nil || cfg.Serve.Policy == nil || cfg.AuditFile == "" {
		t.Errorf("%+v", cfg)
	}
}

// TestTokenFile checks the warning if other users can read a credential's token file: it is logged once and
// does not contain the token.
func TestTokenFile(t *testing.T) {
	const token = "fedcba9876543210"
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	path := filepath.Join(t.TempDir(), "kitbag.json")
	file := filepath.Join(filepath.Dir(path), "token")
	if err := os.WriteFile(path, []byte(`{"mcpServers":{"a":{"command":"x"}},"credentials":{"ci":{"tokenFile":"token"}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for mode, warnings := range map[os.FileMode]int{0o600: 0, 0o400: 0, 0o640: 1, 0o604: 1} {
		if err := errors.Join(os.WriteFile(file, []byte(token), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		if _, err := mcpgateway.Load(path); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); strings.Count(got, "\n") != warnings || strings.Count(got, file) != warnings || strings.Contains(got, token) {
			t.Errorf("mode %o: %q", mode, got)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}
