package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// nameForm asks for a name.
var nameForm = json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)

// asking returns tools that ask the client: "greet" asks the user, "think" the model, "where" for the roots,
// "all" these three at once, and "twice" two questions one after the other. ran counts how often one was
// started.
func asking(ran *atomic.Int64, gone chan error) *toolkit.Toolkit {
	ask := func(ctx context.Context, id string) (string, error) {
		a, err := host.From(ctx).Elicit(ctx, host.Elicitation{ID: id, Message: "Your name?", Schema: nameForm})
		return fmt.Sprint(a.Action, " ", a.Content["name"]), err
	}
	think := func(ctx context.Context) (string, error) {
		s, err := host.From(ctx).Sample(ctx, host.SampleRequest{Messages: []*message.Message{message.User("hi")}})
		return s.Text, err
	}
	where := func(ctx context.Context) (string, error) {
		uris, err := mcpserver.Roots(ctx)
		return strings.Join(uris, ","), err
	}
	newTool := func(name string, fn func(ctx context.Context) (string, error)) tool.Tool {
		return tool.Must(tool.New(name, "Asks.", func(ctx context.Context, _ none) (string, error) {
			ran.Add(1)
			text, err := fn(ctx)
			if gone != nil && ctx.Err() != nil {
				gone <- context.Cause(ctx)
			}
			return text, err
		}))
	}
	return toolkit.Of(
		newTool("greet", func(ctx context.Context) (string, error) { return ask(ctx, "who") }),
		newTool("think", think),
		newTool("where", where),
		newTool("twice", func(ctx context.Context) (string, error) {
			a, err := ask(ctx, "first")
			b, err2 := ask(ctx, "")
			return a + "; " + b, errors.Join(err, err2)
		}),
		newTool("all", func(ctx context.Context) (string, error) {
			var texts [3]string
			err := mcpserver.Together(ctx,
				func(ctx context.Context) (err error) { texts[0], err = ask(ctx, "who"); return err },
				func(ctx context.Context) (err error) { texts[1], err = think(ctx); return err },
				func(ctx context.Context) (err error) { texts[2], err = where(ctx); return err })
			return strings.Join(texts[:], "; "), err
		}),
	)
}

