package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// A taskServer answers tools/call with tasks. states are the answers to tasks/get, without their braces; the last one
// is repeated. A state that begins with "!" is an error, and "hang up" ends the connection.
type taskServer struct {
	modern bool
	states []string
	result string // of tasks/result

	mu     sync.Mutex
	began  time.Time
	calls  []string
	ids    int
	sameID bool
}

func (s *taskServer) script(msg request, reply func(string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note := func(what string) {
		s.calls = append(s.calls, fmt.Sprintf("%s@%v", what, time.Since(s.began).Round(100*time.Millisecond)))
	}
	var p struct {
		TaskID    string
		Task      json.RawMessage
		Responses json.RawMessage `json:"inputResponses"`
	}
	_ = json.Unmarshal(msg.Params, &p)
	switch msg.Method {
	case "server/discover":
		if s.modern {
			reply(msg.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`))
			return
		}
		reply(msg.fail(codeMethodNotFound, "no"))
	case "initialize":
		reply(msg.result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"s","version":"1"}}`))
	case "tools/list":
		reply(msg.result(`{"tools":[{"name":"long","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}},{"name":"short","inputSchema":{"type":"object"},"execution":{"taskSupport":7}}]}`))
	case "tools/call":
		if msg.name() == "short" || !s.modern && p.Task == nil {
			reply(msg.result(`{"content":[{"type":"text","text":"short"}]}`))
			return
		}
		s.began = time.Now()
		if !s.sameID || s.ids == 0 {
			s.ids++
		}
		if state := fmt.Sprintf(`"taskId":"t%d","status":"working"`, s.ids); s.modern {
			reply(msg.result(`{"resultType":"task",` + state + `,"ttlMs":null,"pollIntervalMs":5000}`))
		} else {
			reply(msg.result(`{"task":{` + state + `,"ttl":null,"pollInterval":5000}}`))
		}
	case "tasks/get":
		state := s.states[0]
		if len(s.states) > 1 {
			s.states = s.states[1:]
		}
		note("get")
		switch {
		case state == "hang up":
			reply(hangUp)
		case strings.HasPrefix(state, "!"):
			reply(msg.fail(codeInvalidParams, state[1:]))
		case !strings.Contains(state, `"taskId"`):
			reply(msg.result(`{"taskId":"` + p.TaskID + `","resultType":"complete",` + state + `}`))
		default:
			reply(msg.result(`{` + state + `}`))
		}
	case "tasks/update":
		note("update " + string(p.Responses))
		reply(msg.result(`{}`))
	case "tasks/result":
		note("result")
		if s.result == "" {
			return // never
		}
		reply(msg.result(s.result))
	case "tasks/cancel":
		note("cancel " + p.TaskID)
		reply(msg.result(`{}`))
	default:
		if !handleStandard(msg, reply, `[]`) && msg.ID != nil {
			reply(msg.fail(codeMethodNotFound, "no"))
		}
	}
}

func (s *taskServer) noted() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.calls, ", ")
}

