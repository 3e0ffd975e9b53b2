package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/mcpclient"
)

// TestUIGateway shows a running gateway.
func TestUIGateway(t *testing.T) {
	workspace(t)
	state, err := os.MkdirTemp("", "kb") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	t.Setenv("XDG_STATE_HOME", state)
	c := startUI(t)
	var got struct {
		Gateways []struct {
			Name    string
			Servers []struct{ Name, State string }
			Groups  []struct{ Name string }
		}
		Pins []struct{ ID, Server string }
	}
	c.call("GET", "api/gateways", "", &got)
	if len(got.Gateways) != 0 || len(got.Pins) != 0 {
		t.Fatalf("%+v", got)
	}
	if err := os.WriteFile("servers.json", []byte(`{"mcpServers": {"missing": {"command": "no-such-program"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	in, hold := io.Pipe()
	done := make(chan string)
	go func() {
		var stderr bytes.Buffer
		run(ctx, []string{"mcp", "serve", "--mcp", "servers.json"}, in, io.Discard, &stderr)
		done <- stderr.String()
	}()
	for end := time.Now().Add(20 * time.Second); len(got.Gateways) == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c.call("GET", "api/gateways", "", &got)
	}
	text, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(text), `"Name":"servers.json","Servers":[{"Name":"missing","State":"idle"}],"Groups":[{"Name":"missing"}]`) {
		t.Errorf("%s %v", text, err)
	}
	stop()
	_ = hold.Close()
	<-done
	got.Gateways = nil
	c.call("GET", "api/gateways", "", &got)
	if len(got.Gateways) != 0 {
		t.Errorf("the gateway has ended: %+v", got.Gateways)
	}
}

// TestUIPins accepts a tool that its server has changed, as long as it is the one that was shown.
func TestUIPins(t *testing.T) {
	workspace(t)
	pins, err := pinsOf("servers.json")
	if err != nil {
		t.Fatal(err)
	}
	change := func(text string) {
		t.Helper()
		if err := pins.Update("github", func(all map[string]mcpclient.Pin) {
			all["create"] = mcpclient.Pin{Definition: json.RawMessage(`{"description":"old"}`), Changed: json.RawMessage(text)}
		}); err != nil {
			t.Fatal(err)
		}
	}
	change(`{"description":"new"}`)
	c := startUI(t)
	var got struct {
		Pins []struct{ ID, Server, Diff string }
	}
	c.call("GET", "api/gateways", "", &got)
	if len(got.Pins) != 1 || !strings.Contains(got.Pins[0].Diff, "new") {
		t.Fatalf("%+v", got)
	}
	accept := func() error {
		return acceptPin(t.Context(), inspect.Pin{File: pins.serverFile, Server: "github", Tool: "create", Diff: got.Pins[0].Diff})
	}
	change(`{"description":"newer"}`)
	if err := accept(); err == nil || !strings.Contains(err.Error(), "again") {
		t.Errorf("another definition is accepted: %v", err)
	}
	change(`{"description":"new"}`)
	c.call("POST", "api/pins/accept", `{"id":"`+got.Pins[0].ID+`"}`, &struct{}{})
	if all, err := pins.Load("github"); err != nil || all["create"].Changed != nil {
		t.Errorf("%v %v", all, err)
	}
	if err := accept(); err == nil {
		t.Error("it is accepted twice")
	}
}
