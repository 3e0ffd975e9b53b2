package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

const tasksDeclared = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// workers are tools that take long: work ends when release is closed or it is cancelled, which it tells ended, and ask
// asks a question after a while.
func workers(release <-chan struct{}, ended chan<- error) *toolkit.Toolkit {
	work := tool.Must(tool.New("work", "Works.", func(ctx context.Context, _ none) (string, error) {
		select {
		case <-release:
			ended <- nil
			return "worked", nil
		case <-ctx.Done():
			ended <- context.Cause(ctx)
			return "", ctx.Err()
		}
	}))
	ask := tool.Must(tool.New("ask", "Asks.", func(ctx context.Context, _ none) (string, error) {
		answers := ""
		for range 2 {
			time.Sleep(100 * time.Millisecond)
			a, err := host.From(ctx).Elicit(ctx, host.Elicitation{ID: "same", Message: "Who?", Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
			if err != nil {
				return "", err
			}
			answers += fmt.Sprint(a.Content["name"])
		}
		return "asked " + answers, nil
	}))
	return toolkit.Of(work, ask)
}

// state returns the answer to a request about a task, and its status.
func (m *modern) state(method, id, extra string) (answer, status string) {
	m.t.Helper()
	_, answer = m.send(m.t.Context(), method, id, extra)
	var got struct{ Result struct{ Status string } }
	_ = json.Unmarshal([]byte(answer), &got)
	return answer, got.Result.Status
}

// task makes a call that becomes a task, and returns its id.
func (m *modern) task(name string) string {
	m.t.Helper()
	_, answer := m.send(m.t.Context(), "tools/call", name, "")
	var got struct {
		Result struct{ ResultType, TaskID, Status string }
	}
	if json.Unmarshal([]byte(answer), &got) != nil || got.Result.ResultType != "task" || got.Result.Status != "working" || got.Result.TaskID == "" {
		m.t.Fatalf("no task: %s", answer)
	}
	return got.Result.TaskID
}

// await polls until the task has the status.
func (m *modern) await(id, want string) (answer string) {
	m.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var status string
		if answer, status = m.state("tasks/get", id, ""); status == want {
			return answer
		}
	}
	m.t.Fatalf("the task is not %s: %s", want, answer)
	return ""
}

// TestTasksOfClients checks that a client of this repository gets the result of a call that becomes a task, and that
// the questions of the task reach its user.
func TestTasksOfClients(t *testing.T) {
	release, ended := make(chan struct{}), make(chan error, 10)
	close(release)
	s := serve(t, mcpserver.Config{Toolkit: workers(release, ended), Policy: open, TaskAfter: 10 * time.Millisecond})
	for name, transport := range map[string]mcpclient.Transport{"HTTP": mcpclient.HTTP{URL: listen(t, s)}, "stdio": mcpclient.Dial(dialStdio(s))} {
		asked := 0
		c := connect(t, mcpclient.Server{Transport: transport, Options: mcpclient.Options{Protocol: "2026-07-28",
			Elicitation: func(context.Context, host.Elicitation) (host.Answer, error) {
				asked++
				return host.Answer{Action: host.ActionAccept, Content: map[string]any{"name": fmt.Sprint(asked)}}, nil
			}}})
		if res := call(t, c, "ask", `{}`); res.Text() != "asked 12" || asked != 2 {
			t.Errorf("%s: %q, asked %d times", name, res.Text(), asked)
		}
		if res := call(t, c, "work", `{}`); res.Text() != "worked" {
			t.Errorf("%s: %q", name, res.Text())
		}
	}
}

// TestWhoseTasks checks that only a client of the same credential that declares tasks can use a task, and that an id of
// one kind cannot be used as another.
func TestWhoseTasks(t *testing.T) {
	release, ended := make(chan struct{}), make(chan error, 10)
	url := listen(t, serve(t, mcpserver.Config{Toolkit: workers(release, ended), Policy: open, TaskAfter: 10 * time.Millisecond,
		Credentials: []mcpserver.Credential{{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB}}}))
	anna, also, otto, undeclared := newModern(t, url, tokenA, tasksDeclared), newModern(t, url, tokenA, tasksDeclared), newModern(t, url, tokenB, tasksDeclared), newModern(t, url, tokenA, `{"elicitation":{}}`)
	id := anna.task("work")
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		for _, row := range []struct {
			what    string
			who     *modern
			id, say string
		}{
			{"another credential", otto, id, "-32602"},
			{"a client that declares no tasks", undeclared, id, "-32021"},
			{"no such task", anna, "x" + id, "-32602"},
			{"no task", anna, "", "-32602"},
		} {
			if answer, _ := row.who.state(method, row.id, `,"inputResponses":{}`); !strings.Contains(answer, row.say) {
				t.Errorf("%s of %s: %s, want %s", method, row.what, answer, row.say)
			}
		}
	}
	if answer, status := also.state("tasks/get", id, ""); status != "working" {
		t.Errorf("another client of the credential: %s", answer)
	}
	if _, answer := anna.send(t.Context(), "tools/call", "work", `,"requestState":"`+id+`"`); !strings.Contains(answer, "-32602") {
		t.Errorf("the id of a task as requestState: %s", answer)
	}
	anna.header["Mcp-Name"] = "other"
	if _, got := anna.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"taskId":"`+id+`","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+tasksDeclared+`}}}`); len(got) != 1 || !strings.Contains(got[0], "-32020") {
		t.Errorf("another name in the header: %s", got)
	}
	select {
	case err := <-ended:
		t.Fatalf("the task has ended: %v", err)
	default:
	}
	for range 2 { // again after it has ended
		if answer, _ := anna.state("tasks/cancel", id, ""); !strings.Contains(answer, `"resultType":"complete"`) || strings.Contains(answer, "taskId") {
			t.Errorf("cancel: %s", answer)
		}
		anna.await(id, "cancelled")
	}
	if err := <-ended; err == nil {
		t.Error("the call was not cancelled")
	}
}

