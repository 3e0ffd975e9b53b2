package mcpserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
)

// TestAudit checks that every call has one record, however it ended.
func TestAudit(t *testing.T) {
	fx := newFixture(t)
	policy := &permission.Policy{Rules: []permission.Rule{
		{Tool: "weather", Behavior: permission.Allow}, {Tool: "f*", Behavior: permission.Allow},
		{Tool: "slow", Behavior: permission.Allow}, {Tool: "stream", Behavior: permission.Deny},
	}}
	records := make(chan mcpserver.Record, 10)
	s := serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: &permission.Policy{},
		Credentials: []mcpserver.Credential{{Name: "anna", Token: tokenA, Policy: policy}},
		Audit:       func(r mcpserver.Record) { records <- r }, Limits: mcpserver.Limits{Resume: 50 * time.Millisecond}})
	url := listen(t, s)
	w := newWire(t, url)
	w.token = tokenA
	w.initialize(`{}`)
	next := func() mcpserver.Record {
		t.Helper()
		r := <-records
		if r.Credential != "anna" || r.Time.IsZero() || r.Duration < 0 || strings.Contains(fmt.Sprintf("%+v", r), w.session) || strings.Contains(fmt.Sprintf("%+v", r), tokenA) {
			t.Errorf("record: %+v", r)
		}
		return r
	}
	session := ""
	for _, row := range []struct{ name, input, want string }{
		{"weather", `{}`, `weather allow weather success {}`},
		{"fails", `{}`, `fails allow f* error {}`},
		{"stream", `{}`, `stream deny stream refused {}`},
		{"picture", `{}`, `picture ask  refused {}`},
		{"slow", `{"ms":"soon"}`, `slow   invalid `},
		{strings.Repeat("x", 1000), `{}`, strings.Repeat("x", 124) + ` …   invalid `},
		{"reset_tools", `{}`, `reset_tools allow  success {}`},
	} {
		w.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+row.name+`","arguments":`+row.input+`}}`)
		r := next()
		if got := fmt.Sprintf("%s %s %s %s %s", r.Tool, r.Decision, r.Rule, r.Outcome, r.Input); got != row.want {
			t.Errorf("%.20s: %s, want %s", row.name, got, row.want)
		}
		if session == "" {
			session = r.Session
		}
		if r.Session != session || session == "" {
			t.Errorf("%.20s: the session is %q, and was %q", row.name, r.Session, session)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-fx.started
		leave()
	}()
	w.post(ctx, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`)
	if r := next(); r.Outcome != mcpserver.OutcomeCancelled || r.Tool != "slow" {
		t.Errorf("cancelled: %+v", r)
	}
	<-fx.ended
	other := newWire(t, url)
	other.token, other.header = tokenA, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "picture"}
	other.post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"picture","arguments":{},
		"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`)
	if r := next(); r.Outcome != mcpserver.OutcomeAsked || r.Session != "" {
		t.Errorf("asked without a session: %+v", r)
	}
	if len(records) > 0 {
		t.Errorf("one record too many: %+v", <-records)
	}
}
