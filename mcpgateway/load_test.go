package mcpgateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
)

// TestManySessions lets a thousand sessions share two upstream servers, open different groups and call in
// parallel. It checks that each gets its own answers and sees its own groups, and that an idle session needs
// little memory.
func TestManySessions(t *testing.T) {
	const sessions = 1000
	a, b := behind(t, "a", echo()), behind(t, "b", echo())
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{a.Server, b.Server}})
	h := httptest.NewServer(g.Server.Handler())
	defer h.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	defer client.CloseIdleConnections()
	post := func(session *string, body string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return ""
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if *session != "" {
			req.Header.Set("Mcp-Session-Id", *session)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("%d %v: %s", res.StatusCode, err, data)
		}
		if id := res.Header.Get("Mcp-Session-Id"); id != "" {
			*session = id
		}
		return string(data)
	}
	ids := make([]string, sessions)
	each := func(from int, do func(i int, id *string)) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 16)
		for i := from; i < sessions; i++ {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				do(i, &ids[i])
			})
		}
		wg.Wait()
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	start := func(i int, id *string) {
		server := string("ab"[i%2])
		post(id, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}`)
		post(id, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"reset_tools","arguments":{"`+server+`":true}}}`)
		post(id, listBody)
	}
	start(0, &ids[0]) // starts a server, and allocates what this test's client needs
	start(1, &ids[1])
	before := heap()
	each(2, start)
	per := (heap() - before) / sessions
	each(0, func(i int, id *string) {
		server, other := string("ab"[i%2]), string("ba"[i%2])
		text := fmt.Sprintf("message of session %d.", i)
		call := func(server string) string {
			return post(id, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+server+`__echo","arguments":{"message":"`+text+`"}}}`)
		}
		if got := call(server); !strings.Contains(got, text) || strings.Contains(got, `"isError"`) {
			t.Errorf("session %d: %s", i, got)
		}
		if i%8 > 1 { // a sample is enough for the rest
			return
		}
		if got := call(other); !strings.Contains(got, `"isError"`) {
			t.Errorf("session %d calls a tool of a closed group: %s", i, got)
		}
		if got := post(id, listBody); !strings.Contains(got, server+"__echo") || strings.Contains(got, other+"__echo") {
			t.Errorf("session %d sees %s", i, got)
		}
	})
	if n, m := a.starts.Load(), b.starts.Load(); n != 1 || m != 1 {
		t.Errorf("the servers were started %d and %d times", n, m)
	}
	if t.Logf("%d bytes for a session", per); per > 32<<10 {
		t.Errorf("%d bytes for a session, more than 32 KiB", per)
	}
}
