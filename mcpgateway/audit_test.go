package mcpgateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// tools returns the tools in the records of a file. Every line must be a record.
func tools(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range bytes.Lines(data) {
		var r mcpserver.Record
		if err := json.Unmarshal(line, &r); err != nil || r.Tool == "" || r.Time.IsZero() {
			t.Errorf("%s: %v in %q", filepath.Base(file), err, line)
		}
		out = append(out, strings.TrimPrefix(r.Tool, "a__")+" "+string(r.Outcome))
	}
	return strings.Join(out, ", ")
}

// TestAudit checks the log file while it is moved away, truncated, and removed.
func TestAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	records := make(chan mcpserver.Record, 10)
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", echo(), named("x")).Server}, Initial: []string{"a"},
		AuditFile: file, Serve: mcpgateway.ServeOptions{Audit: func(r mcpserver.Record) { records <- r }}})
	c := newHost(t, g)
	call(t, c, "a__echo", `{"message":"a secret"}`)
	if r := <-records; !strings.Contains(string(r.Input), "a secret") {
		t.Errorf("the embedder's own audit: %+v", r)
	}
	call(t, c, "a__x", `{}`)
	data, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(data), "secret") || !strings.Contains(string(data), `"decision":"allow"`) || !strings.Contains(string(data), `"session":"`) {
		t.Errorf("%v, %s", err, data)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	call(t, c, "a__x", `{}`)
	if old, now := tools(t, file+".1"), tools(t, file); old != "echo success, x success" || now != "x success" {
		t.Errorf("moved away: %s; after: %s", old, now)
	}
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	call(t, c, "a__echo", `{"message":"b"}`)
	if now := tools(t, file); now != "echo success" {
		t.Errorf("truncated: %s", now)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	call(t, c, "a__x", `{}`)
	if now := tools(t, file); now != "x success" {
		t.Errorf("removed: %s", now)
	}
	for range 2 {
		if err := g.Close(); err != nil {
			t.Errorf("closed: %v", err)
		}
	}
}

// TestAuditTorn checks that an incomplete line of a gateway that was killed does not spoil later records,
// wherever the file comes from.
func TestAuditTorn(t *testing.T) {
	const whole = `{"time":"2026-01-02T03:04:05Z","tool":"old","outcome":"success","duration_ms":1}`
	for _, row := range []struct{ left, want string }{
		{"", ""},
		{whole + "\n", whole + "\n"},
		{whole + "\n" + whole[:30], whole + "\n" + whole[:30] + "\n"},
		{whole[:1], whole[:1] + "\n"},
	} {
		file := filepath.Join(t.TempDir(), "audit.jsonl")
		leave := func() {
			if err := os.WriteFile(file, []byte(row.left), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string) {
			t.Helper()
			data, err := os.ReadFile(file)
			after, ok := strings.CutPrefix(string(data), row.want)
			var r mcpserver.Record
			if err != nil || !ok || strings.Count(after, "\n") != 1 || json.Unmarshal([]byte(after), &r) != nil || r.Tool != "a__echo" {
				t.Errorf("%s, after %q: %q, %v", when, row.left, data, err)
			}
		}
		leave()
		c := newHost(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", echo()).Server}, Initial: []string{"a"}, AuditFile: file}))
		call(t, c, "a__echo", `{"message":"a"}`)
		check("initially")
		if err := os.Rename(file, file+".1"); err != nil {
			t.Fatal(err)
		}
		leave()
		call(t, c, "a__echo", `{"message":"a"}`)
		check("after the file was replaced")
	}
}

// TestAuditArguments checks that arguments are recorded if that is configured.
func TestAuditArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", echo()).Server}, Initial: []string{"a"}, AuditFile: file, AuditArguments: true})
	call(t, newHost(t, g), "a__echo", `{"message":"wanted"}`)
	if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), `"input":{"message":"wanted"}`) {
		t.Errorf("%v, %s", err, data)
	}
}

