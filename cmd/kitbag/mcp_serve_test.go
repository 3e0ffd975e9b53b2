package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// TestOtherStyle checks that the user is told, once, that a client does not get the style that was asked for.
func TestOtherStyle(t *testing.T) {
	servers(t, "demo")
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
	for style, told := range map[string]int{"per-group": 1, "discover": 0} {
		var out, log bytes.Buffer
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(slog.New(noticeHandler{log: &log}))
		run(t.Context(), []string{"mcp", "serve", "--style", style}, strings.NewReader(list+list), &out, &log)
		if n := strings.Count(log.String(), "instead of opening groups"); n != told {
			t.Errorf("%s: told %d times: %s", style, n, log.String())
		}
	}
}

// gatewayClient is a client of kitbag mcp serve, which runs as a process.
func gatewayClient(t *testing.T, protocol string, args ...string) *mcpclient.Client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := mcpclient.New("g", mcpclient.Command{Path: self, Args: append([]string{"mcp", "serve"}, args...), Env: map[string]string{"GORACE": "atexit_sleep_ms=0"}},
		&mcpclient.Options{Prefix: "g__", Protocol: protocol})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// find waits until the client lists the tool.
func find(t *testing.T, c *mcpclient.Client, name string) tool.Tool {
	t.Helper()
	var list []tool.Tool
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var err error
		if list, err = c.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, tl := range list {
			if tl.Info().Name == "g__"+name {
				return tl
			}
		}
	}
	t.Fatalf("no tool %s among %d", name, len(list))
	return nil
}

func runTool(t *testing.T, tl tool.Tool, input string) *message.ToolResult {
	t.Helper()
	call := tool.Call{ID: "1", Name: tl.Info().Name, Input: json.RawMessage(input)}
	col := tool.NewCollector(call)
	for chunk, err := range tool.Run(t.Context(), tl, call) {
		if err != nil {
			t.Fatal(err)
		}
		col.Add(chunk)
	}
	return col.Result()
}

// TestGateway calls a tool through the gateway, in each style and protocol version, next to a broken server.
func TestGateway(t *testing.T) {
	servers(t, "demo", "dead")
	for _, row := range []struct {
		protocol, style string
		open, input     string // the tool that opens the group
		call, args      string
	}{
		{"2025-11-25", "reset", "reset_tools", `{"demo":true}`, "demo__weather_lookup", `{"city":"Oslo"}`},
		{"2025-11-25", "enable", "enable_tools", `{"groups":["demo"]}`, "demo__weather_lookup", `{"city":"Oslo"}`},
		{"2025-11-25", "per-group", "demo_activate", `{}`, "demo__weather_lookup", `{"city":"Oslo"}`},
		{"2025-11-25", "discover", "search_tools", `{"query":"weather"}`, "call_tool", `{"name":"demo__weather_lookup","arguments":{"city":"Oslo"}}`},
		{"2026-07-28", "reset", "search_tools", `{"query":"weather"}`, "call_tool", `{"name":"demo__weather_lookup","arguments":{"city":"Oslo"}}`},
		{"2025-11-25", "full", "", "", "demo__weather_lookup", `{"city":"Oslo"}`},
		{"2026-07-28", "full", "", "", "demo__weather_lookup", `{"city":"Oslo"}`},
	} {
		t.Run(row.protocol+" "+row.style, func(t *testing.T) {
			c := gatewayClient(t, row.protocol, "--style", row.style, "--mode", "bypass")
			if row.open != "" {
				if res := runTool(t, find(t, c, row.open), row.input); res.Outcome != message.OutcomeSuccess {
					t.Fatalf("%s: %s", row.open, res.Text())
				}
			}
			res := runTool(t, find(t, c, row.call), row.args)
			if res.Outcome != message.OutcomeSuccess || !strings.Contains(string(res.Structured), `"city":"Oslo"`) {
				t.Errorf("%s: %s %s", row.call, res.Text(), res.Structured)
			}
		})
	}
}

