package mcpgateway_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/message"
)

// TestStderrIsTheOwners checks that the stderr of a server's process is not sent to a client, because it may be
// about another user, and that it is logged.
func TestStderrIsTheOwners(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	dies := mcpclient.Server{Name: "dies", Transport: mcpclient.Command{Path: "sh", Args: []string{"-c", "echo key=hunter2 of another user >&2; exit 3"}},
		Options: mcpclient.Options{PingInterval: -1}}
	lives := process(t, "lives")
	lives.Transport.(mcpclient.Command).Env[stderrEnv] = "key=hunter2 of another user"
	for _, style := range []mcpgateway.Style{mcpgateway.StyleReset, mcpgateway.StyleDiscover} {
		log.Reset()
		g := newGateway(t, mcpgateway.Config{Style: style, Servers: []mcpclient.Server{dies, lives}, Initial: []string{"lives"}})
		c := newWire(t, g)
		sent := string(c.ask(listBody))
		for _, q := range []struct {
			name string
			args map[string]any
		}{
			{"reset_tools", map[string]any{"dies": true, "lives": true}}, {"enable_tools", map[string]any{"groups": []string{"dies"}}},
			{"dies_activate", map[string]any{}}, {"search_tools", map[string]any{"query": "x"}},
			{"call_tool", map[string]any{"name": "dies__x", "arguments": map[string]any{}}},
			{"lives__die", map[string]any{}}, {"call_tool", map[string]any{"name": "lives__die", "arguments": map[string]any{}}},
		} {
			text, _ := c.tool(q.name, q.args)
			sent += text
		}
		if strings.Contains(sent, "hunter2") {
			t.Errorf("%s: the client is sent %s", style, sent)
		}
		if !strings.Contains(log.String(), "hunter2") {
			t.Errorf("%s: the log does not contain it: %s", style, log.String())
		}
	}
}

// TestAuditOfLongArguments checks that a call with arguments that are too long to be kept is still recorded.
func TestAuditOfLongArguments(t *testing.T) {
	file := t.TempDir() + "/audit.jsonl"
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", echo(), named("x")).Server}, Initial: []string{"a"},
		AuditFile: file, AuditArguments: true})
	c := newHost(t, g)
	if res := call(t, c, "a__echo", `{"message":"`+strings.Repeat("x", 3<<20)+`"}`); res.Outcome != message.OutcomeSuccess {
		t.Fatal(res.Text()[:100])
	}
	call(t, c, "a__x", `{}`)
	if got := tools(t, file); got != "echo success, x success" {
		t.Errorf("recorded: %s", got)
	}
	if info, err := os.Stat(file); err != nil || info.Size() < 3<<20 {
		t.Errorf("the arguments are not recorded: %v, %v", info.Size(), err)
	}
}
