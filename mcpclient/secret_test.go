package mcpclient

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// linesAbout keeps the lines of a log that contain a word, since other tests log too.
type linesAbout struct {
	what string
	mu   sync.Mutex
	kept strings.Builder
}

func (l *linesAbout) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(string(line), l.what) {
		l.kept.Write(line)
	}
	return len(line), nil
}

func (l *linesAbout) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

// TestSecretsInFiles checks that a secret in a file that others can read causes one warning, without the secret.
func TestSecretsInFiles(t *testing.T) {
	t.Setenv("KITBAG_TEST_TOKEN", "t0ken")
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	const local, remote = `{"mcpServers":{"a":{"command":"x",`, `{"mcpServers":{"a":{"url":"https://example.com",`
	for _, row := range []struct {
		text, keys string // the keys in the warning
	}{
		{local + `"env":{"API_KEY":"hunter2"}}}}`, "mcpServers.a.env.API_KEY"},
		{local + `"env":{"API_KEY":"${KITBAG_TEST_TOKEN}"}}}}`, ""},
		{local + `"env":{"API_KEY":"${KITBAG_TEST_TOKEN:-hunter2}"}}}}`, "mcpServers.a.env.API_KEY"},
		{local + `"env":{"API_KEY":"","LANG":"hunter2","MONKEY":"hunter2","KEYBOARD":"hunter2"}}}}`, ""},
		{local + `"env":{"X":"ghp_hunter2"},"args":["-y","pkg"]}}}`, "mcpServers.a.env.X"},
		{local + `"args":["--api-key","hunter2","--port","80"]}}}`, "mcpServers.a.args[1]"},
		{local + `"args":["--token=hunter2","--token=${KITBAG_TEST_TOKEN}","TOKEN"]}}}`, "mcpServers.a.args[0]"},
		{remote + `"headers":{"Authorization":"Bearer hunter2","Accept":"hunter2"}}}}`, "mcpServers.a.headers.Authorization"},
		{remote + `"headers":{"Authorization":"Bearer ${KITBAG_TEST_TOKEN}"}}}}`, ""},
		{remote + `"bearer_token_env_var":"KITBAG_TEST_TOKEN"}}}`, ""},
		{`{"mcpServers":{"a":{"url":"https://me:hunter2@example.com"},"b":{"url":"https://example.com/?api_key=hunter2"}}}`, "mcpServers.a.url, mcpServers.b.url"},
		{`{"mcpServers":{"a":{"command":"x","disabled":true,"env":{"API_KEY":"hunter2"}}}}`, ""},
	} {
		for mode, warned := range map[os.FileMode]bool{0o600: false, 0o640: true, 0o604: true} {
			file := filepath.Join(t.TempDir(), "mcp.json")
			log := &linesAbout{what: file}
			slog.SetDefault(slog.New(slog.NewJSONHandler(log, nil)))
			if err := errors.Join(os.WriteFile(file, []byte(row.text), mode), os.Chmod(file, mode)); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(file); err != nil {
				t.Errorf("%s: %v", row.text, err)
			}
			got := log.String()
			switch {
			case row.keys == "" || !warned:
				if got != "" {
					t.Errorf("%s, mode %o: %s", row.text, mode, got)
				}
			case strings.Count(got, "\n") != 1 || !strings.Contains(got, `"keys":"`+row.keys+`"`) || strings.Contains(got, "hunter2"):
				t.Errorf("%s, mode %o: %q, want %s", row.text, mode, got, row.keys)
			}
		}
	}
}