func TestGatewayDeadServer(t *testing.T) {
	servers(t, "demo", "dead")
	c := gatewayClient(t, "2025-11-25", "--mode", "bypass")
	res := runTool(t, find(t, c, "reset_tools"), `{"demo":true,"dead":true}`)
	if res.Outcome != message.OutcomeSuccess {
		t.Errorf("opening a broken server's group next to a working one: %s", res.Text())
	}
	if res := runTool(t, find(t, c, "demo__echo"), `{"message":"still here"}`); res.Text() != "still here" {
		t.Errorf("echo: %s", res.Text())
	}
	if res := runTool(t, find(t, c, "demo__weather_lookup"), `{"city":" "}`); res.Outcome != message.OutcomeError || !strings.Contains(res.Text(), "city: empty") {
		t.Errorf("an error of the upstream server: %s", res.Text())
	}
}

func TestGatewayCost(t *testing.T) {
	servers(t, "demo", "odd")
	got := kitbag(t.Context(), "mcp", "serve", "--print-cost")
	for _, want := range []string{"full                     5 tools", "reset                    1 tools", "discover                 3 tools", "demo                     5 tools", "100.0 %"} {
		if got.code != exitDone || !strings.Contains(got.out, want) {
			t.Errorf("code %d, no %q: %s%s", got.code, want, got.out, got.stderr)
		}
	}
	if !strings.Contains(got.stderr, "mcpServers.odd") {
		t.Errorf("a broken entry is not reported: %s", got.stderr)
	}
}

// TestGatewayConfig checks the groups, rules and audit log of a configuration.
func TestGatewayConfig(t *testing.T) {
	servers(t, "demo") // writes .mcp.json, whose entry the configuration reuses
	entry, err := os.ReadFile(defaultServers)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "kitbag.json")
	write := func(more string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.TrimSuffix(strings.TrimSpace(string(entry)), "}")+more+"}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`,"groups":{"notes":{"tools":["demo__note_*","demo__echo"],"description":"To remember."}},
		"permissions":{"mode":"dont-ask","allow":["demo__echo"]},"audit":{"file":"audit.jsonl","arguments":true}`)
	c := gatewayClient(t, "2025-11-25", "--config", file)
	if res := runTool(t, find(t, c, "reset_tools"), `{"notes":true}`); res.Outcome != message.OutcomeSuccess {
		t.Fatalf("reset_tools: %s", res.Text())
	}
	if res := runTool(t, find(t, c, "demo__echo"), `{"message":"hi"}`); res.Text() != "hi" {
		t.Errorf("echo: %s", res.Text())
	}
	if res := runTool(t, find(t, c, "demo__note_add"), `{"text":"x"}`); res.Outcome != message.OutcomeError || !strings.Contains(res.Text(), "denied") {
		t.Errorf("note_add: %s", res.Text())
	}
	data, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err != nil || strings.Count(string(data), "\n") != 3 || !strings.Contains(string(data), `"input":{"message":"hi"}`) {
		t.Errorf("audit: %v %s", err, data)
	}

	got := kitbag(t.Context(), "mcp", "serve", "--config", file, "--print-cost", "--json")
	var cost costReport
	if err := json.Unmarshal([]byte(got.out), &cost); err != nil || got.code != exitDone {
		t.Fatalf("%d %v: %s%s", got.code, err, got.out, got.stderr)
	}
	if len(cost.Styles) != 5 || cost.Styles[0].Name != "full" || cost.Styles[0].Tools != 5 || cost.Styles[0].Share != 1 ||
		len(cost.Groups) != 2 || cost.Groups[0].Name != "notes" || cost.Groups[0].Tools != 2 || cost.Groups[1].Tools != 3 {
		t.Errorf("cost: %+v", cost)
	}

	write(`,"gruops":{}`)
	if got := kitbag(t.Context(), "mcp", "serve", "--config", file); got.code != exitError || !strings.Contains(got.stderr, `kitbag.json: gruops: unknown key (did you mean "groups"?)`) {
		t.Errorf("a mistake: %d %s", got.code, got.stderr)
	}
	if err := os.WriteFile(file, []byte(`{"style":"enable"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := kitbag(t.Context(), "mcp", "serve", "--config", file); got.code != exitError || !strings.Contains(got.stderr, "mcpServers is missing") {
		t.Errorf("no servers: %d %s", got.code, got.stderr)
	}
	if got := kitbag(t.Context(), "mcp", "serve", "--config", file, "--mcp", defaultServers, "--print-cost"); got.code != exitDone {
		t.Errorf("servers of another file: %d %s", got.code, got.stderr)
	}
	t.Setenv("SOME_TOKEN", "0123456789abcdef")
	write(`,"credentials":{"ci":{"tokenEnv":"SOME_TOKEN","groups":["demo"]}},"permissions":{}`)
	for _, row := range []struct{ flag, value, want string }{
		{"", "", "clients send tokens over HTTP only"},
		{"--mode", "bypass", "has permissions; set them in one place"},
		{"--allow", "x", "has permissions"},
	} {
		args := []string{"mcp", "serve", "--config", file}
		if row.flag != "" {
			args = append(args, row.flag, row.value)
		}
		if got := kitbag(t.Context(), args...); got.code != exitUsage || !strings.Contains(got.stderr, row.want) {
			t.Errorf("%s: %d %s, want %s", row.flag, got.code, got.stderr, row.want)
		}
	}
}

func TestGatewayFlags(t *testing.T) {
	servers(t, "demo")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, row := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"--http", taken.Addr().String()}, exitError, "address already in use; choose another address or port"},
		{[]string{"--style", "magic"}, exitUsage, "reset, enable"},
		{[]string{"--json"}, exitUsage, "--print-cost"},
		{[]string{"--http", "nowhere"}, exitUsage, "missing port"},
		{[]string{"--http", ":0"}, exitUsage, "give the host"},
		{[]string{"--mode", "magic"}, exitUsage, "magic"},
		{[]string{"--mcp", "none.json"}, exitError, "none.json"},
	} {
		got := kitbag(t.Context(), append([]string{"mcp", "serve"}, row.args...)...)
		if got.code != row.code || !strings.Contains(got.stderr, row.stderr) {
			t.Errorf("%q: %d %s", row.args, got.code, got.stderr)
		}
	}
}

