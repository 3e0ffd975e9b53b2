package mcpclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// A recorder is a host that records the questions it gets, and answers with its name.
type recorder struct {
	name string
	wait time.Duration

	mu    sync.Mutex
	asked []string
}

func (r *recorder) Elicit(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	r.mu.Lock()
	r.asked = append(r.asked, q.Message)
	r.mu.Unlock()
	select {
	case <-time.After(r.wait):
		return host.Answer{Action: host.ActionAccept, Content: map[string]any{"name": r.name}}, nil
	case <-ctx.Done():
		return host.Answer{}, context.Cause(ctx)
	}
}

func (r *recorder) Sample(context.Context, host.SampleRequest) (host.Sample, error) {
	return host.Sample{}, fmt.Errorf("%w: %s says no", host.ErrRefused, r.name)
}

func (r *recorder) questions() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.asked, ",")
}

var callers = Server{Options: Options{PingInterval: -1, Elicitation: ElicitCaller, Sampling: SampleCaller, Timeouts: Timeouts{Idle: time.Minute}}}

// asker is a server of 2025-11-25 with two tools. wait takes the seconds in its argument. ask waits as long,
// asks its question several times at once, and returns the answers. It still asks after the call was cancelled.
func asker() script {
	var mu sync.Mutex
	waiting := map[string]chan request{}
	next := 0
	ask := func(question string, reply func(string)) chan request {
		mu.Lock()
		defer mu.Unlock()
		next++
		id, ch := fmt.Sprintf("s%d", next), make(chan request, 1)
		waiting[`"`+id+`"`] = ch
		go reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"elicitation/create","params":%s}`, id, question))
		return ch
	}
	return func(msg request, reply func(string)) {
		var p struct {
			Arguments struct {
				Wait, Times int
				Late        bool // answer first, then ask
				Question    json.RawMessage
			}
		}
		_ = json.Unmarshal(msg.Params, &p)
		a := p.Arguments
		switch {
		case handleStandard(msg, reply, `[{"name":"wait"},{"name":"ask"}]`):
		case msg.Method == "tools/call":
			if a.Late {
				reply(msg.result(`{}`))
			}
			time.Sleep(time.Duration(a.Wait) * time.Second)
			var chs []chan request
			for range a.Times {
				chs = append(chs, ask(string(a.Question), reply))
			}
			var out []string
			for _, ch := range chs {
				var got request
				select {
				case got = <-ch:
				case <-time.After(time.Hour): // the client has left
					return
				}
				if got.Result == nil {
					got.Result = got.Error
				}
				out = append(out, string(got.Result))
			}
			text, _ := json.Marshal(strings.Join(out, "\n"))
			reply(msg.result(`{"content":[{"type":"text","text":` + string(text) + `}]}`))
		case msg.Method == "" && msg.ID != nil:
			mu.Lock()
			defer mu.Unlock()
			if ch := waiting[string(msg.ID)]; ch != nil {
				ch <- msg
			}
		}
	}
}

// question is a form with one field.
func question(text string) string {
	return `{"message":"` + text + `","requestedSchema":{"type":"object","properties":{"name":{"type":"string","minLength":2}}}}`
}

// TestWhoIsAsked makes calls of several hosts on one connection, where a question does not name its call.
func TestWhoIsAsked(t *testing.T) {
	type callOf struct {
		who   string
		start int    // second
		args  string // of ask
		stop  int    // the second at which it is cancelled; 0 for never
	}
	asks := func(wait int) string {
		return fmt.Sprintf(`{"wait":%d,"times":1,"question":%s}`, wait, question("Q"))
	}
	waits := func(seconds int) string { return fmt.Sprintf(`{"wait":%d}`, seconds) }
	for _, row := range []struct {
		why         string
		calls       []callOf // the last one is checked
		want        string   // in its result
		anna, berta string   // the questions that they got
	}{
		{"one call", []callOf{{who: "anna", args: asks(1)}}, `{"action":"accept","content":{"name":"anna"}}`, "Q", ""},
		{"two of one host", []callOf{{who: "anna", args: waits(9)}, {who: "anna", args: asks(1)}}, `"name":"anna"`, "Q", ""},
		{"two of two", []callOf{{who: "berta", args: waits(9)}, {who: "anna", args: asks(1)}}, "calls of several hosts", "", ""},
		{"two of two, in the other order", []callOf{{who: "anna", args: waits(9)}, {who: "berta", args: asks(1)}}, "calls of several hosts", "", ""},
		{"one after the other", []callOf{{who: "berta", args: waits(1)}, {who: "anna", start: 2, args: asks(1)}}, `"name":"anna"`, "Q", ""},
		{"next to a call without a host", []callOf{{args: waits(9)}, {who: "anna", args: asks(1)}}, "calls of several hosts", "", ""},
		{"without a host", []callOf{{args: asks(1)}}, `{"action":"cancel"}`, "", ""},
		{"after another host's call was cancelled, which the server may not know", []callOf{{who: "berta", args: waits(9), stop: 1}, {who: "anna", start: 2, args: asks(1)}}, "calls of several hosts", "", ""},
		{"after one of its own calls was cancelled", []callOf{{who: "anna", args: waits(9), stop: 1}, {who: "anna", start: 2, args: asks(1)}}, `"name":"anna"`, "Q", ""},
		{"long after a call was cancelled", []callOf{{who: "berta", args: waits(9), stop: 1}, {who: "anna", start: 70, args: asks(1)}}, `"name":"anna"`, "Q", ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := memoryClient(t, callers, asker())
				tl := find(t, c, "ask")
				people := map[string]*recorder{"anna": {name: "anna"}, "berta": {name: "berta"}}
				last := make(chan string, 1)
				var wg sync.WaitGroup
				for i, call := range row.calls {
					wg.Go(func() {
						time.Sleep(time.Duration(call.start) * time.Second)
						ctx := t.Context()
						if h := people[call.who]; h != nil {
							ctx = host.With(ctx, h)
						}
						if call.stop > 0 {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, time.Duration(call.stop)*time.Second)
							defer cancel()
						}
						res, err := run(ctx, tl, call.args)
						if i == len(row.calls)-1 {
							last <- fmt.Sprint(res.Text(), err)
						}
					})
				}
				wg.Wait()
				if got := <-last; !strings.Contains(got, row.want) {
					t.Errorf("%s, want %s", got, row.want)
				}
				if a, b := people["anna"].questions(), people["berta"].questions(); a != row.anna || b != row.berta {
					t.Errorf("anna was asked %q, berta %q; want %q, %q", a, b, row.anna, row.berta)
				}
				c.Close()
				time.Sleep(2 * time.Hour) // the server ends too
			})
		})
	}
}

// TestQuestionsOfAServer checks the limits on a server's questions to a user.
func TestQuestionsOfAServer(t *testing.T) {
	ask := func(times int, q string) string { return fmt.Sprintf(`{"times":%d,"question":%s}`, times, q) }
	for _, row := range []struct {
		why, args string
		answer    string // of the user
		want      string
		asked     int
	}{
		{"an answer that does not fit", ask(1, question("Q")), "x", "the answer cannot be sent", 1},
		{"a huge text", ask(1, question(strings.Repeat("long ", 1<<17))), "anna", `"name":"anna"`, 1},
		{"a huge form", ask(1, `{"message":"Q","requestedSchema":{"type":"object","properties":{},"title":"`+strings.Repeat("x", 1<<17)+`"}}`), "anna", "65536 are allowed", 0},
		{"a flood", ask(1000, question("Q")), "anna", "more than 20 requests", maxOpenRequests},
		{"a script for a page", ask(1, `{"mode":"url","message":"Q","url":"javascript:alert(1)"}`), "", "not a web page", 0},
		{"a page that hides its host", ask(1, `{"mode":"url","message":"Q","url":"https://bank.example@evil.example/"}`), "", `its host is`, 0},
		{"a form that says it is a page", ask(1, `{"mode":"url","message":"Q","requestedSchema":{"type":"object"}}`), "", "the mode", 0},
		{"a mode of the future", ask(1, `{"mode":"hologram","message":"Q"}`), "", "the mode", 0},
		{"not a question", ask(1, `7`), "", "-32602", 0},
		{"after the call", `{"late":true,"wait":1,"times":1,"question":` + question("Q") + `}`, "anna", "", 0},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := memoryClient(t, callers, asker())
				tl := find(t, c, "ask")
				h := &recorder{name: row.answer, wait: time.Second}
				res, err := run(host.With(t.Context(), h), tl, row.args)
				if err != nil || !strings.Contains(res.Text(), row.want) {
					t.Errorf("%.300s %v, want %q", res.Text(), err, row.want)
				}
				time.Sleep(time.Minute)
				if h.mu.Lock(); len(h.asked) > row.asked || row.asked > 0 && len(h.asked) == 0 {
					t.Errorf("the user was asked %d times, want %d", len(h.asked), row.asked)
				}
				for _, q := range h.asked {
					if len(q) > 9<<10 {
						t.Errorf("the user was shown %d bytes", len(q))
					}
				}
				h.mu.Unlock()
				c.Close()
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// TestUserMayTakeTime checks that a call does not time out while the user thinks, that it does while the server
// is silent, and that the question ends with the call.
func TestUserMayTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := callers
		cfg.Options.Timeouts.Call = 10 * time.Minute
		c := memoryClient(t, cfg, asker())
		tl := find(t, c, "ask")
		args := `{"times":1,"question":` + question("Q") + `}`
		h := &recorder{name: "anna", wait: 5 * time.Minute}
		if res, err := run(host.With(t.Context(), h), tl, args); err != nil || !strings.Contains(res.Text(), "anna") {
			t.Errorf("%v, %v", res, err)
		}
		if res, err := run(host.With(t.Context(), h), tl, `{"wait":90}`); err == nil && res.Outcome == message.OutcomeSuccess {
			t.Error("a silent call did not time out")
		}
		start := time.Now()
		h.wait = time.Hour
		if res, err := run(host.With(t.Context(), h), tl, args); err == nil && res.Outcome == message.OutcomeSuccess {
			t.Error("a question outlived its call")
		}
		if d := time.Since(start); d != 10*time.Minute {
			t.Errorf("the call lasted %v, want Timeouts.Call", d)
		}
		c.Close()
		time.Sleep(2 * time.Hour)
	})
}

// TestQuestionCancelled checks a server that cancels its question.
func TestQuestionCancelled(t *testing.T) {
	for _, id := range []string{`"q1"`, `7`} {
		closed := make(chan struct{})
		cfg := Server{Options: Options{PingInterval: -1, Elicitation: func(ctx context.Context, _ host.Elicitation) (host.Answer, error) {
			<-ctx.Done()
			close(closed)
			return host.Answer{}, ctx.Err()
		}}}
		c := memoryClient(t, cfg, func(msg request, reply func(string)) {
			if !handleStandard(msg, reply, `[{"name":"a"}]`) && msg.Method == "tools/call" {
				reply(`{"jsonrpc":"2.0","id":` + id + `,"method":"elicitation/create","params":` + question("Q") + `}`)
				for reply(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"another"}}`); ; {
					reply(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
					select {
					case <-closed:
						reply(msg.result(`{}`))
						return
					case <-time.After(10 * time.Millisecond): // the question may not be registered yet
					}
				}
			}
		})
		mustRun(t, find(t, c, "a"), `{}`)
	}
}