// TestToolsAsk checks that our client answers the questions of tools, in revisions with and without sessions.
func TestToolsAsk(t *testing.T) {
	var ran atomic.Int64
	s := serve(t, mcpserver.Config{Toolkit: asking(&ran, nil), Policy: open})
	url := listen(t, s)
	dir := t.TempDir()
	for _, row := range []struct {
		name string
		cfg  mcpclient.Server
	}{
		{"2025 over HTTP", mcpclient.Server{Transport: mcpclient.HTTP{URL: url}, Options: mcpclient.Options{Protocol: "2025-11-25"}}},
		{"2025 over stdio", mcpclient.Server{Transport: mcpclient.Dial(dialStdio(s)), Options: mcpclient.Options{Protocol: "2025-11-25"}}},
		{"2026 over HTTP", mcpclient.Server{Transport: mcpclient.HTTP{URL: url}, Options: mcpclient.Options{Protocol: "2026-07-28"}}},
		{"2026 over stdio", mcpclient.Server{Transport: mcpclient.Dial(dialStdio(s)), Options: mcpclient.Options{Protocol: "2026-07-28"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.cfg.Options.Elicitation = func(_ context.Context, q host.Elicitation) (host.Answer, error) {
				return host.Answer{Action: host.ActionAccept, Content: map[string]any{"name": "Ada"}}, nil
			}
			row.cfg.Options.Sampling = func(context.Context, host.SampleRequest) (host.Sample, error) {
				return host.Sample{Model: "m", Text: "hm"}, nil
			}
			row.cfg.Options.Roots = []string{dir}
			c := connect(t, row.cfg)
			for _, call1 := range []struct{ tool, want string }{
				{"greet", "accept Ada"}, {"think", "hm"}, {"where", "file://" + dir}, {"twice", "accept Ada; accept Ada"},
				{"all", "accept Ada; hm; file://" + dir},
			} {
				ran.Store(0)
				if res := call(t, c, call1.tool, `{}`); res.Text() != call1.want || ran.Load() != 1 {
					t.Errorf("%s: %q, started %d times, want %q, once", call1.tool, res.Text(), ran.Load(), call1.want)
				}
			}
		})
	}
	// A client that declares no capabilities is not asked.
	c := connect(t, mcpclient.Server{Transport: mcpclient.HTTP{URL: url}, Options: mcpclient.Options{Protocol: "2025-11-25"}})
	for _, row := range []struct{ tool, want string }{{"greet", "cancel"}, {"think", `capability "sampling"`}, {"where", `capability "roots"`}} {
		if res := call(t, c, row.tool, `{}`); !strings.Contains(res.Text(), row.want) {
			t.Errorf("%s: %q, want %q", row.tool, res.Text(), row.want)
		}
	}
}

// A modern client sends the requests of the new era by hand.
type modern struct {
	*wire
	caps string
}

func newModern(t *testing.T, url, token, caps string) *modern {
	w := newWire(t, url)
	w.token = token
	return &modern{w, caps}
}

// send sends a request; name is the name of the tool, the prompt or the resource.
func (m *modern) send(ctx context.Context, method, name, extra string) (int, string) {
	m.t.Helper()
	m.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
	key := "name"
	if method == "resources/read" || method == "skills/get" {
		key = "uri"
	}
	if strings.HasPrefix(method, "tasks/") {
		key = "taskId"
	}
	status, got := m.post(ctx, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{"`+key+`":"`+name+`"`+extra+
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+m.caps+`}}}`)
	if len(got) == 0 {
		return status, ""
	}
	return status, got[len(got)-1]
}

// asked sends the request and returns the state that came with the question.
func (m *modern) asked(method, name, extra string) string {
	m.t.Helper()
	_, got := m.send(m.t.Context(), method, name, extra)
	var res struct{ Result struct{ RequestState string } }
	if json.Unmarshal([]byte(got), &res) != nil || res.Result.RequestState == "" {
		m.t.Fatalf("no question: %s", got)
	}
	return res.Result.RequestState
}

// TestParkedCalls checks good and bad answers of clients without sessions to the questions of calls.
func TestParkedCalls(t *testing.T) {
	var ran atomic.Int64
	url := listen(t, serve(t, mcpserver.Config{Toolkit: asking(&ran, nil), Policy: open, Credentials: []mcpserver.Credential{
		{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB},
	}}))
	const able = `{"elicitation":{},"sampling":{},"roots":{}}`
	anna, otto := newModern(t, url, tokenA, able), newModern(t, url, tokenB, able)
	lame := newModern(t, url, tokenA, `{}`)
	half := newModern(t, url, tokenA, `{"elicitation":{}}`)
	state := func(s string) string { return `,"requestState":"` + s + `"` }
	who := func(answer string) string { return `,"inputResponses":{"who":` + answer + `}` }
	const ada = `{"action":"accept","content":{"name":"Ada"}}`
	mine, gone := anna.asked("tools/call", "greet", ""), anna.asked("tools/call", "greet", "")
	partly := anna.asked("tools/call", "all", "")
	for _, row := range []struct {
		why        string
		w          *modern
		name, with string
		status     int
		want       string
	}{
		{"of another client", otto, "greet", state(mine) + who(ada), 400, "another request"},
		{"of another tool", anna, "think", state(mine) + who(ada), 400, "another request"},
		{"with other arguments", anna, "greet", state(mine) + who(ada) + `,"arguments":{"x":1}`, 400, "another request"},
		{"changed", anna, "greet", state(mine+"x") + who(ada), 400, "not from this server"},
		{"right", anna, "greet", state(mine) + who(ada), 200, "accept Ada"},
		{"again", anna, "greet", state(mine) + who(ada), 400, "has ended"},
		{"declined", anna, "greet", state(gone) + who(`{"action":"decline"}`), 200, "decline"},
		{"an answer of the wrong kind", anna, "greet", who("12345"), 200, "input_required"},
		{"an answer to something else", anna, "greet", `,"inputResponses":{"other":` + ada + `}`, 200, "input_required"},
		{"answers that are not an object", anna, "greet", `,"inputResponses":[1]`, 400, "inputResponses"},
		{"an answer before the question", anna, "greet", who(ada), 200, "accept Ada"},
		{"content that does not fit the form", anna, "greet", who(`{"action":"accept","content":{"name":7}}`), 200, `"isError":true`},
		{"some of the answers", anna, "all", state(partly) + who(ada), 200, `"question-`},
		{"a missing capability", lame, "think", "", 400, `"requiredCapabilities":{"sampling":{}}`},
		{"one missing capability of two", half, "where", "", 400, `"requiredCapabilities":{"roots":{}}`},
		{"no capability to ask is not an error", lame, "greet", "", 200, "cancel"},
	} {
		if status, got := row.w.send(t.Context(), "tools/call", row.name, row.with); status != row.status || !strings.Contains(got, row.want) {
			t.Errorf("%s: %d %s, want %d %q", row.why, status, got, row.status, row.want)
		}
	}
}

