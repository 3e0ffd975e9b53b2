package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool/host"
)

// A shelf is a server with prompts, resources and logs.
type shelf struct {
	version, lists atomic.Int64
	broken         atomic.Bool
	said           chan string  // log levels that were set, and answers of the host
	say            func(string) // sends a message; set when the server is initialized
}

func (s *shelf) script(capabilities string) script {
	return func(msg request, reply func(string)) {
		var p struct{ URI, Name, Cursor, Level string }
		_ = json.Unmarshal(msg.Params, &p)
		switch msg.Method {
		case "initialize":
			s.say = reply
			reply(msg.result(`{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"serverInfo":{"name":"shelf","version":"1"}}`))
		case "resources/list", "prompts/list":
			s.lists.Add(1)
			kind, _, _ := strings.Cut(msg.Method, "/")
			switch {
			case s.broken.Load():
				reply(msg.fail(-32603, "not today"))
			case p.Cursor == "":
				reply(msg.result(fmt.Sprintf(`{%q:[{"name":"v%d","uri":"x:y","odd":[1]}],"nextCursor":"2"}`, kind, s.version.Load())))
			default:
				reply(msg.result(fmt.Sprintf(`{%q:[7,{"name":"no URI"},{"uri":"x:z","size":"big"}]}`, kind)))
			}
		case "resources/read", "prompts/get":
			s.fetch(msg, p.URI+p.Name, reply)
		case "logging/setLevel":
			s.said <- p.Level
			reply(msg.result(`{}`))
		case "": // an answer of the host
			s.said <- string(msg.Result) + string(msg.Error)
		default:
			if !handleStandard(msg, reply, `[]`) && msg.ID != nil {
				reply(msg.fail(codeMethodNotFound, "it is a small shelf"))
			}
		}
	}
}