// TestSampleRefused checks that a server gets the protocol's error if the host refuses.
func TestSampleRefused(t *testing.T) {
	var code atomic.Int64
	for _, modern := range []bool{false, true} {
		code.Store(0)
		inner := askingServer(modern)
		c := memoryClient(t, callers, func(msg request, reply func(string)) {
			var e struct{ Code int64 }
			if json.Unmarshal(msg.Error, &e) == nil {
				code.Store(e.Code)
			}
			inner(msg, reply)
		})
		ctx := host.With(t.Context(), &recorder{name: "anna"})
		res, err := run(ctx, find(t, c, "ask"), `{"Method":"sampling/createMessage","Params":{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}}`)
		if err == nil && res.Outcome == message.OutcomeSuccess || !modern && code.Load() != -1 {
			t.Errorf("modern %t: %v, %v, code %d", modern, res, err, code.Load())
		}
		if modern && !strings.Contains(res.Text(), "anna says no") {
			t.Errorf("the result is %q", res.Text())
		}
	}
}

// TestCertainCallers makes calls of two hosts where a question certainly belongs to one of them: in the
// revisions without sessions, and over HTTP on the stream of the call's response.
func TestCertainCallers(t *testing.T) {
	legacy := callers
	legacy.Name, legacy.Transport, legacy.Options.Protocol = "srv", HTTP{URL: httpAsker(t)}, "2025-11-25"
	overHTTP, err := New(legacy.Name, legacy.Transport, &legacy.Options)
	if err != nil {
		t.Fatal(err)
	}
	defer overHTTP.Close()
	for _, row := range []struct {
		why  string
		c    *Client
		args string
	}{
		{"2026-07-28", memoryClient(t, callers, askingServer(true)), `{"Method":"elicitation/create","Params":%s}`},
		{"2025-11-25 over HTTP", overHTTP, `{"question":%s}`},
	} {
		tl := find(t, row.c, "ask")
		var wg sync.WaitGroup
		for i := range 8 {
			h := &recorder{name: fmt.Sprintf("p%d", i), wait: 50 * time.Millisecond}
			wg.Go(func() {
				mine := "for " + h.name
				res, err := run(host.With(t.Context(), h), tl, fmt.Sprintf(row.args, question(mine)))
				if err != nil || !strings.Contains(string(res.Structured), `"name":"`+h.name+`"`) || h.questions() != mine {
					t.Errorf("%s: %v, %v; %s was asked %q", row.why, res, err, h.name, h.questions())
				}
			})
		}
		wg.Wait()
	}
}