// TestParkedCompletion checks that the answer to the question of one completion is not used for another.
func TestParkedCompletion(t *testing.T) {
	ask := func(ctx context.Context, typed string, _ map[string]string) ([]string, error) {
		a, err := host.From(ctx).Elicit(ctx, host.Elicitation{ID: "who", Message: "Who?", Schema: nameForm})
		return []string{fmt.Sprint(typed, a.Content["name"])}, err
	}
	get := func(context.Context, map[string]string) ([]*message.Message, error) { return nil, nil }
	m := newModern(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(), Prompts: []mcpserver.Prompt{
		{Name: "p", Get: get, Arguments: []mcpserver.Argument{{Name: "a", Complete: ask}}}}})), "", `{"elicitation":{}}`)
	const first = `,"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"1"}`
	for with, want := range map[string]string{
		first: `"1Ada"`,
		`,"argument":{"value":"1","name":"a"},"ref":{"name":"p","type":"ref/prompt"}`: `"1Ada"`,
		`,"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"2"}`: "another request",
		`,"ref":{"type":"ref/prompt","name":"q"},"argument":{"name":"a","value":"1"}`: "another request",
		first + `,"context":{"arguments":{"b":"2"}}`:                                  "another request",
	} {
		answer := `,"requestState":"` + m.asked("completion/complete", "", first) + `","inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}}`
		if _, got := m.send(t.Context(), "completion/complete", "", answer+with); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", with, got, want)
		}
	}
}

// TestParkedCallEncodedAnew checks that a client may encode the same arguments differently when it sends an
// answer. A permission, however, is only for the exact bytes that run.
func TestParkedCallEncodedAnew(t *testing.T) {
	type pair struct{ A, B int }
	greet := tool.Must(tool.New("greet", "Greets.", func(ctx context.Context, in pair) (string, error) {
		a, err := host.From(ctx).Elicit(ctx, host.Elicitation{ID: "who", Message: "Who?", Schema: nameForm})
		return fmt.Sprint(a.Content["name"], in.A, in.B), err
	}))
	const ada = `,"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}},"allow":{"action":"accept"}}`
	for _, row := range []struct {
		args  string
		want  string // of the answer to a question of the call
		allow bool   // the user has allowed it
	}{
		{`{"A":1,"B":2}`, "Ada1 2", true},
		{`{"B":2, "A":1}`, "Ada1 2", false},
		{` { "A" : 1 , "\u0042" : 2 } `, "Ada1 2", false},
		{`{"A":"1","B":2}`, "another request", true}, // the arguments that were shown are the ones that run
		{`{"A":1,"B":3}`, "another request", false},
		{`{"A":1}`, "another request", false},
		{`{"A":1,"B":3,"B":2}`, "occurs twice", false},
		{`{"A":1,"B":2,"C":{}}`, "another request", false},
	} {
		const asked = `,"arguments":{"A":1,"B":2}`
		m := newModern(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(greet), Policy: open})), "", `{"elicitation":{}}`)
		answer := `,"requestState":"` + m.asked("tools/call", "greet", asked) + `"` + ada
		if _, got := m.send(t.Context(), "tools/call", "greet", answer+`,"arguments":`+row.args); !strings.Contains(got, row.want) {
			t.Errorf("%s: %s, want %q", row.args, got, row.want)
		}
		m = newModern(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(greet)})), "", `{"elicitation":{}}`)
		answer = `,"requestState":"` + m.asked("tools/call", "greet", asked) + `"` + ada
		_, got := m.send(t.Context(), "tools/call", "greet", answer+`,"arguments":`+row.args)
		if strings.Contains(got, "Ada1 2") != row.allow {
			t.Errorf("by a permission, %s: %s", row.args, got)
		}
	}
}