// TestTaskQuestions checks that questions of a task have different keys, that answers to others are ignored, and that
// an answered question is gone.
func TestTaskQuestions(t *testing.T) {
	url := listen(t, serve(t, mcpserver.Config{Toolkit: workers(nil, nil), Policy: open, TaskAfter: time.Millisecond}))
	m := newModern(t, url, "", tasksDeclared)
	id := m.task("ask")
	seen := map[string]bool{}
	for range 2 {
		var got struct {
			Result struct{ InputRequests map[string]json.RawMessage }
		}
		_ = json.Unmarshal([]byte(m.await(id, "input_required")), &got)
		for key := range got.Result.InputRequests {
			if seen[key] {
				t.Errorf("the key %q is used twice", key)
			}
			seen[key] = true
			for _, wrong := range []string{`{"other":{"action":"accept"}}`, `{"` + key + `":7}`, `{}`} {
				if _, status := m.state("tasks/update", id, `,"inputResponses":`+wrong); status != "" {
					t.Errorf("update: %s", status)
				}
				m.await(id, "input_required")
			}
			m.state("tasks/update", id, `,"inputResponses":{"`+key+`":{"action":"accept","content":{"name":"x"}}}`)
			m.state("tasks/update", id, `,"inputResponses":{"`+key+`":{"action":"accept","content":{"name":"y"}}}`)
		}
	}
	if answer := m.await(id, "completed"); !strings.Contains(answer, "asked xx") || strings.Contains(answer, "inputRequests") {
		t.Error(answer)
	}
}

// TestTaskLimits checks that a credential has a bounded number of tasks, for a bounded time, and that they end with the
// server.
func TestTaskLimits(t *testing.T) {
	release, ended := make(chan struct{}), make(chan error, 100)
	cfg := mcpserver.Config{Toolkit: workers(release, ended), Policy: open, TaskAfter: time.Millisecond, Limits: mcpserver.Limits{Calls: 1}}
	s := serve(t, cfg)
	m := newModern(t, listen(t, s), "", tasksDeclared)
	const capacity = 16 // for clients without sessions, times Limits.Calls
	for range capacity {
		m.task("work")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	req := make(chan string, 1)
	go func() {
		_, answer := newModern(t, m.url, "", tasksDeclared).send(ctx, "tools/call", "work", "")
		req <- answer
	}()
	if answer := <-req; strings.Contains(answer, "taskId") {
		t.Errorf("one task more: %s", answer)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range capacity + 1 {
		if err := <-ended; err == nil {
			t.Error("a task was not cancelled")
		}
	}

	cfg.Limits = mcpserver.Limits{Task: 50 * time.Millisecond}
	m = newModern(t, listen(t, serve(t, cfg)), "", tasksDeclared)
	id := m.task("work")
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("the call ended with %v", err)
	}
	if answer, _ := m.state("tasks/get", id, ""); !strings.Contains(answer, "-32602") {
		t.Errorf("expired: %s", answer)
	}
}

// TestTaskExpiry checks that a task ends with the identity that made it, unless the identity polls with a later token.
func TestTaskExpiry(t *testing.T) {
	release, ended := make(chan struct{}), make(chan error, 10)
	url := listen(t, serve(t, mcpserver.Config{Toolkit: workers(release, ended), Policy: open, TaskAfter: time.Millisecond, Authenticator: claims{}}))
	newModern(t, url, "anna all 300ms", tasksDeclared).task("work")
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("the call ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the task runs although its identity has expired")
	}
	m := newModern(t, url, "anna all 2s", tasksDeclared)
	id := m.task("work")
	m.token = "anna all 1h"
	m.await(id, "working")
	m.token = "anna all 1s" // an older token does not shorten it
	m.await(id, "working")
	select {
	case err := <-ended:
		t.Fatalf("the task ended with %v although its client has a new token", err)
	case <-time.After(3 * time.Second):
	}
	close(release)
	m.token = "anna all 1h"
	m.await(id, "completed")
}

// TestTaskOfIdleIdentity checks that other identities do not make the server forget one whose task runs, and that it is
// forgotten after that.
func TestTaskOfIdleIdentity(t *testing.T) {
	release, ended := make(chan struct{}), make(chan error, 10)
	url := listen(t, serve(t, mcpserver.Config{Toolkit: workers(release, ended), Policy: open, TaskAfter: time.Millisecond, Authenticator: claims{},
		Limits: mcpserver.Limits{Sessions: 2, Idle: 20 * time.Millisecond, Ask: 20 * time.Millisecond, Task: time.Second}}))
	m := newModern(t, url, "anna all 1h", tasksDeclared)
	id := m.task("work")
	other := func(name string) int {
		w := newModern(t, url, name+" all 1h", tasksDeclared)
		status, _ := w.send(t.Context(), "tools/list", "", "")
		return status
	}
	for i := range 3 {
		time.Sleep(60 * time.Millisecond)
		if got := other(fmt.Sprint("user", i)); got != 200 {
			t.Errorf("user %d: %d", i, got)
		}
	}
	m.await(id, "working")
	close(release)
	m.await(id, "completed")
	for end := time.Now().Add(20 * time.Second); other("x") != 200 || other("y") != 200; time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the account is never dropped")
		}
	}
}
