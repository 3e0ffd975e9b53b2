package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnreadInput checks that messages to a server that does not read its input are limited before the timeout.
func TestUnreadInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &requestPipe{r: r, w: w, ends: map[string]int64{}}
	defer p.drain()
	out := &outbox{WriteCloser: p, fail: func(error) { p.Close() }}
	errs := make([]error, maxWaiting+1)
	message := make([]byte, 1<<20) // more than a pipe holds
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = out.Write(message) })
	}
	all.Wait()
	reported := 0
	for _, err := range errs {
		if err == nil {
			t.Fatal("an unread message was written")
		}
		if strings.Contains(err.Error(), "messages are waiting") {
			reported++
		}
	}
	if reported != 1 {
		t.Errorf("%d of %d errors say that too many messages are waiting, want one", reported, len(errs))
	}
}

// TestEnvWins checks that a variable of Command.Env overrides the program's own value.
func TestEnvWins(t *testing.T) {
	for _, own := range []string{"/a", "/z"} {
		t.Setenv("HOME", own)
		cmd := exec.Command("env")
		cmd.Env = environment(&Command{Env: map[string]string{"HOME": "/m"}})
		got := ""
		for _, v := range cmd.Environ() {
			if home, ok := strings.CutPrefix(v, "HOME="); ok {
				got = home
			}
		}
		if got != "/m" {
			t.Errorf("with HOME=%s the server gets HOME=%s, want /m", own, got)
		}
	}
}

// TestNoKeysInTheEnvironment checks that a server gets only those of the program's secrets that it is
// configured with, even if the program has no other variable.
func TestNoKeysInTheEnvironment(t *testing.T) {
	for _, name := range inherited {
		t.Setenv(name, "") // restores it after the test
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "KITBAG_MCP_TOKEN", "DATABASE_URL", "ANY"} {
		t.Setenv(name, "hush")
	}
	for _, row := range []struct {
		cmd  Command
		want []string
	}{
		{Command{}, nil},
		{Command{InheritEnv: []string{"GITHUB_TOKEN", "MISSING"}}, []string{"GITHUB_TOKEN=hush"}},
		{Command{Env: map[string]string{"ANY": "own"}}, []string{"ANY=own"}},
	} {
		cmd := exec.Command("env")
		cmd.Env = environment(&row.cmd)
		if got := cmd.Environ(); !slices.Equal(got, row.want) {
			t.Errorf("%+v: %q, want %q", row.cmd, got, row.want)
		}
	}
}

// TestLastOutput checks that a server's last output is read although it has exited and the reader is late.
func TestLastOutput(t *testing.T) {
	ended := make(chan struct{})
	p, err := startProcess(&Command{Path: "echo", Args: []string{"bye"}}, 100, func() { close(ended) })
	if err != nil {
		t.Fatal(err)
	}
	defer p.stdin.drain()
	time.Sleep(200 * time.Millisecond) // the reader is busy, and the server exits meanwhile
	got, err := io.ReadAll(p.stdout)
	if string(got) != "bye\n" || err != nil {
		t.Errorf("%q, %v; want bye", got, err)
	}
	<-ended
	<-p.exited
}

func init() {
	scripts["flood"] = func(msg request, reply func(string)) {
		if !handleStandard(msg, reply, `[{"name":"flood"}]`) && msg.Method == "tools/call" {
			for i := range 20_000 {
				reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i))
			}
			time.Sleep(time.Hour)
		}
	}
}

// TestFlood checks that a server that sends requests and does not read the answers is ended before they
// accumulate, and that only the caller gets the error.
func TestFlood(t *testing.T) {
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	check := func(t *testing.T, c *Client) {
		res := mustRun(t, find(t, c, "flood"), `{}`)
		if !strings.Contains(res.Text(), ErrLost.Error()) {
			t.Errorf("%.300s", res.Text())
		}
		c.Close()
		if log.Len() > 0 {
			t.Errorf("logged: %.300s", log.String())
		}
	}
	t.Run("a process", func(t *testing.T) {
		cfg := child(t, "flood")
		cfg.Options.Timeouts.Idle = 10 * time.Second
		check(t, connect(t, cfg))
	})
	t.Run("a connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, err := New("srv", Dial(sequential(scripts["flood"])), &Options{PingInterval: -1})
			if err != nil {
				t.Fatal(err)
			}
			check(t, c)
			time.Sleep(2 * time.Hour)
		})
	})
}

