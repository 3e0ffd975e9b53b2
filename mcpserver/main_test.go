package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type none struct{}

// named returns a tool that answers with its name.
func named(name string) tool.Tool {
	return tool.Must(tool.New(name, "Says "+name+".", func(context.Context, none) (string, error) { return name, nil },
		tool.Options{ReadOnly: true}))
}

type slowIn struct {
	Ms int `json:"ms"`
}

// fixture is a toolkit with a variety of tools, groups and skills. ended gets the error of the context of every
// call of "slow".
type fixture struct {
	tk      *toolkit.Toolkit
	started chan struct{}
	ended   chan error
}

func newFixture(t *testing.T, change ...func(*toolkit.Config)) *fixture {
	t.Helper()
	w := &fixture{started: make(chan struct{}, 100), ended: make(chan error, 100)}
	slow := tool.Must(tool.New("slow", "Takes its time.", func(ctx context.Context, in slowIn) (string, error) {
		w.started <- struct{}{}
		select {
		case <-time.After(time.Duration(in.Ms) * time.Millisecond):
		case <-ctx.Done():
		}
		w.ended <- ctx.Err()
		return "done", ctx.Err()
	}))
	stream := tool.Must(tool.NewStream("stream", "Says three words.", func(context.Context, none) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			for _, s := range []string{"one", "two", "three"} {
				if !yield(tool.Chunk{Block: &message.Text{ID: "words", Text: s}}, nil) {
					return
				}
			}
		}
	}))
	picture := tool.Must(tool.New("picture", "Draws.", func(context.Context, none) (tool.Result, error) {
		return tool.Result{Blocks: message.Blocks{
			&message.Text{Text: "a dot"}, &message.Data{MediaType: "image/png", Bytes: []byte{1, 2, 3}},
			&message.Data{MediaType: "application/zip", Name: "x.zip", Bytes: []byte{4}},
		}}, nil
	}))
	fails := tool.Must(tool.New("fails", "Fails.", func(context.Context, none) (string, error) { return "", fmt.Errorf("the disk is full") }))
	weather := tool.Must(tool.New("weather", "Weather.", func(context.Context, none) (map[string]int, error) {
		return map[string]int{"c": 7}, nil
	}))
	cfg := toolkit.Config{
		Basic: toolkit.Group{Tools: []tool.Tool{slow, stream, picture, fails, weather}, Instructions: "Be kind."},
		Groups: []toolkit.Group{
			{Name: "zoo", Description: "Animals.", Tools: []tool.Tool{named("lion"), named("ape")}, Instructions: "Do not feed them."},
			{Name: "aviary", Description: "Birds.", Parents: []string{"zoo"}, Tools: []tool.Tool{named("owl")}},
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if w.tk, err = toolkit.New(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

// open is a policy that allows everything.
var open = &permission.Policy{Mode: permission.ModeBypass}

func serve(t *testing.T, cfg mcpserver.Config) *mcpserver.Server {
	t.Helper()
	cfg.Name, cfg.Version = "test", "1"
	if authenticated && len(cfg.Credentials) > 0 {
		cfg.Authenticator, cfg.Credentials = bearer(cfg.Credentials), nil
	}
	s, err := mcpserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func listen(t *testing.T, s *mcpserver.Server) string {
	t.Helper()
	return listenTo(t, s.Handler(), s)
}

// listenTo serves a handler that passes requests on to s.
func listenTo(t *testing.T, handler http.Handler, s *mcpserver.Server) string {
	t.Helper()
	h := httptest.NewServer(handler)
	t.Cleanup(h.Close)
	t.Cleanup(func() { _ = s.Close() }) // before h.Close, which waits for streams
	return h.URL
}

// connect connects our client.
func connect(t *testing.T, cfg mcpclient.Server) *mcpclient.Client {
	t.Helper()
	cfg.Name, cfg.Options.PingInterval, cfg.Options.Prefix = "s", -1, "s__"
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dialStdio connects to ServeStdio over a pipe.
func dialStdio(s *mcpserver.Server) func(context.Context) (io.ReadWriteCloser, error) {
	return func(context.Context) (io.ReadWriteCloser, error) {
		a, b := net.Pipe()
		go func() {
			_ = s.ServeStdio(context.Background(), b, b)
			_ = b.Close()
		}()
		return a, nil
	}
}

func names(t *testing.T, c *mcpclient.Client) []string {
	t.Helper()
	list, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, tl := range list {
		out = append(out, strings.TrimPrefix(tl.Info().Name, "s__"))
	}
	return out
}

func call(t *testing.T, c *mcpclient.Client, name, input string) *message.ToolResult {
	t.Helper()
	list, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(tl tool.Tool) bool { return tl.Info().Name == "s__"+name })
	if i < 0 {
		t.Fatalf("no tool %s", name)
	}
	cl := tool.Call{ID: "1", Name: "s__" + name, Input: json.RawMessage(input)}
	col := tool.NewCollector(cl)
	for chunk, err := range tool.Run(t.Context(), list[i], cl) {
		if err != nil {
			t.Fatal(err)
		}
		col.Add(chunk)
	}
	return col.Result()
}

// A wire is a client that sends JSON-RPC over HTTP by hand.
type wire struct {
	t       *testing.T
	url     string
	token   string
	session string
	header  map[string]string
	client  *http.Client
}

func newWire(t *testing.T, url string) *wire {
	return &wire{t: t, url: url, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// request returns a POST request with the headers of the client.
func (w *wire) request(ctx context.Context, body string) *http.Request {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if w.session != "" {
		req.Header.Set("Mcp-Session-Id", w.session)
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	for k, v := range w.header {
		req.Header.Set(k, v)
		if k == "Host" {
			req.Host = v
		}
	}
	return req
}

// stream sends a body and returns a function that returns the next event of the answer; see nextEvent.
func (w *wire) stream(ctx context.Context, body string) func() (kind, data string) {
	w.t.Helper()
	res, err := w.client.Do(w.request(ctx, body))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	events := bufio.NewReader(res.Body)
	return func() (string, string) { return nextEvent(events) }
}

// nextEvent reads a server-sent event; both are empty at the end of the stream.
func nextEvent(events *bufio.Reader) (kind, data string) {
	for {
		line, err := events.ReadString('\n')
		if err != nil || line == "\n" && kind+data != "" { // an empty line without fields ends a comment
			return kind, data
		}
		if k, ok := strings.CutPrefix(line, "event: "); ok {
			kind = strings.TrimSpace(k)
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			data = strings.TrimSpace(d)
		}
	}
}

// post sends a body and returns the status and the messages of the answer.
func (w *wire) post(ctx context.Context, body string) (int, []string) {
	w.t.Helper()
	res, err := w.client.Do(w.request(ctx, body))
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(res.Body)
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		w.session = id
	}
	var out []string
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		for l := range strings.Lines(string(data)) {
			if m, ok := strings.CutPrefix(strings.TrimSpace(l), "data: "); ok {
				out = append(out, m)
			}
		}
	} else if len(data) > 0 {
		out = []string{string(data)}
	}
	return res.StatusCode, out
}

func (w *wire) initialize(capabilities string) {
	w.t.Helper()
	status, got := w.post(w.t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"clientInfo":{"name":"wire","version":"1"}}}`)
	if status != 200 || w.session == "" {
		w.t.Fatalf("initialize: %d %v", status, got)
	}
}
