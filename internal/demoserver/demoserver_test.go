package demoserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestServe sends raw lines, so that the test does not depend on a client of the same library.
func TestServe(t *testing.T) {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Serve(context.Background(), in, out) }()
	answers := bufio.NewScanner(fromServer)
	ask := func(line string) string {
		fmt.Fprintln(toServer, line)
		if !answers.Scan() {
			t.Fatal("no answer: ", answers.Err())
		}
		return answers.Text()
	}
	call := func(tool, args string) string {
		return ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args))
	}
	hello := ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if !strings.Contains(hello, "kitbag-demo") || !strings.Contains(hello, "countdown takes its time") {
		t.Errorf("initialize: %s", hello)
	}
	fmt.Fprintln(toServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for _, row := range []struct{ tool, args, want string }{
		{"echo", `{"message":"hi"}`, `"text":"hi"`},
		{"add", `{"a":2,"b":0.5}`, `"text":"2.5"`},
		{"add", `{"a":"x","b":1}`, `"isError":true`},
		{"weather_lookup", `{"city":"Vienna"}`, `"structuredContent":{"city":"Vienna"`},
		{"weather_lookup", `{"city":" "}`, `"isError":true`},
		{"countdown", `{"n":2,"step_ms":0}`, `counted down from 2`},
		{"note_add", `{"text":"one"}`, `note 1 added`},
		{"note_add", `{"text":"two"}`, `note 2 added`},
		{"note_add", `{"text":""}`, `"isError":true`},
		{"echo", `{}`, `"isError":true`},
		{"countdown", `{"n":1000000000}`, `"isError":true`},
		{"countdown", `{"n":2,"step_ms":-1}`, `"isError":true`},
		{"add", `{"a":1e308,"b":1e308}`, `too large`},
		{"nothing", `{}`, `"error"`},
	} {
		if got := call(row.tool, row.args); !strings.Contains(got, row.want) {
			t.Errorf("%s %s: %s, want %s in it", row.tool, row.args, got, row.want)
		}
	}
	if a, b := call("weather_lookup", `{"city":"Oslo"}`), call("weather_lookup", `{"city":"Oslo"}`); a != b {
		t.Errorf("the weather changed: %s, %s", a, b)
	}
	toServer.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