// TestAuditDenied checks that a tool that a rule denies is not listed, and that the record of a call of it, or of a request
// for another item of its server, has the decision and the rule. The rule is added while the gateway runs.
func TestAuditDenied(t *testing.T) {
	for _, style := range []mcpgateway.Style{mcpgateway.StyleFull, mcpgateway.StyleReset, mcpgateway.StyleDiscover} {
		file := filepath.Join(t.TempDir(), "audit.jsonl")
		cfg := mcpgateway.Config{Servers: []mcpclient.Server{library(t, "a").Server, behind(t, "b", named("x"), named("y")).Server}, Style: style,
			AuditFile: file, AuditArguments: true, Serve: mcpgateway.ServeOptions{Version: "1", Policy: open}}
		g := newGateway(t, cfg)
		w := newWire(t, g)
		if style == mcpgateway.StyleReset {
			w.tool("reset_tools", map[string]bool{"a": true, "b": true})
		}
		listed := func() string {
			if style == mcpgateway.StyleDiscover {
				text, _ := w.tool("search_tools", map[string]string{"query": "says"})
				return text
			}
			return string(w.ask(listBody))
		}
		if got := listed(); !strings.Contains(got, "a__get") || !strings.Contains(got, "b__x") {
			t.Fatalf("%s: before the rules: %s", style, got)
		}
		cfg.Serve.Policy = &permission.Policy{Mode: permission.ModeBypass, Rules: []permission.Rule{{Tool: "a__*", Behavior: permission.Deny}, {Tool: "b__x", Behavior: permission.Deny}}}
		if err := g.Reload(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if got := listed(); strings.Contains(got, "a__get") || strings.Contains(got, "b__x") || !strings.Contains(got, "b__y") {
			t.Errorf("%s: the list with the rules: %s", style, got)
		}
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		inner := func(name string) {
			if style == mcpgateway.StyleDiscover {
				w.tool("call_tool", map[string]any{"name": name, "arguments": none{}})
			} else {
				w.tool(name, none{})
			}
		}
		inner("a__get")
		inner("b__x")
		inner("b__none")
		for _, request := range []string{`"resources/read","params":{"uri":"mcp://a/book://a"}`, `"prompts/get","params":{"name":"a__greet"}`,
			`"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a__greet"},"argument":{"name":"who","value":""}}`, `"resources/read","params":{"uri":"mcp://none/x"}`} {
			w.ask(`{"jsonrpc":"2.0","id":1,"method":` + request + `}`)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for line := range bytes.Lines(data) {
			var r mcpserver.Record
			if err := json.Unmarshal(line, &r); err != nil {
				t.Error(err)
			}
			fmt.Fprintf(&got, "%s: %s %s %s (%s)\n", r.Tool, r.Outcome, r.Decision, r.Rule, r.Reason)
			if r.Outcome == mcpserver.OutcomeRefused && len(r.Input) == 0 {
				t.Errorf("%s: no arguments: %s", style, line)
			}
		}
		none := "b__none"
		if style == mcpgateway.StyleDiscover {
			none = "call_tool"
		}
		want := strings.ReplaceAll(`a__get: refused deny a__* (denied by rule a__*)
b__x: refused deny b__x (denied by rule b__x)
NONE: invalid   ()
resources/read: refused deny a__* (denied by rule a__*)
prompts/get: refused deny a__* (denied by rule a__*)
completion/complete: refused deny a__* (denied by rule a__*)
resources/read: invalid   ()
`, "NONE", none)
		if got.String() != want {
			t.Errorf("%s: recorded\n%s\nwant\n%s", style, got.String(), want)
		}
	}
}

// TestAuditFails checks that while records cannot be written no call is run and no record is lost.
func TestAuditFails(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("the full disk is Linux's /dev/full; on other systems only the missing directory is tested")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "log", "audit.jsonl")
	var ran int
	cfg := mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", counting(&ran)).Server, library(t, "b").Server}, Initial: []string{"a", "b"}, AuditFile: file}
	cfg.Serve.Version = "1"
	if _, err := mcpgateway.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "audit") {
		t.Errorf("a missing directory: %v", err)
	}
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	c := newHost(t, newGateway(t, cfg))
	breaks := map[string]func() error{
		"the directory was moved": func() error { return os.Rename(filepath.Dir(file), filepath.Join(dir, "away")) },
	}
	if runtime.GOOS == "linux" {
		breaks["the disk is full"] = func() error { return os.Symlink("/dev/full", file) }
	}
	for why, breakIt := range breaks {
		call(t, c, "a__count", `{}`)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := breakIt(); err != nil {
			t.Fatal(err)
		}
		before := ran
		call(t, c, "a__count", `{}`) // this call runs, because only its record shows the failure
		for range 2 {
			if res := call(t, c, "a__count", `{}`); res.Outcome != message.OutcomeError || !strings.Contains(res.Text(), "audit log") {
				t.Errorf("%s: %s %s", why, res.Outcome, res.Text())
			}
			if got, err := c.ReadResource(t.Context(), "mcp://b/book://b"); err == nil || !strings.Contains(err.Error(), "audit log") {
				t.Errorf("%s: a resource was read: %s, %v", why, got, err)
			}
		}
		if ran != before+1 {
			t.Errorf("%s: %d calls ran, want one", why, ran-before)
		}
		_ = os.Remove(file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		call(t, c, "a__count", `{}`)
		if got, want := tools(t, file), "count success, count error, resources/read error, count error, resources/read error, count success"; got != want {
			t.Errorf("%s: after that the file has %s, want %s", why, got, want)
		}
		if err := os.RemoveAll(filepath.Join(dir, "away")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAuditWrittenAtTheEnd checks that Close writes the records that could not be written before, if that is
// possible then, and otherwise returns an error.
func TestAuditWrittenAtTheEnd(t *testing.T) {
	for _, again := range []bool{true, false} {
		dir := t.TempDir()
		file := filepath.Join(dir, "log", "audit.jsonl")
		if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", echo()).Server}, Initial: []string{"a"}, AuditFile: file})
		c := newHost(t, g)
		if err := os.RemoveAll(filepath.Dir(file)); err != nil {
			t.Fatal(err)
		}
		call(t, c, "a__echo", `{"message":"a"}`)
		if again {
			if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); (err == nil) != again {
			t.Errorf("the directory is back: %v; closed: %v", again, err)
		}
		if again {
			if got := tools(t, file); got != "echo success" {
				t.Errorf("written at the end: %s", got)
			}
		}
	}
}

// failing fails while off is set, as a database that cannot be reached.
type failing struct {
	bytes.Buffer
	off bool
}

func (w *failing) Write(p []byte) (int, error) {
	if w.off {
		return 0, errors.New("connection refused")
	}
	return w.Buffer.Write(p)
}

// TestAuditWriter checks that no record is lost while the writer fails, and that calls are refused then.
func TestAuditWriter(t *testing.T) {
	w := &failing{}
	c := newHost(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", named("x")).Server}, Initial: []string{"a"}, AuditWriter: w}))
	results := ""
	for _, off := range []bool{false, true, true, false} {
		w.off = off
		text := call(t, c, "a__x", `{}`).Text()
		results += fmt.Sprintln(strings.Contains(text, "audit log cannot be written"))
	}
	if results != "false\nfalse\ntrue\nfalse\n" { // that it fails is known after the first call
		t.Errorf("refused: %s", results)
	}
	outcomes := ""
	for line := range bytes.Lines(w.Bytes()) {
		var r mcpserver.Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Error(err)
		}
		outcomes += string(r.Outcome) + " "
	}
	if outcomes != "success success error success " {
		t.Errorf("recorded: %s", outcomes)
	}
}
