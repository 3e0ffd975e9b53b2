package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool/host"
)

// askingServer is a server whose tool "ask" sends the client a request and returns the answer. The arguments are
// the method and the params. It speaks 2026-07-28 if modern is set, or else 2025-11-25.
func askingServer(modern bool) script {
	var mu sync.Mutex
	waiting := map[string]chan request{}
	hello := make(chan json.RawMessage, 1) // what the client declares
	return func(msg request, reply func(string)) {
		var p struct {
			Capabilities json.RawMessage              `json:"capabilities"`
			Arguments    struct{ Method, Params any } `json:"arguments"`
			Responses    map[string]json.RawMessage   `json:"inputResponses"`
			State        string                       `json:"requestState"`
			Meta         map[string]json.RawMessage   `json:"_meta"`
		}
		_ = json.Unmarshal(msg.Params, &p)
		switch {
		case msg.Method == "server/discover" && modern:
			reply(msg.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`))
		case modern && len(p.Meta["io.modelcontextprotocol/protocolVersion"]) == 0:
			reply(msg.fail(-32602, "no protocol version in _meta"))
		case msg.Method == "initialize":
			hello <- p.Capabilities
			handleStandard(msg, reply, "")
		case handleStandard(msg, reply, `[{"name":"ask"},{"name":"offers"}]`):
		case msg.name() == "offers" && modern:
			reply(msg.result(`{"structuredContent":` + string(p.Meta["io.modelcontextprotocol/clientCapabilities"]) + `}`))
		case msg.name() == "offers":
			reply(msg.result(`{"structuredContent":` + string(<-hello) + `}`))
		case msg.Method == "tools/call" && modern && p.State == "":
			ask, _ := json.Marshal(p.Arguments)
			ask = []byte(strings.NewReplacer(`"Method"`, `"method"`, `"Params"`, `"params"`).Replace(string(ask)))
			reply(msg.result(`{"resultType":"input_required","requestState":"s1","inputRequests":{"q":` + string(ask) + `}}`))
		case msg.Method == "tools/call" && modern:
			answer := p.Responses["q"]
			reply(msg.result(`{"resultType":"complete","structuredContent":` + string(answer) + `}`))
		case msg.Method == "tools/call":
			ch := make(chan request, 1)
			id := "server-" + string(msg.ID[1:len(msg.ID)-1])
			mu.Lock()
			waiting[id] = ch
			mu.Unlock()
			ask, _ := json.Marshal(p.Arguments.Params)
			reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":%s}`, id, p.Arguments.Method, ask))
			answer := <-ch
			if answer.Result == nil {
				reply(msg.result(`{"isError":true,"content":[{"type":"text","text":"the client refused"}]}`))
				return
			}
			reply(msg.result(`{"structuredContent":` + string(answer.Result) + `}`))
		case msg.Method == "" && msg.ID != nil:
			var id string
			_ = json.Unmarshal(msg.ID, &id)
			mu.Lock()
			defer mu.Unlock()
			if ch := waiting[id]; ch != nil {
				ch <- msg
			}
		}
	}
}

const form = `{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer","default":3}}}}`