// TestGatewayHTTP checks the token, the audit log and the shutdown.
func TestGatewayHTTP(t *testing.T) {
	servers(t, "demo")
	t.Setenv(tokenVar, "0123456789abcdef")
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	logs, stderr := io.Pipe()
	done := make(chan int, 1)
	go func() {
		args := []string{"mcp", "serve", "--http", "127.0.0.1:0", "--allow", "demo__echo", "--audit", audit}
		done <- run(ctx, args, strings.NewReader(""), io.Discard, stderr)
		_ = stderr.Close()
	}()
	buf := make([]byte, 200)
	n, err := logs.Read(buf)
	go func() { _, _ = io.Copy(io.Discard, logs) }()
	url := regexp.MustCompile(`http://\S+`).FindString(string(buf[:n]))
	if err != nil || url == "" {
		t.Fatalf("%v: %q", err, buf[:n])
	}
	res, err := http.Post(url, "application/json", bytes.NewReader([]byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d", res.StatusCode)
	}
	c, err := mcpclient.New("g", mcpclient.HTTP{URL: url, Headers: map[string]string{"Authorization": "Bearer 0123456789abcdef"}},
		&mcpclient.Options{Prefix: "g__"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	runTool(t, find(t, c, "search_tools"), `{"query":"echo"}`) // starts the servers
	call := find(t, c, "call_tool")
	if res := runTool(t, call, `{"name":"demo__echo","arguments":{"message":"hi"}}`); res.Text() != "hi" {
		t.Errorf("echo: %s", res.Text())
	}
	if res := runTool(t, call, `{"name":"demo__note_add","arguments":{"text":"hi"}}`); !strings.Contains(res.Text(), "by the rule demo__note_add") {
		t.Errorf("note_add: %s", res.Text())
	}
	_ = c.Close()
	cancel()
	if code := <-done; code != exitDone && code != 130 {
		t.Errorf("code %d", code)
	}
	data, err := os.ReadFile(audit)
	if want := fmt.Sprintf(`"credential":%q`, tokenVar); err != nil || strings.Count(string(data), want) != 3 || !strings.Contains(string(data), `"decision":"ask"`) {
		t.Errorf("audit: %v %s", err, data)
	}
}