// TestTasks checks what is requested of a server for a task, when, and what the call returns.
func TestTasks(t *testing.T) {
	const done = `"status":"completed","result":{"content":[{"type":"text","text":"done"}]}`
	const doneResult = `{"content":[{"type":"text","text":"done"}]}`
	ask := func(keys ...string) string {
		var all []string
		for _, k := range keys {
			all = append(all, fmt.Sprintf(`%q:{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}`, k))
		}
		return `"status":"input_required","pollIntervalMs":1000,"inputRequests":{` + strings.Join(all, ",") + `}`
	}
	for _, row := range []struct {
		name      string
		server    *taskServer
		calls     string
		text, err string
		asked     int
	}{
		{"completed", &taskServer{modern: true, states: []string{`"status":"working","pollIntervalMs":1000`, done}}, "get@5s, get@6s", "done", "", 0},
		{"completed, old", &taskServer{states: []string{`"status":"working","pollInterval":1000`, `"status":"completed"`}, result: doneResult}, "get@5s, get@6s, result@6s", "done", "", 0},
		{"an error of the tool", &taskServer{modern: true, states: []string{`"status":"completed","result":{"content":[{"type":"text","text":"broken"}],"isError":true}`}}, "get@5s", "", "broken", 0},
		{"an error of the protocol", &taskServer{modern: true, states: []string{`"status":"failed","error":{"code":-32603,"message":"limit\u200b"}`}}, "get@5s", "", "limit (code -32603)", 0},
		{"cancelled by the server", &taskServer{modern: true, states: []string{`"status":"cancelled","statusMessage":"closing"`}}, "get@5s", "", "is cancelled: closing", 0},
		{"an unknown status", &taskServer{modern: true, states: []string{`"status":"lost"`}}, "get@5s, cancel t1@5s", "", "is lost", 0},
		{"forgotten", &taskServer{modern: true, states: []string{"!unknown task"}}, "get@5s, cancel t1@5s", "", "unknown task", 0},
		{"another task", &taskServer{modern: true, states: []string{`"taskId":"t7",` + done}}, "get@5s, get@10s, get@15s, get@20s, get@25s, cancel t1@25s", "", "about another task", 0},
		{"no interval", &taskServer{modern: true, states: []string{`"status":"working","pollIntervalMs":0`, `"status":"working","pollIntervalMs":1`, `"status":"working","pollIntervalMs":1e9`, done}}, "get@5s, get@6s, get@6.1s, get@1m6.1s", "done", "", 0},
		{"expired", &taskServer{modern: true, states: []string{`"status":"working","ttlMs":10000,"pollIntervalMs":60000`}}, "get@5s, get@1m5s, get@2m5s, cancel t1@2m5s", "", "expired", 0},
		{"a lost connection", &taskServer{modern: true, states: []string{"hang up", `"status":"working"`, done}}, "get@5s, get@5.1s, get@6.1s", "done", "", 0},
		{"lost too often", &taskServer{modern: true, states: []string{"hang up"}}, "", "", "may have had an effect", 0},
		{"never done", &taskServer{modern: true, states: []string{`"status":"working","pollIntervalMs":300000`}}, "get@5s, get@1m5s, get@2m5s, cancel t1@3m0s", "", "still running after 3m", 0},
		{"questions", &taskServer{modern: true, states: []string{ask("a"), ask("a", "b"), `"status":"working","pollIntervalMs":1000`, done}},
			`get@5s, update {"a":{"action":"accept","content":{}}}@5s, get@6s, update {"b":{"action":"accept","content":{}}}@6s, get@7s, get@8s`, "done", "", 2},
		{"too many questions", &taskServer{modern: true, states: []string{ask(strings.Split("abcdefghijklmnopqrstu", "")...)}}, "get@5s, cancel t1@5s", "", "more than 20 questions", 20},
		{"waiting for input, old", &taskServer{states: []string{`"status":"input_required"`}, result: doneResult}, "get@5s, result@5s", "done", "", 0},
		{"waiting for input too long, old", &taskServer{states: []string{`"status":"input_required"`, `"status":"cancelled"`}}, "get@5s, result@5s, get@1m5s", "", "is cancelled", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				s := row.server
				c := memoryClient(t, Server{Options: Options{PingInterval: -1, Timeouts: Timeouts{Call: 3 * time.Minute},
					Elicitation: func(context.Context, host.Elicitation) (host.Answer, error) {
						asked++
						return host.Answer{Action: host.ActionAccept, Content: map[string]any{}}, nil
					}}}, s.script)
				res, err := run(t.Context(), find(t, c, "long"), `{}`)
				time.Sleep(time.Second) // for the cancellation
				if want := row.text + row.err; err != nil || !strings.Contains(res.Text(), want) || (res.Outcome == message.OutcomeSuccess) != (row.err == "") {
					t.Errorf("%v %v; want %s", res, err, want)
				}
				if got := s.noted(); row.calls != "" && got != row.calls {
					t.Errorf("requests %s\nwant     %s", got, row.calls)
				}
				if asked != row.asked {
					t.Errorf("asked %d times, want %d", asked, row.asked)
				}
			})
		})
	}
}

// TestTaskIsCancelled checks that a task is cancelled when its caller leaves.
func TestTaskIsCancelled(t *testing.T) {
	for _, modern := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &taskServer{modern: modern, states: []string{`"status":"working"`}}
			c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, s.script)
			ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
			defer cancel()
			if res, err := run(ctx, find(t, c, "long"), `{}`); err == nil && res.Outcome == message.OutcomeSuccess {
				t.Errorf("%v", res)
			}
			time.Sleep(time.Second)
			if got := s.noted(); got != "get@5s, cancel t1@5.5s" {
				t.Errorf("modern=%v: %s", modern, got)
			}
		})
	}
}