// roundTrip is a round tripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestFloodOverHTTP checks a server that sends requests on its stream and does not accept the answers.
func TestFloodOverHTTP(t *testing.T) {
	url := eventStreams(t, func(msg request, reply func(string)) {
		if !handleStandard(msg, reply, `[{"name":"flood"}]`) {
			for i := range 20_000 {
				reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i))
			}
			<-t.Context().Done()
		}
	})
	var open, most atomic.Int64
	stuck := roundTrip(func(req *http.Request) (*http.Response, error) {
		if req.Method != http.MethodPost {
			return http.DefaultTransport.RoundTrip(req)
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(body, []byte(`"method"`)) {
			n := open.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			<-req.Context().Done()
			open.Add(-1)
			return nil, req.Context().Err()
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
		return http.DefaultTransport.RoundTrip(req)
	})
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	c := connect(t, Server{Name: "srv", Transport: HTTP{URL: url, Client: &http.Client{Transport: stuck}},
		Options: Options{Protocol: "2025-11-25", PingInterval: -1, Timeouts: Timeouts{Idle: 10 * time.Second}}})
	res := mustRun(t, find(t, c, "flood"), `{}`)
	if n := most.Load(); !strings.Contains(res.Text(), ErrLost.Error()) || n > maxWaiting {
		t.Errorf("%d answers were in flight: %.300s", n, res.Text())
	}
}

// TestRequestBeforeHandshake checks that a server may send requests before the handshake has ended.
func TestRequestBeforeHandshake(t *testing.T) {
	url := eventStreams(t, func(msg request, reply func(string)) {
		if msg.Method == "initialize" {
			for i := range 20 {
				reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i))
			}
		}
		handleStandard(msg, reply, `[]`)
	})
	for range 5 {
		connect(t, Server{Name: "srv", Transport: HTTP{URL: url}, Options: Options{Protocol: "2025-11-25", PingInterval: -1}}).Close()
	}
}

// sequential returns a dial function for a scripted server that reads the next message only when it has handled
// the last.
func sequential(s script) func(context.Context) (io.ReadWriteCloser, error) {
	return func(context.Context) (io.ReadWriteCloser, error) {
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		go func() {
			defer out.Close()
			lines := json.NewDecoder(in)
			for msg := (request{}); lines.Decode(&msg) == nil; msg = (request{}) {
				s(msg, func(line string) { fmt.Fprintln(out, line) })
			}
		}()
		return pipe{fromServer, toServer, fromServer}, nil
	}
}

// TestUnreadMessage checks that a connection by Dial is lost when the server has left a message unread for too long.
func TestUnreadMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New("srv", Dial(sequential(func(msg request, reply func(string)) {
			if !handleStandard(msg, reply, `[{"name":"sleep"}]`) && msg.Method == "tools/call" {
				time.Sleep(10 * time.Minute)
			}
		})),
			&Options{PingInterval: -1, Timeouts: Timeouts{Idle: time.Hour, Call: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		sleep := find(t, c, "sleep")
		go func() { _, _ = run(t.Context(), sleep, `{}`) }()
		synctest.Wait() // the server has that call and reads no other
		start := time.Now()
		res := mustRun(t, sleep, `{}`)
		if d := time.Since(start); d != writeTimeout || !strings.Contains(res.Text(), "does not read its input") {
			t.Errorf("after %v: %s", d, res.Text())
		}
		c.Close()
		time.Sleep(time.Hour)
	})
}

func init() {
	scripts["impostor"] = func(msg request, reply func(string)) {
		if !handleStandard(msg, reply, `[{"name":"die"}]`) && msg.Method == "tools/call" {
			note("ran die")
			reply(`{"jsonrpc":"2.0","id":` + string(msg.ID) + `,"method":"ping"}`)
			time.Sleep(300 * time.Millisecond) // without reading the answer
			os.Exit(5)
		}
	}
}

// TestAnswersAreNotRequests checks that a call is not repeated if the server gives a request of its own the id
// of the call, and dies before it has read the answer.
func TestAnswersAreNotRequests(t *testing.T) {
	cfg := child(t, "impostor")
	diary := withDiary(t, &cfg)
	c := connect(t, cfg)
	res := mustRun(t, find(t, c, "die"), `{}`)
	if d := diary(); strings.Count(d, "ran die") != 1 || !strings.Contains(res.Text(), ErrLost.Error()) {
		t.Errorf("%s\ndiary:\n%s", res.Text(), d)
	}
}

// TestCancelledRequestsAreForgotten checks that requests that were cancelled before they were written leave
// nothing behind.
func TestCancelledRequestsAreForgotten(t *testing.T) {
	c := connect(t, child(t, "crashing"))
	work := find(t, c, "work")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		for range work.Call(ctx, toolCall(work, `{}`)) {
		}
	}
	mustRun(t, work, `{}`)
	p := c.sup.conn.proc.stdin
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.ends); n > 0 {
		t.Errorf("%d requests are kept", n)
	}
}