func TestWhatServersAsk(t *testing.T) {
	dir := t.TempDir()
	var asked host.Elicitation
	var sampled host.SampleRequest
	cfg := Server{Options: Options{PingInterval: -1, Roots: []string{dir}, Elicitation: func(_ context.Context, q host.Elicitation) (host.Answer, error) {
		asked = q
		if q.URL != "" {
			return host.Answer{Action: host.ActionAccept}, nil
		}
		return host.Answer{Action: host.ActionAccept, Content: map[string]any{"name": "x"}}, nil
	}, Sampling: func(_ context.Context, r host.SampleRequest) (host.Sample, error) {
		sampled = r
		return host.Sample{Model: "m", Text: "yes"}, nil
	}, Limits: Limits{Samples: 1}}}
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern %t", modern), func(t *testing.T) {
			c := memoryClient(t, cfg, askingServer(modern))
			ask := find(t, c, "ask")
			for _, row := range []struct{ method, params, want string }{
				{"elicitation/create", form, `{"action":"accept","content":{"n":3,"name":"x"}}`},
				{"elicitation/create", `{"mode":"url","message":"log in","url":"https://example.com/login","elicitationId":"e1"}`, `{"action":"accept"}`},
				{"roots/list", `{}`, `{"roots":[{"name":"` + filepath.Base(dir) + `","uri":"file://` + dir + `"}]}`},
				{"sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"ok?"}}],"systemPrompt":"s\udb40\udc41","maxTokens":9,"modelPreferences":{"hints":[{"name":"small"}]}}`,
					`{"content":{"text":"yes","type":"text"},"model":"m","role":"assistant","stopReason":"endTurn"}`},
			} {
				res := mustRun(t, ask, fmt.Sprintf(`{"Method":%q,"Params":%s}`, row.method, row.params))
				if string(res.Structured) != row.want {
					t.Errorf("%s %s: %s %q, want %s", row.method, row.params, res.Structured, res.Text(), row.want)
				}
			}
			if asked.URL != "https://example.com/login" || asked.ID != "e1" || asked.Server != "srv" {
				t.Errorf("asked: %+v", asked)
			}
			if sampled.System != "s" || sampled.MaxTokens != 9 || sampled.Messages[0].Text() != "ok?" || sampled.Hints[0] != "small" {
				t.Errorf("sampled: %+v", sampled)
			}
			for _, bad := range []struct{ method, params string }{
				{"sampling/createMessage", `{"messages":[]}`}, // the budget is 1
				{"elicitation/create", `{"message":"x","url":"file:///etc/passwd"}`},
				{"something/else", `{}`},
			} {
				res := mustRun(t, ask, fmt.Sprintf(`{"Method":%q,"Params":%s}`, bad.method, bad.params))
				if res.Outcome != message.OutcomeError {
					t.Errorf("%s: %q", bad.method, res.Text())
				}
			}
		})
	}
}

func TestOnlyHandledRequestsAreDeclared(t *testing.T) {
	elicit := func(context.Context, host.Elicitation) (host.Answer, error) {
		return host.Answer{}, errors.New("not now")
	}
	for _, modern := range []bool{false, true} {
		roots := `{"roots":{"listChanged":true}}`
		if modern { // clients send no notifications there
			roots = `{"roots":{}}`
		}
		for _, row := range []struct {
			cfg  Server
			want string
		}{
			{Server{}, `{}`},
			{Server{Options: Options{Elicitation: elicit}}, `{"elicitation":{"form":{},"url":{}}}`},
			{Server{Options: Options{Roots: []string{}}}, roots},
		} {
			row.cfg.Options.PingInterval = -1
			c := memoryClient(t, row.cfg, askingServer(modern))
			res := mustRun(t, find(t, c, "offers"), `{}`)
			var declared map[string]json.RawMessage
			_ = json.Unmarshal(res.Structured, &declared)
			if got := string(declared["extensions"]); modern != (got == `{"io.modelcontextprotocol/skills":{},"io.modelcontextprotocol/tasks":{}}`) {
				t.Errorf("modern %t: extensions %s", modern, got)
			}
			delete(declared, "extensions")
			if got, _ := json.Marshal(declared); string(got) != row.want {
				t.Errorf("modern %t: %s, want %s", modern, got, row.want)
			}
			if row.cfg.Options.Elicitation == nil {
				res := mustRun(t, find(t, c, "ask"), `{"Method":"elicitation/create","Params":`+form+`}`)
				if res.Outcome != message.OutcomeError {
					t.Errorf("an undeclared request was answered: %q", res.Text())
				}
			}
		}
	}
}

