package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// goServer is a server made with mcp-go.
func goServer() *server.MCPServer {
	s := server.NewMCPServer("go", "1.2.3", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewToolWithRawSchema("echo", "Echoes.", json.RawMessage(`{"type":"object","properties":{"m":{"type":"string","x-mcp-header":"M"}}}`)),
		func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(r.GetString("m", "")), nil
		})
	s.AddTool(mcp.Tool{Name: "grow", RawInputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			s.AddTool(mcp.Tool{Name: "grown", RawInputSchema: json.RawMessage(`{"type":"object"}`)},
				func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return mcp.NewToolResultText("!"), nil
				})
			return mcp.NewToolResultText("grown"), nil
		})
	s.AddTool(mcp.Tool{Name: "wait", RawInputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			waited.Add(1)
			return nil, ctx.Err()
		})
	return s
}

// waited counts the calls of wait that were cancelled.
var waited atomic.Int64

// serveHTTP serves h until the test ends.
func serveHTTP(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv
}

// eventStreams serves a scripted server over HTTP that answers each request on an event stream, and returns its URL.
func eventStreams(t *testing.T, s script) (url string) {
	t.Helper()
	return serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var msg request
		if json.NewDecoder(r.Body).Decode(&msg) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if msg.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		s(msg, func(line string) { fmt.Fprintf(w, "event: message\ndata: %s\n\n", line) })
	})).URL
}

func TestHTTPInBothEras(t *testing.T) {
	for _, row := range []struct{ pin, want string }{
		{"", "2026-07-28"}, {"2025-11-25", "2025-11-25"}, {"2025-03-26", "2025-03-26"},
	} {
		t.Run("pin "+row.pin, func(t *testing.T) {
			srv := serveHTTP(t, server.NewStreamableHTTPServer(goServer(), server.WithStateful(true)))
			changed := make(chan struct{}, 10)
			c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}, Options: Options{Protocol: row.pin}})
			defer c.OnChange(func() { changed <- struct{}{} })()
			st := c.Status()
			if st.Protocol != row.want || st.ServerName != "go" || st.ServerVersion != "1.2.3" {
				t.Errorf("status: %+v", st)
			}
			if res := mustRun(t, find(t, c, "echo"), `{"m":"héllo"}`); res.Text() != "héllo" {
				t.Errorf("echo: %q", res.Text())
			}
			// The stream that announces changes may not be open at once.
			time.Sleep(100 * time.Millisecond)
			mustRun(t, find(t, c, "grow"), `{}`)
			select {
			case <-changed:
			case <-time.After(10 * time.Second):
				t.Fatal("the change was not noticed")
			}
			if res := mustRun(t, find(t, c, "grown"), `{}`); res.Text() != "!" {
				t.Errorf("grown: %q", res.Text())
			}
			before := waited.Load()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := run(ctx, find(t, c, "wait"), `{}`); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a cancelled call: %v", err)
			}
			until(t, func() bool { return waited.Load() > before })
		})
	}
}

func TestStatelessHTTP(t *testing.T) {
	for _, pin := range []string{"", "2025-11-25"} {
		t.Run("pin "+pin, func(t *testing.T) {
			var mu sync.Mutex
			var methods []string
			inner := server.NewStreamableHTTPServer(goServer(), server.WithStateful(true))
			srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var m request
				_ = json.Unmarshal(body, &m)
				mu.Lock()
				methods = append(methods, r.Method+" "+m.Method)
				mu.Unlock()
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				inner.ServeHTTP(w, r)
			}))
			c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}, Options: Options{Protocol: pin, Stateless: true}})
			for range 2 {
				mustRun(t, find(t, c, "echo"), `{"m":"x"}`)
			}
			mu.Lock()
			defer mu.Unlock()
			opened, closed := 0, 0
			for _, m := range methods {
				switch m {
				case "POST initialize":
					opened++
				case "DELETE ":
					closed++
				}
			}
			if pin != "" && (opened != 3 || closed != 3) {
				t.Errorf("%d sessions opened, %d closed: %v", opened, closed, methods)
			}
			if st := c.Status(); st.State != stateIdle {
				t.Errorf("status: %+v", st)
			}
		})
	}
}