// TestLateQuestions checks questions from a goroutine that outlives its call, with a context that does not end:
// no one can answer, and nothing is sent any more.
func TestLateQuestions(t *testing.T) {
	ended, got := make(chan struct{}), make(chan host.Answer, 1)
	late := tool.Must(tool.New("late", "Asks too late.", func(ctx context.Context, _ none) (string, error) {
		go func() {
			<-ended
			a, err := host.From(ctx).Elicit(context.WithoutCancel(ctx), host.Elicitation{Message: "?", Schema: nameForm})
			if err != nil {
				t.Errorf("a late question: %v", err)
			}
			got <- a
		}()
		return "done", nil
	}))
	url := listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(late), Policy: open}))
	old, now := newWire(t, url), newModern(t, url, "", `{"elicitation":{}}`)
	old.initialize(`{"elicitation":{}}`)
	for era, call := range map[string]func() string{
		"2025": func() string { return old.rpc("tools/call", `{"name":"late"}`)[0] },
		"2026": func() string { _, res := now.send(t.Context(), "tools/call", "late", ""); return res },
	} {
		if res := call(); !strings.Contains(res, "done") {
			t.Errorf("%s: %s", era, res)
		}
		ended <- struct{}{}
		if a := <-got; a.Action != host.ActionCancel {
			t.Errorf("%s: %+v", era, a)
		}
	}
}

// TestForgottenParkedCalls checks that parked calls end when the client does not return in time, when there are
// too many of them, and when the server ends.
func TestForgottenParkedCalls(t *testing.T) {
	var ran atomic.Int64
	gone := make(chan error, 100)
	s := serve(t, mcpserver.Config{Toolkit: asking(&ran, gone), Policy: open, Limits: mcpserver.Limits{Ask: 50 * time.Millisecond, Calls: 1}})
	m := newModern(t, listen(t, s), "", `{"elicitation":{}}`)
	late := m.asked("tools/call", "greet", "")
	if err := <-gone; err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Errorf("the call ended with %v", err)
	}
	if status, got := m.send(t.Context(), "tools/call", "greet", `,"requestState":"`+late+`"`); status != 400 || !strings.Contains(got, "has ended") {
		t.Errorf("too late: %d %s", status, got)
	}

	s = serve(t, mcpserver.Config{Toolkit: asking(&ran, gone), Policy: open, Limits: mcpserver.Limits{Calls: 1}})
	m = newModern(t, listen(t, s), "", `{"elicitation":{}}`)
	const capacity = 16 // for calls of clients without sessions, times Limits.Calls
	for range capacity {
		m.asked("tools/call", "greet", "")
	}
	if status, got := m.send(t.Context(), "tools/call", "greet", ""); status != 400 || !strings.Contains(got, "too many calls wait") {
		t.Errorf("one more: %d %s", status, got)
	}
	<-gone
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range capacity {
		<-gone
	}
}

// TestSessionDone checks that calls of one session have the same channel, which is closed when the session ends.
func TestSessionDone(t *testing.T) {
	got := make(chan (<-chan struct{}), 1)
	probe := tool.Must(tool.New("probe", "Probes.", func(ctx context.Context, _ none) (string, error) {
		got <- mcpserver.SessionDone(ctx)
		return "ok", nil
	}))
	s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(probe), Policy: open})
	one, two := connect(t, mcpclient.Server{Transport: mcpclient.Dial(dialStdio(s)), Options: mcpclient.Options{Protocol: "2025-11-25"}}), connect(t, mcpclient.Server{Transport: mcpclient.Dial(dialStdio(s)), Options: mcpclient.Options{Protocol: "2025-11-25"}})
	of := func(c *mcpclient.Client) <-chan struct{} {
		call(t, c, "probe", `{}`)
		return <-got
	}
	first, other := of(one), of(two)
	if of(one) != first || first == other {
		t.Error("calls of one session have different channels, or two sessions have the same")
	}
	select {
	case <-first:
		t.Error("the session has not ended")
	default:
	}
	_ = one.Close()
	select {
	case <-first:
	case <-time.After(10 * time.Second):
		t.Error("the session has ended")
	}
	modern := connect(t, mcpclient.Server{Transport: mcpclient.Dial(dialStdio(s)), Options: mcpclient.Options{Protocol: "2026-07-28"}})
	if a, b := of(modern), of(modern); a == b {
		t.Error("without sessions, two calls have the same channel")
	} else {
		<-a
	}
	if plain := t.Context(); mcpserver.SessionDone(plain) != plain.Done() {
		t.Error("a context without a call has another channel than its own")
	}
}