// httpAsker serves a server of 2025-11-25 over HTTP whose tool asks on the stream of the response.
func httpAsker(t *testing.T) (url string) {
	var next atomic.Int64
	var waiting sync.Map // id → chan request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var msg request
		if r.Method != http.MethodPost || json.NewDecoder(bufio.NewReader(r.Body)).Decode(&msg) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if msg.Method != "tools/call" {
			if ch, ok := waiting.Load(string(msg.ID)); ok && msg.Method == "" {
				ch.(chan request) <- msg
			}
			w.Header().Set("Content-Type", "application/json")
			if !handleStandard(msg, func(line string) { fmt.Fprint(w, line) }, `[{"name":"ask"}]`) {
				w.WriteHeader(http.StatusAccepted)
			}
			return
		}
		var p struct {
			Arguments struct{ Question json.RawMessage }
		}
		_ = json.Unmarshal(msg.Params, &p)
		id, ch := fmt.Sprintf(`"s%d"`, next.Add(1)), make(chan request, 1)
		waiting.Store(id, ch)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"elicitation/create\",\"params\":%s}\n\n", id, p.Arguments.Question)
		w.(http.Flusher).Flush()
		select {
		case got := <-ch:
			fmt.Fprintf(w, "data: %s\n\n", msg.result(`{"structuredContent":`+string(got.Result)+`}`))
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestLostAnswer checks that an answer is sent again that a balancer could not deliver, as when a replica of the server has died.
func TestLostAnswer(t *testing.T) {
	to, err := url.Parse(httpAsker(t))
	if err != nil {
		t.Fatal(err)
	}
	balancer := httputil.NewSingleHostReverseProxy(to)
	balancer.FlushInterval = -1
	var answers atomic.Int64
	srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"result"`)) {
			switch answers.Add(1) {
			case 1:
				panic(http.ErrAbortHandler)
			case 2:
				w.WriteHeader(http.StatusBadGateway)
				return
			}
		}
		balancer.ServeHTTP(w, r)
	}))
	c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}, Options: Options{Protocol: "2025-11-25", PingInterval: -1,
		Elicitation: func(context.Context, host.Elicitation) (host.Answer, error) {
			return host.Answer{Action: host.ActionAccept, Content: map[string]any{}}, nil
		}}})
	res := mustRun(t, find(t, c, "ask"), `{"Question":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}`)
	if !strings.Contains(string(res.Structured), "accept") || answers.Load() != 3 {
		t.Errorf("%s, sent %d times", res.Structured, answers.Load())
	}
}

// TestPagesFirst checks a server that demands a visit to a page before a call.
func TestPagesFirst(t *testing.T) {
	const data = `{"elicitations":[{"mode":"url","elicitationId":"e1","url":"https://example.com/connect","message":"Connect."}]}`
	for _, row := range []struct {
		why    string
		answer host.Answer
		err    error
		want   string
	}{
		{"agreed", host.Answer{Action: host.ActionAccept}, nil, "agreed to visit it"},
		{"declined", host.Answer{Action: host.ActionDecline}, nil, "did not agree"},
		{"no answer", host.Answer{}, errors.New("the terminal is closed"), "the terminal is closed"},
	} {
		var shown host.Elicitation
		cfg := Server{Options: Options{PingInterval: -1, Elicitation: func(_ context.Context, q host.Elicitation) (host.Answer, error) {
			shown = q
			return row.answer, row.err
		}}}
		c := memoryClient(t, cfg, func(msg request, reply func(string)) {
			if !handleStandard(msg, reply, `[{"name":"a"}]`) && msg.Method == "tools/call" {
				reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"First connect.","data":%s}}`, msg.ID, data))
			}
		})
		res := mustRun(t, find(t, c, "a"), `{}`)
		if res.Outcome != message.OutcomeError || !strings.Contains(res.Text(), "First connect.") || !strings.Contains(res.Text(), row.want) {
			t.Errorf("%s: %q, want %q", row.why, res.Text(), row.want)
		}
		if shown.Site() != "example.com" || shown.ID != "e1" {
			t.Errorf("%s: shown %+v", row.why, shown)
		}
	}
}

