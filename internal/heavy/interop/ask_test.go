//go:build interop

package interop

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// user returns an agent of a user on a server that has other users too.
func user(t *testing.T, c *mcpclient.Client, name string, asked chan<- string, turns ...scripted.Turn) *agent.Agent {
	t.Helper()
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Sources: []tool.Source{c}}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Model: scripted.Test(t, turns...), Toolkit: tk, Policy: permission.Policy{Mode: permission.ModeBypass},
		Elicit: func(_ context.Context, q host.Elicitation) (host.Answer, error) {
			asked <- fmt.Sprintf("%s asks %s", q.Server, name)
			return host.Answer{Action: host.ActionAccept, Content: map[string]any{"name": name}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// withQuestions connects to server-everything, and waits until it lists the tools that ask, which it does once
// it knows the client's capabilities.
func withQuestions(t *testing.T, cfg mcpclient.Server) *mcpclient.Client {
	t.Helper()
	cfg.Options.Elicitation, cfg.Options.Sampling = mcpclient.ElicitCaller, mcpclient.SampleCaller
	c, _ := connect(t, cfg)
	find(t, c, "trigger-elicitation-request")
	return c
}

// TestAgentIsAsked checks that server-everything can ask the user of an agent, and use its model, over stdio
// and HTTP.
func TestAgentIsAsked(t *testing.T) {
	port := freePort(t)
	stop := serve(t, "streamableHttp", port)
	defer stop()
	for name, cfg := range map[string]mcpclient.Server{
		"stdio": stdio(t, "everything", "stdio"),
		"http":  {Name: "everything", Transport: mcpclient.HTTP{URL: "http://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(port)) + "/mcp"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := withQuestions(t, cfg)
			asked := make(chan string, 9)
			a := user(t, c, "Ada", asked,
				scripted.Call("mcp__everything__trigger-elicitation-request", struct{}{}),
				scripted.Call("mcp__everything__trigger-sampling-request", map[string]any{"prompt": "the word", "maxTokens": 9}),
				scripted.Say("kitbag is the word").Expect(scripted.LastContains("the word")), // the sample
				scripted.Say("done").Expect(scripted.LastContains("kitbag is the word")),
			)
			var st agent.State
			var samples []*event.Sampling
			for ev, err := range a.Run(t.Context(), &st, agent.Say("go")) {
				if err != nil {
					t.Fatal(err)
				}
				if s, ok := ev.(*event.Sampling); ok {
					samples = append(samples, s)
				}
			}
			if got := results(&st); !strings.Contains(got, "Ada") {
				t.Errorf("the server did not get the answer: %s", got)
			}
			if len(asked) != 1 || <-asked != "everything asks Ada" {
				t.Errorf("asked %d more times", len(asked))
			}
			if len(samples) != 1 || samples[0].Server != "everything" || samples[0].Usage.Output == 0 || samples[0].Refused != "" {
				t.Errorf("samples: %+v", samples)
			}
		})
	}
}

// TestTwoUsersOfOneProcess checks that if two users have a call in flight in the same process, neither is asked
// a question that may be for the other.
func TestTwoUsersOfOneProcess(t *testing.T) {
	c := withQuestions(t, stdio(t, "everything", "stdio"))
	asked := make(chan string, 9)
	busy := user(t, c, "Bob", asked,
		scripted.Call("mcp__everything__trigger-long-running-operation", map[string]any{"duration": 3, "steps": 3}), scripted.Say("done"))
	ada := user(t, c, "Ada", asked,
		scripted.Call("mcp__everything__trigger-elicitation-request", struct{}{}), scripted.Say("refused"),
		scripted.Call("mcp__everything__trigger-elicitation-request", struct{}{}), scripted.Say("answered"))
	var wg sync.WaitGroup
	started := make(chan struct{})
	wg.Go(func() {
		var st agent.State
		for ev, err := range busy.Run(t.Context(), &st, agent.Say("go")) {
			if d, ok := ev.(*event.ToolDelta); ok && strings.HasPrefix(d.Text, "1/3") {
				close(started)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	select {
	case <-started:
	case <-time.After(20 * time.Second):
		t.Fatal("the long call does not run")
	}
	var st agent.State
	if _, err := ada.Reply(t.Context(), &st, agent.Say("go")); err != nil {
		t.Fatal(err)
	}
	if got := results(&st); len(asked) != 0 || !strings.Contains(got, "several hosts") {
		t.Errorf("asked %d times: %s", len(asked), got)
	}
	wg.Wait()
	if _, err := ada.Reply(t.Context(), &st, agent.Say("again")); err != nil {
		t.Fatal(err)
	}
	if got := results(&st); len(asked) != 1 || !strings.Contains(got, "Ada") {
		t.Errorf("asked %d times: %s", len(asked), got)
	}
}

// results joins the texts of all tool results of a conversation.
func results(st *agent.State) string {
	var out []string
	for _, m := range st.Messages {
		if m.Role == message.RoleTool {
			for _, r := range m.ToolResults() {
				out = append(out, r.Text())
			}
		}
	}
	return strings.Join(out, "\n")
}
