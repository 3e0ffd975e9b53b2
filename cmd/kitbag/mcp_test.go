package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// servers writes a file that names the demo server and servers that do not work.
func servers(t *testing.T, names ...string) {
	t.Helper()
	workspace(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{
		"demo": map[string]any{"command": self, "args": []string{"mcp", "serve", "--demo"}, "env": map[string]string{"GORACE": "atexit_sleep_ms=0"}},
		"dead": map[string]any{"command": "sh", "args": []string{"-c", "echo the disk is full >&2; exit 9"}},
		"odd":  map[string]any{"type": "pigeon", "url": "https://example.com"},
	}
	entries := map[string]any{}
	for _, n := range names {
		entries[n] = all[n]
	}
	data, err := json.Marshal(map[string]any{"mcpServers": entries})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(defaultServers, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestMCPList(t *testing.T) {
	servers(t, "demo", "dead", "odd")
	start := time.Now()
	got := kitbag(t.Context(), "mcp", "list", "--json")
	var list struct{ Servers []serverReport }
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || got.code != exitDone || len(list.Servers) != 3 {
		t.Fatalf("code %d, %v: %s%s", got.code, err, got.out, got.stderr)
	}
	dead, demo, odd := list.Servers[0], list.Servers[1], list.Servers[2]
	if demo.State != "ready" || demo.Version != "1.0.0" || demo.Protocol == "" || len(demo.Tools) != 5 || demo.Groups[0] != "demo" ||
		demo.Tools[2].Name != "mcp__demo__echo" || demo.Tools[2].Title != "Echo" || demo.Tools[2].Bytes < 50 || demo.Tools[2].Groups[0] != "demo" {
		t.Errorf("demo: %+v", demo)
	}
	if dead.State != "failed" || !strings.Contains(dead.Error, "the disk is full") || !strings.Contains(dead.Error, `"dead"`) {
		t.Errorf("dead: %+v", dead)
	}
	if odd.State != "failed" || !strings.Contains(odd.Error, "mcpServers.odd") {
		t.Errorf("odd: %+v", odd)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("a broken server delayed the list by %v", d)
	}
	if got := kitbag(t.Context(), "mcp", "list"); !strings.Contains(got.out, "demo: ready") || !strings.Contains(got.out, "dead: failed") {
		t.Errorf("list: %s", got.out)
	}
	if got := kitbag(t.Context(), "mcp", "status", "--json"); !strings.Contains(got.out, `"ping_ms"`) || !strings.Contains(got.out, `"restarts":0`) {
		t.Errorf("status: %s", got.out)
	}
}

func TestMCPNoneReady(t *testing.T) {
	servers(t, "dead")
	if got := kitbag(t.Context(), "mcp", "list", "--json"); got.code != exitError || !strings.Contains(got.out, `"failed"`) {
		t.Errorf("code %d: %s", got.code, got.out)
	}
}

// TestNoticeSlow checks that slow servers are reported once, and only if they are slow.
func TestNoticeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		missing := func() []string { return []string{"slow", "a\nb"} }
		stop := noticeSlow(&log, missing)
		time.Sleep(slowStart - time.Nanosecond)
		stop()
		if log.Len() > 0 {
			t.Errorf("in time, but reported: %s", log.String())
		}
		stop = noticeSlow(&log, missing)
		time.Sleep(10 * slowStart)
		stop()
		if got := log.String(); got != "still starting: slow, a\\nb\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestMCPCall(t *testing.T) {
	servers(t, "demo", "dead", "odd")
	for _, row := range []struct {
		args        []string
		code        int
		out, stderr string
	}{
		{[]string{"--json", "demo", "add", `{"a":2,"b":3}`}, exitDone, `{"content":[{"type":"text","text":"5"}],"is_error":false}`, ""},
		{[]string{"--json", "demo", "mcp__demo__weather_lookup", `{"city":"Oslo"}`}, exitDone, `"structured":{"city":"Oslo"`, ""},
		{[]string{"--json", "demo", "weather_lookup", `{"city":" "}`}, exitDone, `"is_error":true`, ""},
		{[]string{"demo", "echo", `{"message":"hi \u001b[31m"}`}, exitDone, "hi [31m\n", ""},
		{[]string{"--progress", "demo", "countdown", `{"n":2,"step_ms":1}`}, exitDone, "counted down from 2\n", "2/2 0 left\n"},
		{[]string{"--timeout", "300ms", "demo", "countdown", `{"n":99}`}, exitError, "", `MCP server "demo": timeout`},
		{[]string{"demo", "nothing"}, exitError, "", "choose from add, countdown, echo"},
		{[]string{"absent", "echo"}, exitError, "", `no MCP server "absent"`},
		{[]string{"dead", "echo"}, exitError, "", "the disk is full"},
		{[]string{"odd", "echo"}, exitError, "", "mcpServers.odd"},
		{[]string{"demo"}, exitUsage, "", "SERVER TOOL"},
		{[]string{"demo", "echo", "[1]"}, exitUsage, "", "JSON object"},
		{[]string{"--mcp", "none.json", "demo", "echo"}, exitError, "", "none.json"},
	} {
		got := kitbag(t.Context(), append([]string{"mcp", "call"}, row.args...)...)
		if got.code != row.code || !strings.Contains(got.out, row.out) || !strings.Contains(got.stderr, row.stderr) {
			t.Errorf("%q: code %d, want %d\nout    %s\nstderr %s", row.args, got.code, row.code, got.out, got.stderr)
		}
	}
}
