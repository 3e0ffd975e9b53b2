package agui_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agui"
	"github.com/kitbag-go/kitbag/agui/internal/desk"
)

// serverEnv, if it is set, makes the test binary a server of the sessions in a directory.
const serverEnv = "AGUI_TEST_SERVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		serve(dir)
	}
	goleak.VerifyTestMain(m)
}

func serve(dir string) {
	store, err := session.Dir(dir)
	if err != nil {
		log.Fatal(err)
	}
	h, err := agui.New(desk.Config(store, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("http://" + l.Addr().String())
	log.Fatal(http.Serve(l, h))
}

// A replica is a server with a handler of its own.
type replica struct {
	t       *testing.T
	url     string
	handler *agui.Handler
	release chan struct{} // lets a call of the tool wait end
}

// newReplica starts a server over a store. Its ids and times are always the same.
func newReplica(t *testing.T, store session.Store, change ...func(*agui.Config)) *replica {
	t.Helper()
	r := &replica{t: t, release: make(chan struct{}, 10)}
	cfg := desk.Config(store, func(ctx context.Context) error {
		select {
		case <-r.release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	var ids atomic.Int64
	cfg.Agent.NewID = func(prefix string) string { return fmt.Sprintf("%s-%d", prefix, ids.Add(1)) }
	cfg.Agent.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	for _, f := range change {
		f(&cfg)
	}
	h, err := agui.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	r.url, r.handler = srv.URL, h
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Shutdown(ctx)
		srv.CloseClientConnections()
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// A frame is a server-sent event.
type frame struct {
	id   string
	data map[string]any
}

func (f frame) kind() string { return fmt.Sprint(f.data["type"]) }

// frames reads a stream until its end, or until f returns false.
func frames(t *testing.T, body io.Reader, f func(frame) bool) {
	t.Helper()
	in := bufio.NewReader(body)
	next := frame{}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case name == "id":
			next.id = value
		case name == "data":
			if err := json.Unmarshal([]byte(value), &next.data); err != nil {
				t.Fatalf("%v in %s", err, value)
			}
		case line == "" && next.data != nil:
			if !f(next) {
				return
			}
			next = frame{}
		}
	}
}

// do sends a request. The caller closes the body of the response.
func (r *replica) do(method, query, body string, header ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+query, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// stream sends a request and returns all events of the stream.
func (r *replica) stream(method, query, body string, header ...string) []frame {
	r.t.Helper()
	res := r.do(method, query, body, header...)
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(res.Body)
		r.t.Fatalf("%s %s: %s: %s", method, query, res.Status, text)
	}
	var list []frame
	frames(r.t, res.Body, func(f frame) bool { list = append(list, f); return true })
	return list
}

// run sends a user's message and returns the events.
func (r *replica) run(thread, id, text string, more ...string) []frame {
	r.t.Helper()
	return r.stream("POST", "", request(thread, id, text, more...))
}

// request returns a RunAgentInput with a message, and more members.
func request(thread, id, text string, more ...string) string {
	msgs := []map[string]any{}
	if id != "" {
		msgs = append(msgs, map[string]any{"id": id, "role": "user", "content": text})
	}
	data, err := json.Marshal(map[string]any{"threadId": thread, "runId": "run-" + id, "messages": msgs})
	if err != nil {
		panic(err)
	}
	body := string(data[:len(data)-1])
	for _, m := range more {
		body += "," + m
	}
	return body + "}"
}

// normal returns the events one a line, without their times. Pieces of one text are joined.
func normal(t *testing.T, list []frame) string {
	t.Helper()
	var lines []map[string]any
	for _, f := range list {
		ev := map[string]any{}
		for k, v := range f.data {
			if k != "timestamp" {
				ev[k] = v
			}
		}
		if n := len(lines); n > 0 && strings.HasSuffix(f.kind(), "_CONTENT") && lines[n-1]["type"] == ev["type"] && lines[n-1]["messageId"] == ev["messageId"] {
			lines[n-1]["delta"] = lines[n-1]["delta"].(string) + ev["delta"].(string)
			continue
		}
		lines = append(lines, ev)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, ev := range lines {
		if err := enc.Encode(ev); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// last returns the last event of a stream.
func last(t *testing.T, list []frame) frame {
	t.Helper()
	if len(list) == 0 {
		t.Fatal("the stream has no events")
	}
	return list[len(list)-1]
}