// TestRootsChange checks that a server is notified of new working directories.
func TestRootsChange(t *testing.T) {
	notified := make(chan string, 9)
	inner := askingServer(false)
	c := memoryClient(t, Server{Options: Options{PingInterval: -1, Roots: []string{"/a"}}}, func(msg request, reply func(string)) {
		if msg.Method == "notifications/roots/list_changed" {
			notified <- msg.Method
		}
		inner(msg, reply)
	})
	ask := func(tl tool.Tool) string {
		return string(mustRun(t, tl, `{"Method":"roots/list","Params":{}}`).Structured)
	}
	tl := find(t, c, "ask")
	if got := ask(tl); !strings.Contains(got, `"file:///a"`) {
		t.Errorf("roots: %s", got)
	}
	c.SetRoots("/a") // the same
	c.SetRoots("/b", "/c")
	<-notified
	if got := ask(tl); !strings.Contains(got, `"file:///b"`) || !strings.Contains(got, `"file:///c"`) || strings.Contains(got, `"file:///a"`) {
		t.Errorf("roots: %s", got)
	}
	c.SetRoots()
	<-notified
	if got := ask(tl); got != `{"roots":[]}` {
		t.Errorf("roots: %s", got)
	}
	if len(notified) > 0 {
		t.Error("notified of unchanged roots")
	}
}

