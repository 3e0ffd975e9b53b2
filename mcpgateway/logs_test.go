package mcpgateway_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
)

// logging returns an upstream server whose tool "f" logs at two levels and whose tool "g" does so when it is
// released. sent is called for every request.
func logging(name string, release <-chan struct{}, sent func(method, line string)) mcpclient.Server {
	cfg := scripted(name, `[{"name":"f","inputSchema":{"type":"object"}},{"name":"g","inputSchema":{"type":"object"}}]`, func(r request) string {
		if r.Params.Name == "g" {
			<-release
		}
		line := func(level, data string) string {
			return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","logger":"db\u202e","data":` + data + "}}\n"
		}
		return line("debug", `{"n":1}`) + line("error", `"bad\u001b[2J"`) + line("fatal", `"x"`) + says("ok")(r)
	})
	cfg.Options.Timeouts.Idle = time.Minute
	cfg.Transport = mcpclient.Dial((&tap{dial: cfg.Transport.(mcpclient.Dial), capabilities: `"logging":{},`, sent: sent}).connect)
	return cfg
}

// logs waits for log messages, and returns those received since the last call. A session receives the messages
// of another session's call a little later than that session receives its result.
func (w *wire) logs(want string) (all string) {
	w.t.Helper()
	pending := w.notices
	for end := time.Now().Add(5 * time.Second); ; {
		for _, m := range append(pending, w.pinged()...) {
			if _, params, ok := strings.Cut(m, `"method":"notifications/message","params":`); ok {
				all += strings.TrimSuffix(params, "}")
			}
		}
		if pending = nil; len(all) >= len(want) || time.Now().After(end) {
			w.notices = nil
			return all
		}
	}
}

// pinged returns the notifications received before the answer to a ping.
func (w *wire) pinged() []string {
	before := w.notices
	defer func() { w.notices = before }()
	w.ask(`{"jsonrpc":"2.0","id":9,"method":"ping"}`)
	return w.notices
}

const (
	debugLog = `{"data":{"n":1},"level":"debug","logger":"a/db"}`
	errorLog = `{"data":"bad[2J","level":"error","logger":"a/db"}`
)

// TestLogs checks that the messages of a server reach the sessions that use it, each from its own level on, and
// that the server's level is set to the lowest of these levels.
func TestLogs(t *testing.T) {
	levels := make(chan string, 10)
	a := logging("a", nil, func(method, line string) {
		if method == "logging/setLevel" {
			_, level, _ := strings.Cut(line, `"level":"`)
			level, _, _ = strings.Cut(level, `"`)
			levels <- level
		}
	})
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{a}, Initial: []string{"a"}})
	all, few, none, idle := newWire(t, g), newWire(t, g), newWire(t, g), newWire(t, g)
	few.rpc("logging/setLevel", `{"level":"warning"}`)
	for _, w := range []*wire{few, none} {
		w.tool("a__f", map[string]any{})
	}
	if got := few.logs(errorLog + errorLog); got != errorLog+errorLog { // the second is of a call of another session
		t.Errorf("from warnings on: %s", got)
	}
	for _, w := range []*wire{all, idle} {
		w.rpc("logging/setLevel", `{"level":"debug"}`)
	}
	all.tool("a__f", map[string]any{})
	for _, row := range []struct {
		name string
		w    *wire
		want string
	}{{"of the session itself", all, debugLog + errorLog}, {"of one with a higher level", few, errorLog}, {"of one that wants none", none, ""}, {"of one that does not use the server", idle, ""}} {
		if got := row.w.logs(row.want); got != row.want {
			t.Errorf("%s: %s\nwant %s", row.name, got, row.want)
		}
	}
	all.rpc("logging/setLevel", `{"level":"error"}`)
	all.tool("a__f", map[string]any{})
	if got := all.logs(errorLog); got != errorLog {
		t.Errorf("after the level was changed: %s", got)
	}
	for _, want := range []string{"warning", "debug", "warning"} {
		if got := <-levels; got != want {
			t.Errorf("the level was set to %s, want %s", got, want)
		}
	}
}