func TestEndlessQuestions(t *testing.T) {
	asked := new(atomic.Int64)
	c := memoryClient(t, Server{Options: Options{PingInterval: -1, Roots: []string{"."}}}, func(msg request, reply func(string)) {
		switch msg.Method {
		case "server/discover":
			reply(msg.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`))
		case "tools/call":
			asked.Add(1)
			reply(msg.result(`{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"roots/list"}}}`))
		default:
			handleStandard(msg, reply, `[{"name":"ask"}]`)
		}
	})
	res := mustRun(t, find(t, c, "ask"), `{}`)
	if !strings.Contains(res.Text(), "the limit for one call") || asked.Load() != maxInputRequests {
		t.Errorf("%d rounds: %q", asked.Load(), res.Text())
	}
}

// TestOffload checks that all parts of a result count, and where the rest is stored.
func TestOffload(t *testing.T) {
	picture := func(n int) string {
		return `{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("AAAA", n/3) + `"}`
	}
	for _, row := range []struct {
		name, result, want string
		files              []string // extensions and sizes of the files
		meta, structured   bool
	}{
		{"it fits", `{"content":[` + picture(300) + `],"structuredContent":{"a":1},"_meta":{"m":1}}`,
			"<image/png 300>", nil, true, true},
		{"long text", `{"content":[{"type":"text","text":"first"},{"type":"text","text":"` + strings.Repeat("abcdefgh", 100) + `é"},` + picture(3) + `]}`,
			"first|(531)…|[N bytes, 600 of which are passed on; image/png (3 bytes) is in FILE; the whole text (809 bytes) is in FILE. Request less.]",
			[]string{"png 3", "txt 809"}, false, false},
		{"a large image", `{"content":[` + picture(900) + `,{"type":"text","text":"below"}],"isError":true}`,
			"below|[N bytes, 600 of which are passed on; image/png (900 bytes) is in FILE. Request less.]", []string{"png 900"}, false, false},
		{"a blob", `{"content":[{"type":"resource","resource":{"uri":"a:b","mimeType":"x/..%2f","blob":"` + strings.Repeat("AAAA", 300) + `"}}],"_meta":{"m":1}}`,
			"[N bytes, 600 of which are passed on; x/..%2f (900 bytes) is in FILE. Request less.]", []string{"bin 900"}, true, false},
		{"structured content", `{"content":[{"type":"text","text":"short"}],"structuredContent":{"a":"` + strings.Repeat("x", 600) + `"}}`,
			"short|[N bytes, 600 of which are passed on; the structured content (608 bytes) is in FILE. Request less.]", []string{"json 608"}, false, false},
		{"metadata", `{"content":[{"type":"text","text":"short"}],"structuredContent":{"a":1},"_meta":{"m":"` + strings.Repeat("x", 600) + `"}}`,
			"short|[N bytes, 600 of which are passed on. Request less.]", nil, false, true},
		{"many images", `{"content":[` + strings.Repeat(picture(900)+",", 20) + picture(3) + `]}`,
			"<image/png 3>|[N bytes, 600 of which are passed on" + strings.Repeat("; image/png (900 bytes) is in FILE", maxOverflowParts) + "; 4 more parts are dropped. Request less.]",
			slices.Repeat([]string{"png 900"}, maxOverflowParts), false, false},
		{"many empty blocks", `{"content":[` + strings.Repeat(`{"type":"text","text":""},`, 40) + picture(3) + `]}`,
			strings.Repeat("|", 17) + "|[N bytes, 600 of which are passed on; image/png (3 bytes) is in FILE; the whole text (40 bytes) is in FILE. Request less.]",
			[]string{"png 3", "txt 40"}, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			for _, cfg := range []Server{{Options: Options{PingInterval: -1, OffloadDir: dir, Limits: Limits{Result: 600}}}, {Options: Options{PingInterval: -1, Limits: Limits{Result: 600}}}} {
				c := memoryClient(t, cfg, func(msg request, reply func(string)) {
					if !handleStandard(msg, reply, `[{"name":"a.b"}]`) && msg.Method == "tools/call" {
						reply(msg.result(row.result))
					}
				})
				res := mustRun(t, find(t, c, "a.b"), `{}`)
				want := row.want
				if cfg.Options.OffloadDir == "" {
					want = strings.ReplaceAll(want, "is in FILE", "is dropped")
				}
				if got := shown(res); got != want {
					t.Errorf("%s\nwant %s", got, want)
				}
				if failed := strings.Contains(row.result, "isError"); (res.Outcome == message.OutcomeError) != failed || res.Meta["m"] != nil != row.meta || res.Structured != nil != row.structured {
					t.Errorf("%s, metadata %s, structured %s", res.Outcome, res.Meta, res.Structured)
				}
			}
			var files []string
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				info, err := e.Info()
				if err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%v %v", info, err)
				}
				files = append(files, fmt.Sprintf("%s %d", strings.TrimPrefix(filepath.Ext(e.Name()), "."), info.Size()))
			}
			slices.Sort(files)
			if !slices.Equal(files, row.files) {
				t.Errorf("files %q, want %q", files, row.files)
			}
		})
	}
}

// shown formats the blocks of a result, with the length of long texts, and without the names of files.
func shown(res *message.ToolResult) string {
	var all []string
	for _, b := range res.Blocks {
		switch b := b.(type) {
		case *message.Text:
			s := regexp.MustCompile(`is in [^;\]]*-\d+\.\w+`).ReplaceAllString(b.Text, "is in FILE")
			s = regexp.MustCompile(`^\[the result has \d+ bytes`).ReplaceAllString(s, "[N bytes")
			if len(s) > 400 && !strings.HasPrefix(s, "[") {
				s = fmt.Sprintf("(%d)…", len(s)-len("…"))
			}
			all = append(all, s)
		case *message.Data:
			all = append(all, fmt.Sprintf("<%s %d>", b.MediaType, len(b.Bytes)))
		}
	}
	return strings.Join(all, "|")
}

