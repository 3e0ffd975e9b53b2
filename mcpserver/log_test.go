package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type logIn struct {
	Levels []string `json:"levels"`
}

// logging returns a tool that logs at levels through the logger of its call, and sends the logger to loggers.
func logging(loggers chan<- *mcpserver.Logger) tool.Tool {
	return tool.Must(tool.New("log", "Logs.", func(ctx context.Context, in logIn) (string, error) {
		l := mcpserver.LoggerFrom(ctx)
		for _, level := range in.Levels {
			l.Log(level, "db", json.RawMessage(`{"of":"`+level+`"}`))
		}
		loggers <- l
		return l.Credential() + " wants " + l.Level(), nil
	}))
}

// logged returns the levels of the log messages among the messages sent to a client.
func logged(sent []string) (levels []string) {
	for _, m := range sent {
		if _, level, ok := strings.Cut(m, `"data":{"of":"`); ok {
			level, _, _ = strings.Cut(level, `"`)
			levels = append(levels, level)
		}
	}
	return levels
}

// TestLogger checks that a client gets the log messages of its level and above, before the result. It sets the
// level by logging/setLevel for a session and in each request without sessions.
func TestLogger(t *testing.T) {
	loggers := make(chan *mcpserver.Logger, 100)
	url := listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(logging(loggers)), Policy: open, Credentials: []mcpserver.Credential{{Name: "anna", Token: tokenA}}}))
	w := newWire(t, url)
	w.token = tokenA
	w.initialize(`{}`)
	const arguments = `"arguments":{"levels":["debug","info","error","fatal",""]}`
	var session *mcpserver.Logger
	for _, row := range []struct{ level, want string }{{"", "[]"}, {"error", "[error]"}, {"debug", "[debug info error]"}, {"emergency", "[]"}} {
		if row.level != "" {
			w.rpc("logging/setLevel", `{"level":"`+row.level+`"}`)
		}
		sent := w.rpc("tools/call", `{"name":"log",`+arguments+`}`)
		if got := fmt.Sprint(logged(sent)); got != row.want || !strings.Contains(sent[len(sent)-1], "anna wants "+row.level) {
			t.Errorf("level %q: %q, want %s", row.level, sent, row.want)
		}
		if l := <-loggers; session != nil && l != session {
			t.Error("calls of one session have different loggers")
		} else {
			session = l
		}
		m := newModern(t, url, tokenA, `{}`)
		m.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "log"}
		level := ""
		if row.level != "" {
			level = `,"io.modelcontextprotocol/logLevel":"` + row.level + `"`
		}
		_, sent = m.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log",`+arguments+`,
			"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`+level+`}}}`)
		if got := fmt.Sprint(logged(sent)); got != row.want {
			t.Errorf("level %q without sessions: %q, want %s", row.level, sent, row.want)
		}
		if l := <-loggers; l == session {
			t.Error("a request without sessions has the logger of a session")
		}
	}
	hooked := 0
	session.OnLevel(func() { hooked++ })
	w.rpc("logging/setLevel", `{"level":"info"}`)
	if hooked != 1 || session.Level() != "info" {
		t.Errorf("notified %d times of the level %s", hooked, session.Level())
	}
}

// TestLoggerLimit checks that the number of messages is limited, and that messages logged between calls are sent.
func TestLoggerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loggers := make(chan *mcpserver.Logger, 1)
		s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(logging(loggers)), Policy: open})
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		go func() { _ = s.ServeStdio(context.Background(), inR, outW); _ = outW.Close() }()
		received := make(chan string, 10_000)
		go func() {
			all, _ := io.ReadAll(outR)
			for l := range strings.Lines(string(all)) {
				received <- l
			}
			close(received)
		}()
		fmt.Fprintln(inW, initializeBody)
		fmt.Fprintln(inW, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`)
		synctest.Wait() // requests run in parallel, and the level must apply to all that follow
		fmt.Fprintln(inW, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"log","arguments":{"levels":[]}}}`)
		l := <-loggers
		for range 3 {
			for range 5000 {
				l.Log("info", "", json.RawMessage(`{"of":"info"}`))
			}
			time.Sleep(time.Second)
		}
		_ = inW.Close()
		var all []string
		for line := range received {
			all = append(all, line)
		}
		if n := len(logged(all)); n != 100+99+99 {
			t.Errorf("%d of 15,000 messages were received", n)
		}
		if !slices.ContainsFunc(all, func(m string) bool { return strings.Contains(m, "4900 log messages before this one were dropped") }) {
			t.Error("no message says how many are missing")
		}
	})
}