// TestForgottenSession restarts a server behind the same URL, for each way in which servers reject an unknown
// session.
func TestForgottenSession(t *testing.T) {
	for _, status := range []int{404, 400} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			fresh := func() http.Handler {
				return server.NewStreamableHTTPServer(goServer(), server.WithStateful(true))
			}
			var current atomic.Value
			current.Store(fresh())
			srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rec := httptest.NewRecorder()
				if r.Method != http.MethodPost {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				current.Load().(http.Handler).ServeHTTP(rec, r)
				if rec.Code == http.StatusNotFound && status == 400 {
					http.Error(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`, 400)
					return
				}
				for k, v := range rec.Header() {
					w.Header()[k] = v
				}
				w.WriteHeader(rec.Code)
				_, _ = w.Write(rec.Body.Bytes())
			}))
			c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}, Options: Options{Protocol: "2025-11-25"}})
			echo := find(t, c, "echo")
			mustRun(t, echo, `{"m":"x"}`)
			current.Store(fresh())
			if res := mustRun(t, echo, `{"m":"again"}`); res.Text() != "again" {
				t.Errorf("%s", res.Text())
			}
			until(t, func() bool { return c.Status().Restarts == 1 }) // counted when the old connection has ended
		})
	}
}

// TestLostRequestsAreIndependent loses a connection because of one request that the server has refused unread,
// while another request runs.
func TestLostRequestsAreIndependent(t *testing.T) {
	var runs atomic.Int64
	running := make(chan struct{}, 10)
	inner := server.NewStreamableHTTPServer(goServer(), server.WithStateful(true))
	srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		var m request
		_ = json.Unmarshal(body, &m)
		switch m.name() {
		case "wait":
			runs.Add(1)
			running <- struct{}{}
			<-r.Context().Done()
		case "echo":
			http.Error(w, "no such session", http.StatusNotFound)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}, Options: Options{Protocol: "2025-11-25"}})
	wait, echo := find(t, c, "wait"), find(t, c, "echo")
	done := make(chan *message.ToolResult, 1)
	go func() { res, _ := run(t.Context(), wait, `{}`); done <- res }()
	<-running
	mustRun(t, echo, `{}`)
	if res := <-done; res == nil || !strings.Contains(res.Text(), "lost") || runs.Load() != 1 {
		t.Errorf("it ran %d times: %+v", runs.Load(), res)
	}
}

// TestCutStreamAffectsOneCall cuts the answer to one call while another call runs.
func TestCutStreamAffectsOneCall(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	inner := server.NewStreamableHTTPServer(goServer(), server.WithStateful(true))
	srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		var m request
		_ = json.Unmarshal(body, &m)
		switch m.name() {
		case "wait":
			close(running)
			<-release
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, m.result(`{"content":[{"type":"text","text":"waited"}]}`))
		case "grow":
			panic(http.ErrAbortHandler)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	for _, pin := range []string{"", "2025-11-25"} {
		running, release = make(chan struct{}), make(chan struct{})
		c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}, Options: Options{Protocol: pin}})
		wait, grow := find(t, c, "wait"), find(t, c, "grow")
		done := make(chan *message.ToolResult, 1)
		go func() { res, _ := run(t.Context(), wait, `{}`); done <- res }()
		<-running
		if res := mustRun(t, grow, `{}`); !strings.Contains(res.Text(), "lost") {
			t.Errorf("the call that was cut: %q", res.Text())
		}
		close(release)
		if res := <-done; res == nil || res.Text() != "waited" {
			t.Errorf("the other call: %+v", res)
		}
		if st := c.Status(); st.Restarts != 0 || st.State != stateReady {
			t.Errorf("status: %+v", st)
		}
	}
}

func TestServerDownAndUp(t *testing.T) {
	handler := server.NewStreamableHTTPServer(goServer(), server.WithStateful(true))
	srv := httptest.NewServer(handler)
	c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}})
	echo := find(t, c, "echo")
	mustRun(t, echo, `{"m":"x"}`)
	addr := srv.Listener.Addr().String()
	srv.CloseClientConnections()
	srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if res, err := run(ctx, echo, `{"m":"x"}`); err == nil && res.Outcome != message.OutcomeError {
		t.Errorf("a call of a server that is down: %q", res.Text())
	}
	if tools, err := c.Tools(t.Context()); err != nil || len(tools) == 0 {
		t.Errorf("the list is lost: %v", err)
	}
	again := &http.Server{Addr: addr, Handler: handler}
	go func() { _ = again.ListenAndServe() }()
	defer again.Close()
	until(t, func() bool {
		res, err := run(t.Context(), echo, `{"m":"back"}`)
		return err == nil && res.Text() == "back"
	})
}

func TestHeadersStayWithTheHost(t *testing.T) {
	var stolen, sent atomic.Value
	other := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen.Store(r.Header.Get("Authorization") + r.Header.Get("X-Key"))
		w.WriteHeader(http.StatusTeapot)
	}))
	srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Store(r.Header.Get("Authorization") + r.Header.Get("X-Key"))
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	_, err := tryConnect(t.Context(), Server{Name: "srv", Transport: HTTP{URL: srv.URL, Headers: map[string]string{"Authorization": "Bearer s3cret", "X-Key": "k3y"}}})
	if err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("error: %v", err)
	}
	if sent.Load() != "Bearer s3cretk3y" {
		t.Errorf("the server got %q", sent.Load())
	}
	if stolen.Load() != "" {
		t.Errorf("the other host got %q", stolen.Load())
	}
}

func TestHTTPErrorsSayWhatToDo(t *testing.T) {
	for _, row := range []struct {
		status     int
		body, want string
	}{
		{401, "who are you", "HTTP status 401; the server requires other credentials"},
		{404, "nothing here", "check the URL"},
		{503, "<html>busy</html>", "HTTP status 503: <html>busy"},
		{503, "hid\U000E0041den", "HTTP status 503: hidden"},
		{200, "not JSON", "not valid JSON"},
		{400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"bad key"}}`, "bad key (code -32001)"},
	} {
		srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(row.status)
			_, _ = io.WriteString(w, row.body)
		}))
		_, err := tryConnect(t.Context(), Server{Name: "srv", Transport: HTTP{URL: srv.URL}})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%d: %v, want %q", row.status, err, row.want)
		}
	}
}