func TestConfigErrors(t *testing.T) {
	for _, row := range []struct {
		cfg  Server
		want string
	}{
		{Server{Transport: Command{Path: "x"}}, "the name is empty"},
		{Server{Name: "a"}, "the transport is nil"},
		{Server{Name: "a", Transport: Command{}}, "Command.Path is empty"},
		{Server{Name: "a", Transport: Dial(nil)}, "the Dial is nil"},
		{Server{Name: "a", Transport: HTTP{}}, "not an absolute"},
		{Server{Name: "a", Transport: HTTP{URL: "/x"}}, "not an absolute"},
		{Server{Name: "a", Transport: HTTP{URL: "https://x", OAuth: &OAuth{Authorize: func(context.Context, string) (url.Values, error) { return nil, nil }}}}, "no RedirectURL"},
		{Server{Name: "a", Transport: HTTP{URL: "http://x", OAuth: &OAuth{RedirectURL: "x", Authorize: func(context.Context, string) (url.Values, error) { return nil, nil }}}}, "must be https"},
		{Server{Name: "a", Transport: Command{Path: "x"}, Options: Options{Protocol: "2020-01-01"}}, "2025-11-25"},
		{Server{Name: "a", Transport: HTTP{URL: "http://x", SSE: true}, Options: Options{Protocol: "2026-07-28"}}, "is not available over SSE"},
		{Server{Name: "a", Transport: Command{Path: "x"}, Options: Options{IncludeTools: []string{"["}}}, `"["`},
		{Server{Name: "a", Transport: Command{Path: "x"}, Options: Options{Prefix: "p", NoPrefix: true}}, `Options.Prefix is "p" and Options.NoPrefix is set`},
		{Server{Name: "a", Transport: Command{Path: "x"}, Options: Options{Timeouts: Timeouts{Start: -1}}}, "Options.Timeouts.Start is -1ns; it must not be negative (0: 30 s)"},
		{Server{Name: "a", Transport: Command{Path: "x"}, Options: Options{Timeouts: Timeouts{Idle: -time.Second}}}, "Options.Timeouts.Idle is -1s; it must not be negative"},
		{Server{Name: "a", Transport: Command{Path: "x"}, Options: Options{Timeouts: Timeouts{Call: -1}}}, "Options.Timeouts.Call is -1ns; it must not be negative"},
		{Server{Name: "a", Transport: Command{Path: "x"}, Options: Options{ListTTL: -1}}, "Options.ListTTL is -1ns; it must not be negative"},
		{Server{Name: "a", Transport: Command{Path: "x"}, Options: Options{Limits: Limits{Message: -1}}}, "Options.Limits.Message is -1; it must not be negative"},
		{Server{Name: "a", Transport: Command{Path: "x"}, Options: Options{Limits: Limits{Result: -1}}}, "Options.Limits.Result is -1; it must not be negative"},
	} {
		if _, err := New(row.cfg.Name, row.cfg.Transport, &row.cfg.Options); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v, want %q", row.cfg, err, row.want)
		}
	}
}

func TestFiltersAndPrefix(t *testing.T) {
	tools := `[{"name":"read_a"},{"name":"read_b"},{"name":"write_a"}]`
	c := memoryClient(t, Server{Options: Options{PingInterval: -1, Prefix: "x.", IncludeTools: []string{"read_*", "write_?"}, ExcludeTools: []string{"*_b"}}}, func(msg request, reply func(string)) { handleStandard(msg, reply, tools) })
	list, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Info().Name != "x_read_a" || list[1].Info().Name != "x_write_a" {
		t.Errorf("%v", list)
	}
}