// TestChangeBeforeSubscription checks a list that changes after it was requested and before the subscription to
// changes is acknowledged, so that the change is not announced.
func TestChangeBeforeSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var version atomic.Int64
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
			switch msg.Method {
			case "server/discover":
				reply(msg.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`))
			case "subscriptions/listen":
				time.Sleep(10 * time.Second)
				version.Store(2)
				reply(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
			default:
				handleStandard(msg, reply, fmt.Sprintf(`[{"name":"v%d"}]`, version.Load()))
			}
		})
		for _, want := range []string{"mcp__srv__v0", "mcp__srv__v2"} {
			tools, err := c.Tools(t.Context())
			if err != nil || len(tools) != 1 || tools[0].Info().Name != want {
				t.Errorf("%v, %v; want %s", tools, err, want)
			}
			time.Sleep(time.Minute)
		}
		c.Close()
	})
}

// TestSampleBudget checks that the client counts samples over its lifetime, unless Limits.Samples is negative.
func TestSampleBudget(t *testing.T) {
	for _, row := range []struct{ limit, want int }{{0, 10}, {3, 3}, {-1, 12}} {
		made := 0
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, Sampling: func(context.Context, host.SampleRequest) (host.Sample, error) {
			made++
			return host.Sample{Model: "m", Text: "yes"}, nil
		}, Limits: Limits{Samples: row.limit}}}, askingServer(true))
		tl := find(t, c, "ask")
		for range 12 {
			mustRun(t, tl, `{"Method":"sampling/createMessage","Params":{"messages":[{"role":"user","content":{"type":"text","text":"ok?"}}]}}`)
		}
		if made != row.want {
			t.Errorf("Limits.Samples %d: %d samples, want %d", row.limit, made, row.want)
		}
	}
}
