package mcpserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/host"
)

// TestAsk checks how the user is asked in every era and over every transport, except SSE, over which our client
// cannot be asked; the interop tests have a client that can.
func TestAsk(t *testing.T) {
	for _, era := range eras {
		if era.name == "sse" {
			continue
		}
		t.Run(era.name, func(t *testing.T) {
			s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk})
			var asked atomic.Int32
			var question atomic.Value
			answer := make(chan host.Answer, 1)
			cfg := mcpclient.Server{Options: mcpclient.Options{Protocol: era.pin, Elicitation: func(_ context.Context, q host.Elicitation) (host.Answer, error) {
				asked.Add(1)
				question.Store(q.Message)
				return <-answer, nil
			}}}
			cfg.Transport = era.way(t, s)
			c := connect(t, cfg)
			for _, row := range []struct {
				answer host.Answer
				want   message.Outcome
				asked  int32
				text   string
			}{
				{host.Answer{Action: host.ActionDecline}, message.OutcomeError, 1, "The user refused this call of weather."},
				{host.Answer{Action: host.ActionCancel}, message.OutcomeError, 2, "dismissed it, or the client cannot ask the user. The server's owner can allow it by the rule weather."},
				{host.Answer{Action: host.ActionAccept}, message.OutcomeSuccess, 3, ""},
			} {
				answer <- row.answer
				res := call(t, c, "weather", `{}`)
				if res.Outcome != row.want || asked.Load() != row.asked || !strings.Contains(res.Text(), row.text) {
					t.Errorf("%s: %s %q, asked %d times, want %s %q, %d", row.answer.Action, res.Outcome, res.Text(), asked.Load(), row.want, row.text, row.asked)
				}
			}
			if q, _ := question.Load().(string); !strings.HasPrefix(q, "Allow weather?\n{}\n") {
				t.Errorf("question: %q", q)
			}
			if era.static {
				return // without a session nothing is remembered
			}
			answer <- host.Answer{Action: host.ActionAccept, Content: map[string]any{"remember": true}}
			for range 3 {
				call(t, c, "weather", `{}`)
			}
			if asked.Load() != 4 {
				t.Errorf("asked %d times, want 4: the rule of the fourth answer applies to the session", asked.Load())
			}
		})
	}
}

// TestCannotAsk checks that the result names the rule that would allow the call, and that deny rules apply
// without a question.
func TestCannotAsk(t *testing.T) {
	policy := &permission.Policy{Rules: []permission.Rule{{Tool: "slow", Behavior: permission.Deny}}}
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: policy})
	w := newWire(t, listen(t, s))
	w.initialize(`{}`)
	for _, row := range []struct{ name, input, want string }{
		{"weather", `{}`, "by the rule weather."},
		{"slow", `{"ms":1}`, "denied"},
	} {
		_, got := w.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+row.name+`","arguments":`+row.input+`}}`)
		if len(got) != 1 || !strings.Contains(got[0], `"isError":true`) || !strings.Contains(got[0], row.want) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// TestTickets checks attacks with the state that clients without sessions send back.
func TestTickets(t *testing.T) {
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: &permission.Policy{}, Credentials: []mcpserver.Credential{
		{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB},
	}})
	url := listen(t, s)
	anna, otto := newWire(t, url), newWire(t, url)
	anna.token, otto.token = tokenA, tokenB
	send := func(w *wire, name, extra string) string {
		t.Helper()
		w.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
		_, got := w.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+name+`","arguments":{}`+extra+`,
			"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`)
		if len(got) != 1 {
			t.Fatalf("%s: %q", name, got)
		}
		return got[0]
	}
	state := func(w *wire, name string) string {
		var res struct{ Result struct{ RequestState string } }
		if json.Unmarshal([]byte(send(w, name, "")), &res) != nil || res.Result.RequestState == "" {
			t.Fatal("no question")
		}
		return res.Result.RequestState
	}
	with := func(state, action string) string {
		return `,"requestState":"` + state + `","inputResponses":{"allow":{"action":"` + action + `"}}`
	}
	good := state(anna, "weather")
	for _, row := range []struct {
		why  string
		w    *wire
		name string
		with string
		want string
	}{
		{"made up", anna, "weather", with("abc", "accept"), "not from this server"},
		{"changed", anna, "weather", with(good[:len(good)-2]+"AA", "accept"), "not from this server"},
		{"of another tool", anna, "fails", with(good, "accept"), "another call"},
		{"of another client", otto, "weather", with(good, "accept"), "another call"},
		{"without an answer", anna, "weather", `,"requestState":"` + state(anna, "weather") + `"`, "sent no answer"},
		{"with an unknown action", anna, "weather", with(state(anna, "weather"), "perhaps"), "must be accept, decline or cancel"},
		{"an answer without a question", anna, "weather", `,"inputResponses":{"allow":{"action":"accept"}}`, "input_required"},
		{"right", anna, "weather", with(good, "accept"), `"structuredContent":{"c":7}`},
		{"again", anna, "weather", with(good, "accept"), "used before"},
	} {
		if got := send(row.w, row.name, row.with); !strings.Contains(got, row.want) {
			t.Errorf("%s: %s, want %q", row.why, got, row.want)
		}
	}
}