func (s *shelf) fetch(msg request, name string, reply func(string)) {
	switch name {
	case "slow":
		time.Sleep(2 * time.Minute)
	case "crashing":
		if s.version.Add(1) == 1 {
			reply(hangUp)
			return
		}
	case "missing":
		reply(msg.fail(-32002, "there is none"))
		return
	case "ask":
		reply(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}`)
		reply(msg.result(`{"answer":` + <-s.said + `}`))
		return
	}
	var p map[string]json.RawMessage
	_ = json.Unmarshal(msg.Params, &p)
	delete(p, "_meta")
	params, _ := json.Marshal(p)
	reply(msg.result(`{"asked":` + string(params) + `}`))
}

// TestLists checks that lists are kept until the server announces a change, and while it cannot list.
func TestLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shelf
		var notices atomic.Int64
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, s.script(`{"resources":{}}`))
		c.OnResourcesChange(func() { notices.Add(1) })
		c.OnPromptsChange(func() { t.Error("the list of prompts was never asked for") })
		for _, row := range []struct {
			does                    func()
			want                    string
			lists, notices, version int64
		}{
			{func() {}, `{"name":"v0","uri":"x:y","odd":[1]} {"uri":"x:z","size":"big"}`, 2, 0, 1},
			{func() { s.version.Add(1) }, `{"name":"v0","uri":"x:y","odd":[1]} {"uri":"x:z","size":"big"}`, 2, 0, 1},
			{func() { s.say(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`) }, `{"name":"v0","uri":"x:y","odd":[1]} {"uri":"x:z","size":"big"}`, 2, 0, 1},
			{func() { s.say(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`) }, `{"name":"v1","uri":"x:y","odd":[1]} {"uri":"x:z","size":"big"}`, 4, 1, 2},
			{func() {
				s.broken.Store(true)
				s.say(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
			}, `{"name":"v1","uri":"x:y","odd":[1]} {"uri":"x:z","size":"big"}`, 5, 2, 3},
			{func() { s.broken.Store(false); time.Sleep(retryListAfter) }, `{"name":"v1","uri":"x:y","odd":[1]} {"uri":"x:z","size":"big"}`, 7, 2, 3},
			{func() { s.say(hangUp); time.Sleep(time.Minute) }, `{"name":"v1","uri":"x:y","odd":[1]} {"uri":"x:z","size":"big"}`, 9, 3, 4},
		} {
			row.does()
			time.Sleep(time.Second)
			list, err := c.Resources(t.Context())
			var got []string
			for _, r := range list {
				got = append(got, string(r.Raw))
			}
			if err != nil || strings.Join(got, " ") != row.want || s.lists.Load() != row.lists || notices.Load() != row.notices || c.Status().ResourcesVersion != row.version {
				t.Errorf("%s, %v after %d requests, %d notices, version %d; want %+v", got, err, s.lists.Load(), notices.Load(), c.Status().ResourcesVersion, row)
			}
		}
		if got, err := c.Prompts(t.Context()); err != nil || len(got) > 0 {
			t.Errorf("prompts of a server without any: %v, %v", got, err)
		}
		if got, err := c.ResourceTemplates(t.Context()); err != nil || len(got) > 0 {
			t.Errorf("templates of a server without any: %v, %v", got, err)
		}
		if n := s.lists.Load(); n != 9 || c.Status().PromptsVersion != 0 {
			t.Errorf("the server got a request for prompts: %d, %+v", n, c.Status())
		}
		c.Close()
	})
}

// TestFetch checks the contents of resources, that the server's questions meanwhile reach the caller, and that
// errors are those of a tool call.
func TestFetch(t *testing.T) {
	for _, row := range []struct {
		name, want, wantErr string
		code                int
	}{
		{"plain", `{"asked":{"uri":"plain"}} {"asked":{"arguments":{"a":"b"},"name":"plain"}}`, "", 0},
		{"ask", `{"answer":{"action":"accept","content":{}}} {"answer":{"action":"accept","content":{}}}`, "", 0},
		{"crashing", `{"asked":{"uri":"crashing"}} {"asked":{"arguments":{"a":"b"},"name":"crashing"}}`, "", 0},
		{"missing", "", "there is none", -32002},
		{"slow", "", `"slow" reported no progress for 1m`, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := shelf{said: make(chan string)}
				c := memoryClient(t, Server{Options: Options{PingInterval: -1, Elicitation: ElicitCaller}}, s.script(`{"resources":{},"prompts":{}}`))
				ctx := host.With(t.Context(), agreeable{})
				read, err := c.ReadResource(ctx, row.name)
				prompt, err2 := c.GetPrompt(ctx, row.name, map[string]string{"a": "b"})
				all := ""
				if read != nil && prompt != nil {
					all = string(read.Raw) + " " + string(prompt.Raw)
				}
				if all != row.want {
					t.Errorf("%s\nwant %s", all, row.want)
				}
				for _, err := range []error{err, err2} {
					ce, ok := errors.AsType[*CallError](err)
					if (err == nil) != (row.wantErr == "") || err != nil && !strings.Contains(err.Error(), row.wantErr) || ok != (row.code != 0) || ok && ce.Code != row.code {
						t.Errorf("error: %v", err)
					}
				}
				c.Close()
				time.Sleep(time.Hour)
			})
		})
	}
}

// TestReadResource checks that contents become blocks, without characters that people do not see, and that the
// whole result is kept.
func TestReadResource(t *testing.T) {
	for contents, want := range map[string]string{
		`[{"uri":"x:a","text":"he\u200bllo"},{"uri":"x:b","mimeType":"image/png","blob":"aGk="}]`: `hello|image/png:hi`,
		`[]`: "",
		`7`:  "",
	} {
		c := memoryClient(t, Server{}, func(msg request, reply func(string)) {
			switch {
			case msg.Method == "resources/read":
				reply(msg.result(`{"contents":` + contents + `}`))
			default:
				handleStandard(msg, reply, `[]`)
			}
		})
		read, err := c.ReadResource(t.Context(), "x:a")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range read.Blocks {
			switch b := b.(type) {
			case *message.Text:
				got = append(got, b.Text)
			case *message.Data:
				got = append(got, b.MediaType+":"+string(b.Bytes))
			}
		}
		if all := strings.Join(got, "|"); all != want || string(read.Raw) != `{"contents":`+contents+`}` && !strings.Contains(contents, `\u200b`) {
			t.Errorf("%s: %s, want %s; raw %s", contents, all, want, read.Raw)
		}
		c.Close()
	}
}

// agreeable accepts every question.
type agreeable struct{}

func (agreeable) Elicit(context.Context, host.Elicitation) (host.Answer, error) {
	return host.Answer{Action: host.ActionAccept, Content: map[string]any{}}, nil
}

func (agreeable) Sample(context.Context, host.SampleRequest) (host.Sample, error) {
	return host.Sample{}, host.ErrRefused
}

// TestLog checks that the level is sent once, and again after a restart, before the next call; and that log
// messages are passed on.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shelf{said: make(chan string, 10)}
		var logged []LogMessage
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, Log: func(m LogMessage) { logged = append(logged, m) }}}, s.script(`{"logging":{},"resources":{},"tools":{}}`))
		levels := func() (all []string) {
			if _, err := c.ReadResource(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			for len(s.said) > 0 {
				all = append(all, <-s.said)
			}
			return all
		}
		for _, row := range []struct {
			does func()
			want string
		}{
			{func() {}, "[]"},
			{func() { c.SetLogLevel("info") }, "[info]"},
			{func() { c.SetLogLevel("info") }, "[]"},
			{func() { s.say(hangUp); time.Sleep(time.Minute) }, "[info]"},
			{func() { c.SetLogLevel("debug"); time.Sleep(time.Second) }, "[debug]"},
			{func() { c.SetLogLevel("") }, "[emergency]"},
		} {
			row.does()
			if got := fmt.Sprint(levels()); got != row.want {
				t.Errorf("the server got %s, want %s", got, row.want)
			}
		}
		s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"db","data":{"a":[1]}}}`)
		s.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":7}}`)
		synctest.Wait()
		if got := fmt.Sprintf("%s", logged); got != `[{error db {"a":[1]}} {  null}]` {
			t.Errorf("logged %s", got)
		}
		c.Close()
	})
}