func TestPagesAndGroups(t *testing.T) {
	c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
		var p struct{ Cursor string }
		_ = json.Unmarshal(msg.Params, &p)
		switch {
		case msg.Method == "initialize":
			reply(msg.result(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"groups":{"listChanged":true}},"serverInfo":{"name":"g","version":"1"}}`))
		case msg.Method == "groups/list":
			reply(msg.result(`{"groups":[{"name":"g1","description":"the first"}]}`))
		case msg.Method == "tools/list" && p.Cursor == "":
			reply(msg.result(`{"tools":[{"name":"a","_meta":{"io.modelcontextprotocol/groups":["g1"]}}],"nextCursor":"2"}`))
		case msg.Method == "tools/list": // repeats its cursor
			reply(msg.result(`{"tools":[{"name":"b"}],"nextCursor":"2"}`))
		default:
			handleStandard(msg, reply, "")
		}
	})
	groups, err := c.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != 2 || groups[1].Name != "srv/g1" || groups[1].Description != "the first" || groups[1].Members()[0] != "mcp__srv__a" {
		t.Errorf("%+v", groups)
	}
	if s := c.Skipped(); len(s) != 1 || !strings.Contains(s[0].Reason, "repeats the cursor") {
		t.Errorf("skipped: %v", s)
	}
}

// TestServerWithoutTools checks that a server without tools/list has an empty list, which lasts as long as any other.
func TestServerWithoutTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, ListTTL: time.Minute}}, func(msg request, reply func(string)) {
			if msg.Method != "tools/list" {
				handleStandard(msg, reply, "")
				return
			}
			if lists++; lists == 1 {
				reply(msg.fail(codeMethodNotFound, "no tools here"))
				return
			}
			handleStandard(msg, reply, `[{"name":"new"}]`)
		})
		for _, row := range []struct {
			after        time.Duration
			tools, lists int
		}{{0, 0, 1}, {59 * time.Second, 0, 1}, {2 * time.Second, 1, 2}} {
			time.Sleep(row.after)
			if tools, err := c.Tools(t.Context()); err != nil || len(tools) != row.tools || lists != row.lists {
				t.Errorf("%v, %v after %d lists, want %+v", tools, err, lists, row)
			}
		}
		c.Close()
	})
}

// TestRootURIs checks the URIs of directories on Unix and on Windows.
func TestRootURIs(t *testing.T) {
	for dir, want := range map[string]string{
		"/":                 "file:///",
		"/home/a b/ü#?":     "file:///home/a%20b/%C3%BC%23%3F",
		"/C:/x":             "file:///C:/x",
		"C:/Users/a b":      "file:///C:/Users/a%20b",
		"c:/":               "file:///c:/",
		"//server/share/x":  "file://server/share/x",
		"//server/share":    "file://server/share",
		"//?/C:/very/long":  "file:///C:/very/long",
		"//?/UNC/server/sh": "file://server/sh",
	} {
		if got := fileURI(dir); got != want {
			t.Errorf("%s: %s, want %s", dir, got, want)
		}
	}
}

// TestGroupsThatHang checks that a server that does not answer groups/list keeps its tools, and its previous groups.
func TestGroupsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		hangs.Store(true)
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, ListTTL: time.Minute}}, func(msg request, reply func(string)) {
			switch {
			case msg.Method == "initialize":
				reply(msg.result(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"groups":{}},"serverInfo":{"name":"g","version":"1"}}`))
			case msg.Method == "groups/list" && hangs.Load():
			case msg.Method == "groups/list":
				reply(msg.result(`{"groups":[{"name":"g","description":"told"}]}`))
			default:
				handleStandard(msg, reply, `[{"name":"a","_meta":{"io.modelcontextprotocol/groups":["g"]}}]`)
			}
		})
		for i, want := range []string{"", "told", "told"} {
			hangs.Store(i != 1)
			began := time.Now()
			groups, err := c.Groups(t.Context())
			if err != nil || len(groups) != 1 || groups[0].Description != want || len(groups[0].Members()) != 1 {
				t.Errorf("%d: %+v %v", i, groups, err)
			}
			if skipped := fmt.Sprint(c.Skipped()); strings.Contains(skipped, "groups") != hangs.Load() || time.Since(began) > 10*time.Second {
				t.Errorf("%d: skipped %s after %v", i, skipped, time.Since(began))
			}
			time.Sleep(2 * time.Minute)
		}
	})
}

// TestCallThatChangesTheList checks that after a call the list shows what the call has changed, if the server
// announced the change before the result.
func TestCallThatChangesTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
			if handleStandard(msg, reply, fmt.Sprintf(`[{"name":"grow"},{"name":"leaf%d"}]`, n.Load())) || msg.Method != "tools/call" {
				return
			}
			n.Add(1)
			reply(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			reply(msg.result(`{"content":[]}`))
		})
		notices := 0
		grow := find(t, c, "grow")
		defer c.OnChange(func() { notices++ })()
		for i := range 3 {
			mustRun(t, grow, `{}`)
			if got, want := offered(t, c), fmt.Sprintf("grow leaf%d", i+1); got != want || notices != i+1 {
				t.Errorf("%s after %d notices, want %s", got, notices, want)
			}
		}
	})
}
