package mcpserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// TestStdioFlood checks that the server stops reading from a host that sends requests and does not read the
// answers, and that the host gets all answers once it reads.
func TestStdioFlood(t *testing.T) {
	const calls, asked = 8, 3000
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Limits: mcpserver.Limits{Calls: calls}})
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.ServeStdio(context.Background(), inR, outW); _ = outW.Close() }()
	go fmt.Fprintln(inW, initializeBody)
	out := bufio.NewScanner(outR)
	out.Buffer(nil, 1<<20)
	out.Scan()
	before := runtime.NumGoroutine()
	var sent atomic.Int64
	go func() {
		for id := range asked {
			_, _ = fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n", id)
			sent.Add(1)
		}
		_ = inW.Close()
	}()
	waitUntilStable(&sent)
	if n := runtime.NumGoroutine() - before; n > 2*calls+2 || sent.Load() > 4*calls {
		t.Errorf("%d goroutines for %d requests whose answers are not read", n, sent.Load())
	}
	answers := 0
	for out.Scan() {
		if !strings.Contains(out.Text(), `"result":{"tools":`) {
			t.Errorf("%s", out.Text())
		}
		answers++
	}
	if err := <-done; err != nil || answers != asked {
		t.Errorf("%d answers, %v", answers, err)
	}
}

// waitUntilStable returns when the number no longer changes.
func waitUntilStable(n *atomic.Int64) {
	for before := int64(-1); before != n.Load(); time.Sleep(100 * time.Millisecond) {
		before = n.Load()
	}
}

// TestFullButListening checks that while the limit of calls is reached and they all wait for their client, its
// answers are still received and further calls are rejected.
func TestFullButListening(t *testing.T) {
	const calls = 2
	var ran atomic.Int64
	s := serve(t, mcpserver.Config{Toolkit: asking(&ran, nil), Policy: open, Limits: mcpserver.Limits{Calls: calls}})
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.ServeStdio(context.Background(), inR, outW); _ = outW.Close() }()
	out := bufio.NewScanner(outR)
	send := func(line string) { _, _ = io.WriteString(inW, line+"\n") }
	receive := func() string { out.Scan(); return out.Text() }
	go send(strings.Replace(initializeBody, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1))
	receive()
	var questions []string
	for id := range calls {
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"greet"}}`, id))
		questions = append(questions, receive())
	}
	for id := range 3 * calls {
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"more %d","method":"tools/list"}`, id))
		if got := receive(); !strings.Contains(got, "too many requests") {
			t.Errorf("%s", got)
		}
	}
	send(`{"jsonrpc":"2.0","id":"alive","method":"ping"}`)
	if got := receive(); !strings.Contains(got, `"id":"alive","result":{}`) {
		t.Errorf("%s", got)
	}
	for _, q := range questions {
		_, rest, _ := strings.Cut(q, `"id":`)
		id, _, _ := strings.Cut(rest, ",")
		send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{"name":"Bo"}}}`)
		if got := receive(); !strings.Contains(got, "accept Bo") {
			t.Errorf("%s", got)
		}
	}
	_ = inW.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestOldTransportFlood is the same over HTTP+SSE, where a post waits until its message is accepted.
func TestOldTransportFlood(t *testing.T) {
	const calls, asked = 8, 100
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Limits: mcpserver.Limits{Calls: calls, Write: time.Minute}})
	o, _ := dialOld(t, listen(t, s), "", nil)
	o.send(oldInitialize)
	var accepted atomic.Int64
	unknown := strings.Repeat("x", 256<<10) // the answers repeat it; together they are more than a connection buffers
	for id := range asked {
		go func() {
			if status, _ := o.post(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s"}`, id, unknown)); status == http.StatusAccepted {
				accepted.Add(1)
			}
		}()
	}
	waitUntilStable(&accepted)
	if accepted.Load() == asked {
		t.Errorf("all %d requests were accepted although their answers are not read", asked)
	}
	for range asked {
		if _, m := o.next(); !strings.HasPrefix(m, `{"jsonrpc":"2.0","id":`) {
			t.Fatalf("%.200q", m)
		}
	}
}