func TestHugeHTTPResult(t *testing.T) {
	inner := server.NewStreamableHTTPServer(goServer())
	srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m request
		_ = json.Unmarshal(body, &m)
		if m.Method != "tools/call" {
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			inner.ServeHTTP(w, r)
			return
		}
		kind := "application/json"
		if m.name() == "grow" {
			kind = "text/event-stream"
		}
		w.Header().Set("Content-Type", kind)
		if kind == "text/event-stream" {
			fmt.Fprint(w, "data: ")
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, m.ID)
		chunk := []byte(strings.Repeat("x", 1<<20))
		for range 200 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		fmt.Fprint(w, `"}]}}`+"\n\n")
	}))
	c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}, Options: Options{Limits: Limits{Message: 1 << 20}}})
	for _, name := range []string{"echo", "grow"} {
		if res := mustRun(t, find(t, c, name), `{}`); !strings.Contains(res.Text(), "too large") {
			t.Errorf("%s: %q", name, clip(res.Text(), 200))
		}
	}
	if st := c.Status(); st.Restarts > 0 {
		t.Errorf("the connection counts as lost: %v", st.Err)
	}
}

func TestSSE(t *testing.T) {
	for _, way := range []HTTP{{SSE: true}, {}} {
		srv := serveHTTP(t, server.NewSSEServer(goServer()))
		way.URL = srv.URL + "/sse"
		changed := make(chan struct{}, 10)
		c := connect(t, Server{Name: "srv", Transport: way})
		defer c.OnChange(func() { changed <- struct{}{} })()
		if st := c.Status(); st.Protocol != "2025-11-25" {
			t.Errorf("protocol %q", st.Protocol)
		}
		if res := mustRun(t, find(t, c, "echo"), `{"m":"x"}`); res.Text() != "x" {
			t.Errorf("echo: %q", res.Text())
		}
		mustRun(t, find(t, c, "grow"), `{}`)
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal("the change was not noticed")
		}
		srv.CloseClientConnections()
		until(t, func() bool { // a call may be lost before the cut is noticed
			res, err := run(t.Context(), find(t, c, "echo"), `{"m":"y"}`)
			return err == nil && res.Text() == "y"
		})
	}
}

func TestParamHeaders(t *testing.T) {
	var got atomic.Value
	inner := server.NewStreamableHTTPServer(goServer())
	srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/call" {
			got.Store(r.Header.Get("Mcp-Name") + " " + r.Header.Get("Mcp-Param-M"))
		}
		inner.ServeHTTP(w, r)
	}))
	c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}})
	mustRun(t, find(t, c, "echo"), `{"m":"x"}`)
	if got.Load() != "echo x" {
		t.Errorf("headers: %v", got.Load())
	}
}

var _ tool.Source = (*Client)(nil)

// TestCancelReachesServerOverHTTP checks that a server is notified of a cancelled call although the client is
// closed at once, as by a program that its user interrupts.
func TestCancelReachesServerOverHTTP(t *testing.T) {
	started, notified, over := make(chan struct{}), make(chan string, 1), make(chan struct{})
	srv := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var msg request
		if json.NewDecoder(r.Body).Decode(&msg) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case msg.Method == "notifications/cancelled":
			time.Sleep(50 * time.Millisecond)
			notified <- string(msg.Params)
		case msg.Method == "tools/call":
			close(started)
			<-over
		case msg.ID != nil:
			handleStandard(msg, func(line string) { _, _ = io.WriteString(w, line) }, `[{"name":"wait"}]`)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer close(over)
	c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL}, Options: Options{Protocol: "2025-11-25", PingInterval: -1}})
	wait := find(t, c, "wait")
	ctx, interrupt := context.WithCancel(t.Context())
	go func() { <-started; interrupt() }()
	if _, err := run(ctx, wait, `{}`); !errors.Is(err, context.Canceled) {
		t.Errorf("the call: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	select {
	case got := <-notified:
		if !strings.Contains(got, `"requestId":"kb-`) {
			t.Errorf("the server was notified: %s", got)
		}
	default:
		t.Error("the server was not notified")
	}
}

// TestSSEDeadline checks that a caller's deadline ends only its call, not the connection: mcp-go reports an
// error a moment before the deadline.
func TestSSEDeadline(t *testing.T) {
	srv := serveHTTP(t, server.NewSSEServer(goServer()))
	c := connect(t, Server{Name: "srv", Transport: HTTP{URL: srv.URL + "/sse", SSE: true}, Options: Options{PingInterval: -1}})
	wait := find(t, c, "wait")
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		res, err := run(ctx, wait, `{}`)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || c.Status().Restarts != 0 {
			t.Fatalf("%+v %v, %d restarts", res, err, c.Status().Restarts)
		}
	}
}
