package mcpclient

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
)

func TestDemoServer(t *testing.T) {
	cfg := child(t, "demo")
	cfg.Options.TrustReadOnly = true
	c := connect(t, cfg)
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tl := range tools {
		names = append(names, tl.Info().Name)
	}
	want := "mcp__srv__add mcp__srv__countdown mcp__srv__echo mcp__srv__note_add mcp__srv__weather_lookup"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("tools: %s\nwant   %s", got, want)
	}
	if info := find(t, c, "echo").Info(); !info.ReadOnly || info.Title != "Echo" {
		t.Errorf("echo: %+v", info)
	}
	if find(t, c, "note_add").Info().ReadOnly {
		t.Error("note_add counts as read-only")
	}
	if res := mustRun(t, find(t, c, "add"), `{"a":2,"b":3.5}`); res.Text() != "5.5" {
		t.Errorf("add: %+v", res)
	}
	res := mustRun(t, find(t, c, "weather_lookup"), `{"city":"Vienna"}`)
	if !strings.Contains(string(res.Structured), `"city":"Vienna"`) {
		t.Errorf("weather_lookup: structured %s", res.Structured)
	}
	if st := c.Status(); st.State != stateReady || st.ServerName != "kitbag-demo" || !strings.Contains(st.Instructions, "countdown") {
		t.Errorf("status: %+v", st)
	}
}

func TestProgressIsShownToTheUser(t *testing.T) {
	c := connect(t, child(t, "demo"))
	res := mustRun(t, find(t, c, "countdown"), `{"n":3,"step_ms":5}`)
	if res.Text() != "counted down from 3" {
		t.Errorf("result: %q", res.Text())
	}
	if got := res.ForUser.Text(); got != "1/3 2 left\n2/3 1 left\n3/3 0 left\n" {
		t.Errorf("progress: %q", got)
	}
}

func TestCancelReturnsAtOnce(t *testing.T) {
	c := connect(t, child(t, "demo"))
	ctx, cancel := context.WithCancel(t.Context())
	tl := find(t, c, "countdown")
	steps := 0
	for ch, err := range tl.Call(ctx, tool.Call{Name: "x", Input: []byte(`{"n":1000,"step_ms":20}`)}) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error: %v", err)
			}
			break
		}
		if ch.ForUser {
			if steps++; steps == 2 {
				cancel()
			}
		}
	}
	cancel()
	if steps < 2 {
		t.Errorf("%d steps were seen", steps)
	}
	if got := mustRun(t, find(t, c, "echo"), `{"message":"still there"}`).Text(); got != "still there" {
		t.Errorf("after the cancel: %q", got)
	}
}

func TestLeavingTheLoopEndsTheCall(t *testing.T) {
	c := connect(t, child(t, "demo"))
	for range find(t, c, "countdown").Call(t.Context(), tool.Call{Input: []byte(`{"n":1000,"step_ms":5}`)}) {
		break
	}
	if got := mustRun(t, find(t, c, "add"), `{"a":1,"b":1}`).Text(); got != "2" {
		t.Errorf("after leaving: %q", got)
	}
}

func TestLazyAndClosed(t *testing.T) {
	cfg := child(t, "demo")
	c, err := New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Status().State; s != stateIdle {
		t.Errorf("before use: %s", s)
	}
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	echo := find(t, c, "echo")
	c.Close()
	c.Close()
	if _, err := run(t.Context(), echo, `{"message":"x"}`); err != nil {
		t.Fatal(err)
	}
	if res, _ := run(t.Context(), echo, `{"message":"x"}`); !strings.Contains(res.Text(), "closed") {
		t.Errorf("after Close: %q", res.Text())
	}
	if s := c.Status().State; s != stateClosed {
		t.Errorf("after Close: %s", s)
	}
}

func TestNoSuchCommand(t *testing.T) {
	_, err := tryConnect(t.Context(), Server{Name: "none", Transport: Command{Path: "/does/not/exist"}})
	se, ok := errors.AsType[*ServerError](err)
	if !ok || se.Server != "none" || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("error: %v", err)
	}
}