// TestLogsOfSeveralCredentials checks that sessions that share a server's process with other credentials only
// get messages that are certainly about their own calls.
func TestLogsOfSeveralCredentials(t *testing.T) {
	const token = "0123456789abcdef-"
	release, called := make(chan struct{}), make(chan struct{}, 10)
	a := logging("a", release, func(method, _ string) {
		if method == "tools/call" {
			called <- struct{}{}
		}
	})
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{a}, Initial: []string{"a"},
		Serve: mcpgateway.ServeOptions{Policy: open, Credentials: []mcpserver.Credential{{Name: "anna", Token: token + "anna"}, {Name: "otto", Token: token + "otto"}}}})
	web := httptest.NewServer(g.Server.Handler())
	t.Cleanup(web.Close)
	t.Cleanup(func() { _ = g.Close() })
	logs := map[string]*strings.Builder{}
	hosts := map[string]*mcpclient.Client{}
	var mu sync.Mutex
	for _, who := range []string{"anna", "otto"} {
		b := new(strings.Builder)
		logs[who] = b
		hosts[who] = newHost(t, g, func(cfg *mcpclient.Server) {
			cfg.Transport = mcpclient.HTTP{URL: web.URL, Headers: map[string]string{"Authorization": "Bearer " + token + who}}
			cfg.Options.Log = func(m mcpclient.LogMessage) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(b, "%s ", m.Level)
			}
		})
		hosts[who].SetLogLevel("debug")
	}
	check := func(what, anna, otto string) {
		t.Helper()
		logsOf := func(who string) string {
			mu.Lock()
			defer mu.Unlock()
			return strings.TrimSpace(logs[who].String())
		}
		for end := time.Now().Add(5 * time.Second); (len(logsOf("anna")) < len(anna) || len(logsOf("otto")) < len(otto)) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // for messages that should not arrive
		for who, want := range map[string]string{"anna": anna, "otto": otto} {
			if got := logsOf(who); got != want {
				t.Errorf("%s: %s got %q, want %q", what, who, got, want)
			}
			mu.Lock()
			logs[who].Reset()
			mu.Unlock()
		}
	}
	for _, who := range []string{"anna", "otto"} {
		call(t, hosts[who], "a__f", `{}`)
		<-called
		check(who+" alone", map[string]string{"anna": "debug error"}[who], map[string]string{"otto": "debug error"}[who])
	}
	done := make(chan error, 2)
	for _, who := range []string{"anna", "otto"} {
		go func() { _, err := tryCall(t.Context(), hosts[who], "a__g", `{}`); done <- err }()
		<-called
	}
	release <- struct{}{} // the first; the other one is in flight
	<-done
	check("both at the same time", "", "")
	release <- struct{}{}
	<-done
}

// TestLogsOfSubscriptions checks that a subscription counts as a use of the server, as a call does: messages
// about it reach no one else, and a session's own process logs to that session.
func TestLogsOfSubscriptions(t *testing.T) {
	const token = "0123456789abcdef-"
	for own, want := range map[bool]string{false: "", true: "debug error"} {
		t.Run(fmt.Sprint("own process ", own), func(t *testing.T) {
			a := logging("a", nil, nil)
			a.Transport = mcpclient.Dial((&tap{dial: a.Transport.(mcpclient.Dial), capabilities: `"resources":{"subscribe":true},`, results: map[string]string{
				"resources/list":      `{"resources":[{"uri":"x://a","name":"a"}]}`,
				"resources/subscribe": "{}}\n" + `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"alert","data":"otto subscribes"}`,
			}}).connect)
			cfg := mcpgateway.Config{Servers: []mcpclient.Server{a}, Initial: []string{"a"},
				Serve: mcpgateway.ServeOptions{Policy: open, Credentials: []mcpserver.Credential{{Name: "anna", Token: token + "anna"}, {Name: "otto", Token: token + "otto"}}}}
			if own {
				cfg.PerSession = []string{"a"}
			}
			g := newGateway(t, cfg)
			web := httptest.NewServer(g.Server.Handler())
			t.Cleanup(web.Close)
			t.Cleanup(func() { _ = g.Close() })
			var mu sync.Mutex
			logs := map[string][]string{}
			host := func(who string) *mcpclient.Client {
				c := newHost(t, g, func(cfg *mcpclient.Server) {
					cfg.Transport = mcpclient.HTTP{URL: web.URL, Headers: map[string]string{"Authorization": "Bearer " + token + who}}
					cfg.Options.Log = func(m mcpclient.LogMessage) {
						mu.Lock()
						defer mu.Unlock()
						logs[who] = append(logs[who], m.Level)
					}
				})
				c.SetLogLevel("debug")
				return c
			}
			anna, otto := host("anna"), host("otto")
			call(t, anna, "a__f", `{}`)
			if _, err := otto.WatchResource(t.Context(), "mcp://a/x://a", func() {}); err != nil {
				t.Fatal(err)
			}
			call(t, otto, "a__f", `{}`)
			time.Sleep(300 * time.Millisecond) // for messages that should not arrive
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(logs["anna"], " "); got != "debug error" {
				t.Errorf("anna got %s", got)
			}
			if got := strings.Join(logs["otto"], " "); !strings.HasSuffix(got, want) {
				t.Errorf("otto got %s", got)
			}
		})
	}
}