// TestLogLevelCancelled checks that the level is still sent if the call that would have sent it is cancelled.
func TestLogLevelCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notices atomic.Int64
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
			switch msg.Method {
			case "initialize":
				reply(msg.result(`{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"resources":{}},"serverInfo":{"name":"l","version":"1"}}`))
			case "logging/setLevel":
				if notices.Add(1) > 1 {
					reply(msg.result(`{}`))
				}
			case "resources/read":
				reply(msg.result(`{"contents":[]}`))
			default:
				handleStandard(msg, reply, `[]`)
			}
		})
		c.SetLogLevel("info")
		hasty, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := c.ReadResource(hasty, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hasty: %v", err)
		}
		for range 2 {
			if _, err := c.ReadResource(t.Context(), "x"); err != nil {
				t.Error(err)
			}
		}
		if n := notices.Load(); n != 2 {
			t.Errorf("the server got the level %d times", n)
		}
		c.Close()
	})
}

// TestLogNumbers checks that log data is passed on as written, however large its numbers are.
func TestLogNumbers(t *testing.T) {
	const data = `{"id":9007199254740993,"at":[1.10,-0,1e400],"name":"a\u00e9</b>\n"}`
	lines := map[string]string{
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":` + data + `}}`:                        data,
		`{"params": {"data": 9007199254740993, "level": "info"}, "method": "notifications\/message", "jsonrpc": "2.0"}`:           "9007199254740993",
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":null}}`:                                "null",
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`:                                            "null",
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","` + rawDataKey + `":"{","data":1}}`:          "1",
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","` + rawDataKey + `":"{"}}`:                   "null",
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 9000) + `"}}`: `"` + strings.Repeat("x", 9000) + `"`,
	}
	for line, want := range lines {
		serve := func(msg request, reply func(string)) {
			if !handleStandard(msg, reply, `[{"name":"log"}]`) && msg.Method == "tools/call" {
				reply(line)
				reply(msg.result(`{"content":[{"type":"text","text":"/message\" 9007199254740993"}]}`))
			}
		}
		for _, cfg := range []Server{{Transport: Dial(inMemory(serve))}, {Transport: HTTP{URL: eventStreams(t, serve)}}} {
			var logged []LogMessage
			cfg.Name, cfg.Options.PingInterval, cfg.Options.Log = "srv", -1, func(m LogMessage) { logged = append(logged, m) }
			c, err := New(cfg.Name, cfg.Transport, &cfg.Options)
			if err != nil {
				t.Fatal(err)
			}
			res := mustRun(t, find(t, c, "log"), `{}`)
			c.Close()
			if len(logged) != 1 || logged[0].Level != "info" || string(logged[0].Data) != want || res.Text() != `/message" 9007199254740993` {
				t.Errorf("%.200s: %q, logged %.300s", line, res.Text(), logged)
			}
		}
	}
}

// TestLogLevelOfEachRequest checks that servers of 2026-07-28 get the level with each request.
func TestLogLevelOfEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := make(chan string, 100)
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, Protocol: "2026-07-28"}}, func(msg request, reply func(string)) {
			var p struct {
				Meta map[string]any `json:"_meta"`
			}
			_ = json.Unmarshal(msg.Params, &p)
			meta <- fmt.Sprint(p.Meta["io.modelcontextprotocol/logLevel"])
			reply(msg.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"resources":{}},"contents":[]}`))
		})
		for level, want := range map[string]string{"": "<nil>", "warning": "warning"} {
			c.SetLogLevel(level)
			if _, err := c.ReadResource(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			got := ""
			for len(meta) > 0 {
				got = <-meta
			}
			if got != want {
				t.Errorf("level %q: %s", level, got)
			}
		}
		c.Close()
	})
}