// TestTaskOfAnotherCall checks that a server cannot give a call the task of another one.
func TestTaskOfAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &taskServer{modern: true, sameID: true, states: []string{`"status":"working"`, `"status":"completed","result":{"content":[{"type":"text","text":"mine"}]}`}}
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, s.script)
		long := find(t, c, "long")
		first := make(chan string, 1)
		go func() {
			res, err := run(t.Context(), long, `{}`)
			first <- fmt.Sprint(res.Text(), err)
		}()
		time.Sleep(time.Second)
		if res := mustRun(t, long, `{}`); !strings.Contains(res.Text(), "the id of another call") {
			t.Errorf("the task of another call: %v", res)
		}
		if got := <-first; !strings.HasPrefix(got, "mine") {
			t.Error(got)
		}
		if got := s.noted(); strings.Contains(got, "cancel") {
			t.Errorf("the other call was cancelled: %s", got)
		}
	})
}

// TestTasksInBackground checks which calls may continue in the background.
func TestTasksInBackground(t *testing.T) {
	for _, modern := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &taskServer{modern: modern, states: []string{`"status":"completed","result":{}`}, result: `{"content":[]}`}
			c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, s.script)
			after := func(name string) time.Duration {
				if b, ok := tool.As[tool.Backgrounder](find(t, c, name)); ok {
					return b.Background(nil)
				}
				return -2 // the agent decides
			}
			before := after("long")
			mustRun(t, find(t, c, "long"), `{}`)
			mustRun(t, find(t, c, "short"), `{}`)
			want := fmt.Sprint(taskGrace, taskGrace, time.Duration(-2))
			if modern { // the list does not show which tools have tasks
				want = fmt.Sprint(time.Duration(-1), taskGrace, time.Duration(-1))
			}
			if got := fmt.Sprint(before, after("long"), after("short")); got != want {
				t.Errorf("modern=%v: after %s, want %s", modern, got, want)
			}
			if server, name, ok := Origin(find(t, c, "long")); server != "srv" || name != "long" || !ok {
				t.Errorf("origin %s %s", server, name)
			}
			if err := tool.CheckCapabilities(find(t, c, "long")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTaskWhereNoneIsAllowed checks that only a call can become a task.
func TestTaskWhereNoneIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
			switch msg.Method {
			case "server/discover":
				reply(msg.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"resources":{}}}`))
			default:
				reply(msg.result(`{"resultType":"task","taskId":"t1","status":"working","ttlMs":null}`))
			}
		})
		if r, err := c.ReadResource(t.Context(), "a:b"); !errors.Is(err, errMalformed) {
			t.Errorf("%v %v", r, err)
		}
	})
}

// TestTaskAsksNoMore checks that a call that is a task may ask as often as any call, not that often with each request.
func TestTaskAsksNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &taskServer{states: []string{`"status":"working"`, `"status":"working"`, `"status":"completed"`}, result: `{"content":[{"type":"text","text":"done"}]}`}
		var mu sync.Mutex
		var then func()
		sent, open := 0, 0
		script := func(msg request, reply func(string)) {
			mu.Lock()
			defer mu.Unlock()
			switch msg.Method {
			case "tasks/get":
				then, open = func() { s.script(msg, reply) }, maxRequestsPerCall-5
				for range open {
					sent++
					reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`, sent))
				}
			case "": // an answer
				if open--; open == 0 {
					then()
				}
			default:
				s.script(msg, reply)
			}
		}
		var asked atomic.Int64
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, Elicitation: func(context.Context, host.Elicitation) (host.Answer, error) {
			asked.Add(1)
			return host.Answer{Action: host.ActionAccept, Content: map[string]any{}}, nil
		}}}, script)
		if res := mustRun(t, find(t, c, "long"), `{}`); res.Outcome != message.OutcomeSuccess {
			t.Errorf("%v", res)
		}
		if asked.Load() != maxRequestsPerCall {
			t.Errorf("%d questions within one call, of %d that were sent; want %d", asked.Load(), sent, maxRequestsPerCall)
		}
	})
}
