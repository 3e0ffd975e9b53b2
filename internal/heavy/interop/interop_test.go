//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
		fmt.Fprintln(os.Stderr, "the servers are not installed; run internal/heavy/interop/install.sh, or make test")
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// script returns the entry point of one of the servers.
func script(t *testing.T, server string) string {
	t.Helper()
	path, err := filepath.Abs("node_modules/@modelcontextprotocol/server-" + server + "/dist/index.js")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// stdio returns the configuration of a server that runs as a process.
func stdio(t *testing.T, server string, args ...string) mcpclient.Server {
	t.Helper()
	return mcpclient.Server{Name: server, Transport: mcpclient.Command{Path: "node", Args: append([]string{script(t, server)}, args...)}}
}

const markEnv = "KITBAG_INTEROP_MARK"

// connect connects, and checks at the end of the test that no process is left.
func connect(t *testing.T, cfg mcpclient.Server) (*mcpclient.Client, string) {
	t.Helper()
	mark := fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano())
	if cmd, ok := cfg.Transport.(mcpclient.Command); ok {
		cmd.Env = map[string]string{markEnv: mark}
		cfg.Transport = cmd
	}
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err == nil {
		_, err = c.Tools(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("processes left over: %v", left)
		}
	})
	return c, mark
}

// marked returns the ids of the processes that were started with the mark.
func marked(t *testing.T, mark string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && strings.Contains(string(env), markEnv+"="+mark) {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func kill(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) == 0 {
		t.Fatal("no process to kill")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

func find(t *testing.T, c *mcpclient.Client, name string) tool.Tool {
	t.Helper()
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range tools {
		if strings.HasSuffix(tl.Info().Name, "__"+name) {
			return tl
		}
	}
	t.Fatalf("no tool %q among %d", name, len(tools))
	return nil
}

func call(ctx context.Context, tl tool.Tool, args string) (*message.ToolResult, error) {
	c := tool.Call{ID: "1", Name: tl.Info().Name, Input: json.RawMessage(args)}
	col := tool.NewCollector(c)
	for ch, err := range tool.Run(ctx, tl, c) {
		if err != nil {
			return nil, err
		}
		col.Add(ch)
	}
	return col.Result(), nil
}

func mustCall(t *testing.T, c *mcpclient.Client, name, args string) *message.ToolResult {
	t.Helper()
	res, err := call(t.Context(), find(t, c, name), args)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// everything checks the tools of server-everything, over any transport.
func everything(t *testing.T, c *mcpclient.Client) {
	t.Helper()
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(tools) < 12 || len(c.Skipped()) > 0 {
		t.Errorf("%d tools, skipped %v", len(tools), c.Skipped())
	}
	if res := mustCall(t, c, "echo", `{"message":"héllo"}`); res.Text() != "Echo: héllo" {
		t.Errorf("echo: %q", res.Text())
	}
	if res := mustCall(t, c, "get-sum", `{"a":2,"b":40}`); !strings.Contains(res.Text(), "42") {
		t.Errorf("get-sum: %q", res.Text())
	}
	image := false
	for _, b := range mustCall(t, c, "get-tiny-image", `{}`).Blocks {
		if d, ok := b.(*message.Data); ok {
			image = d.MediaType == "image/png" && strings.HasPrefix(string(d.Bytes), "\x89PNG")
		}
	}
	if !image {
		t.Error("get-tiny-image: no PNG")
	}
	res := mustCall(t, c, "get-structured-content", `{"location":"Chicago"}`)
	if !strings.Contains(string(res.Structured), `"humidity"`) {
		t.Errorf("get-structured-content: %s", res.Structured)
	}
	if res := mustCall(t, c, "get-resource-links", `{"count":2}`); strings.Count(res.Text(), "resource demo://") != 2 {
		t.Errorf("get-resource-links: %q", res.Text())
	}
	if res := mustCall(t, c, "get-sum", `{"a":"x"}`); res.Outcome != message.OutcomeError {
		t.Errorf("bad arguments: %s %q", res.Outcome, res.Text())
	}
	res = mustCall(t, c, "trigger-long-running-operation", `{"duration":1,"steps":4}`)
	if n := strings.Count(res.ForUser.Text(), "\n"); n < 3 || res.Outcome != message.OutcomeSuccess {
		t.Errorf("progress: %d lines of %q", n, res.ForUser.Text())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := call(ctx, find(t, c, "trigger-long-running-operation"), `{"duration":30,"steps":3}`); ctx.Err() == nil || err == nil {
		t.Errorf("a cancelled call: %v", err)
	}
}

func TestEverythingOverStdio(t *testing.T) {
	c, _ := connect(t, stdio(t, "everything", "stdio"))
	everything(t, c)
}

func TestFilesystem(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := connect(t, stdio(t, "filesystem", dir))
	if res := mustCall(t, c, "read_text_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(dir, "a.txt"))); res.Text() != "hello" {
		t.Errorf("read_text_file: %q", res.Text())
	}
	if res := mustCall(t, c, "read_text_file", `{"path":"/etc/hostname"}`); res.Outcome != message.OutcomeError {
		t.Errorf("a path outside: %q", res.Text())
	}
}

func TestMemoryWithFilters(t *testing.T) {
	cfg := stdio(t, "memory")
	cfg.Options.IncludeTools, cfg.Options.ExcludeTools, cfg.Options.TrustReadOnly = []string{"*graph*", "create_*"}, []string{"create_relations"}, true
	c, _ := connect(t, cfg)
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tl := range tools {
		names = append(names, tl.Info().Name)
	}
	if got := strings.Join(names, " "); got != "mcp__memory__create_entities mcp__memory__read_graph" {
		t.Errorf("tools: %s", got)
	}
	if !find(t, c, "read_graph").Info().ReadOnly || find(t, c, "create_entities").Info().ReadOnly {
		t.Error("the read-only hints are wrong")
	}
}

func TestStateless(t *testing.T) {
	cfg := stdio(t, "everything", "stdio")
	cfg.Options.Stateless = true
	c, mark := connect(t, cfg)
	for range 2 {
		if res := mustCall(t, c, "echo", `{"message":"x"}`); res.Text() != "Echo: x" {
			t.Errorf("echo: %q", res.Text())
		}
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("processes %v run between calls", left)
		}
	}
}

func TestKilled(t *testing.T) {
	cfg := stdio(t, "everything", "stdio")
	c, mark := connect(t, cfg)
	again := func(when string) {
		t.Helper()
		start := time.Now()
		if res := mustCall(t, c, "echo", `{"message":"x"}`); res.Text() != "Echo: x" {
			t.Fatalf("%s: %q", when, res.Text())
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s: the next call took %v", when, d)
		}
	}
	kill(t, marked(t, mark))
	again("killed while idle")

	done := make(chan *message.ToolResult, 1)
	go func() {
		res, _ := call(t.Context(), find(t, c, "trigger-long-running-operation"), `{"duration":20,"steps":2}`)
		done <- res
	}()
	time.Sleep(300 * time.Millisecond)
	kill(t, marked(t, mark))
	again("killed during a call")
	select {
	case res := <-done:
		if res == nil || res.Outcome != message.OutcomeError || !strings.Contains(res.Text(), "lost") {
			t.Errorf("the call in flight: %+v", res)
		}
	case <-time.After(10 * time.Second):
		t.Error("the call in flight hangs")
	}

	kill(t, marked(t, mark))
	for range 100 { // wait for the next process, and kill it while it starts
		if pids := marked(t, mark); len(pids) > 0 {
			kill(t, pids)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	again("killed at start")
	if st := c.Status(); st.Restarts < 2 {
		t.Errorf("status: %+v", st)
	}
}

// TestWhatTheServerAsks checks the requests of server-everything for input, for a sample and for the working
// directories.
func TestWhatTheServerAsks(t *testing.T) {
	cfg := stdio(t, "everything", "stdio")
	dir := t.TempDir()
	cfg.Options.Roots = []string{dir}
	cfg.Options.Elicitation = func(_ context.Context, q host.Elicitation) (host.Answer, error) {
		return host.Answer{Action: host.ActionAccept, Content: map[string]any{"name": "Elisa", "check": true}}, nil
	}
	cfg.Options.Sampling = func(_ context.Context, r host.SampleRequest) (host.Sample, error) {
		return host.Sample{Model: "test", Text: fmt.Sprintf("%d messages, %d tokens", len(r.Messages), r.MaxTokens)}, nil
	}
	c, _ := connect(t, cfg)
	for i := 0; i < 100; i++ { // these tools are listed once the server knows the client's capabilities
		tools, err := c.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(tools, func(tl tool.Tool) bool { return strings.HasSuffix(tl.Info().Name, "__get-roots-list") }) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, row := range []struct{ tool, args, want string }{
		{"trigger-elicitation-request", `{}`, "Elisa"},
		{"trigger-sampling-request", `{"prompt":"hi","maxTokens":7}`, "1 messages, 7 tokens"},
		{"get-roots-list", `{}`, dir},
	} {
		if res := mustCall(t, c, row.tool, row.args); !strings.Contains(res.Text(), row.want) {
			t.Errorf("%s: %s %q", row.tool, res.Outcome, res.Text())
		}
	}
}

// serve starts server-everything on a port and waits until it listens.
func serve(t *testing.T, mode string, port int) (stop func()) {
	t.Helper()
	cmd := exec.Command("node", script(t, "everything"), mode)
	cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for range 100 {
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			conn.Close()
			return stop
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	t.Fatal("the server does not listen")
	return nil
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestEverythingOverHTTP(t *testing.T) {
	port := freePort(t)
	stop := serve(t, "streamableHttp", port)
	c, _ := connect(t, mcpclient.Server{Name: "everything", Transport: mcpclient.HTTP{URL: fmt.Sprintf("http://127.0.0.1:%d/mcp", port)}})
	everything(t, c)
	stop()
	stop = serve(t, "streamableHttp", port) // a new process, which does not know the session
	defer stop()
	if res := mustCall(t, c, "echo", `{"message":"back"}`); res.Text() != "Echo: back" {
		t.Errorf("after the restart: %q", res.Text())
	}
}

func TestEverythingOverSSE(t *testing.T) {
	port := freePort(t)
	stop := serve(t, "sse", port)
	c, _ := connect(t, mcpclient.Server{Name: "everything", Transport: mcpclient.HTTP{URL: fmt.Sprintf("http://127.0.0.1:%d/sse", port), SSE: true}})
	everything(t, c)
	stop()
	stop = serve(t, "sse", port)
	defer stop()
	if res := mustCall(t, c, "echo", `{"message":"back"}`); res.Text() != "Echo: back" {
		t.Errorf("after the restart: %q", res.Text())
	}
}
