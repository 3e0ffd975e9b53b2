package mcpclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/demoserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"go.uber.org/goleak"
)

// roleEnv makes the test binary a server: a real child process.
const roleEnv = "KITBAG_MCPCLIENT_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(runAsServer(role))
	}
	goleak.VerifyTestMain(m)
}

func runAsServer(role string) int {
	fmt.Fprintln(os.Stderr, "the server says hello on stderr")
	if process, file, ok := pinsRole(role); ok {
		return addPins(file, process)
	}
	switch {
	case role == "demo":
		if err := demoserver.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	case role == "sleeper":
		time.Sleep(time.Hour)
	case scripts[role] != nil:
		return runScript(scripts[role])
	}
	fmt.Fprintln(os.Stderr, "no such role:", role)
	return 2
}

// child describes a child process with the given role.
func child(t testing.TB, role string) Server {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Name: "srv", Transport: Command{Path: exe, Env: map[string]string{roleEnv: role, "GORACE": "atexit_sleep_ms=0"}},
		Options: Options{PingInterval: -1}}
}

// connect connects, and checks at the end of the test that no process is left.
func connect(t testing.TB, cfg Server) *Client {
	t.Helper()
	mark := "KITBAG_MCPCLIENT_MARK=" + t.Name() + time.Now().String()
	if _, ok := cfg.Transport.(Command); ok {
		key, value, _ := strings.Cut(mark, "=")
		cfg = withEnv(cfg, key, value)
	}
	c, err := tryConnect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		noProcess(t, mark)
	})
	return c
}

// tryConnect makes a client and lists its tools.
func tryConnect(ctx context.Context, cfg Server) (*Client, error) {
	c, err := New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		return nil, err
	}
	if _, err := c.Tools(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// withEnv returns a server that is started with one more variable.
func withEnv(cfg Server, key, value string) Server {
	cmd := cfg.Transport.(Command)
	cmd.Env = maps.Clone(cmd.Env)
	cmd.Env[key] = value
	cfg.Transport = cmd
	return cfg
}

// noProcess fails the test if a process has the mark in its environment.
func noProcess(t testing.TB, mark string) {
	t.Helper()
	for pid, env := range environments(t) {
		if strings.Contains(env, mark) {
			t.Errorf("process %s is left over", pid)
		}
	}
}

// environments yields the readable environments of the machine's processes, by process id.
func environments(t testing.TB) iter.Seq2[string, string] {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		out, err := exec.Command("ps", "-axww", "-E", "-o", "pid=,command=").Output()
		if err != nil {
			t.Fatal(err)
		}
		return func(yield func(string, string) bool) {
			for line := range strings.Lines(string(out)) {
				pid, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				if !yield(pid, rest) {
					return
				}
			}
		}
	}
	return func(yield func(string, string) bool) {
		for _, e := range entries {
			env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
			if err == nil && !yield(e.Name(), string(env)) {
				return
			}
		}
	}
}

func find(t testing.TB, c *Client, name string) tool.Tool {
	t.Helper()
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range tools {
		if _, remote, _ := Origin(tl); remote == name {
			return tl
		}
	}
	t.Fatalf("no tool %q among %d", name, len(tools))
	return nil
}

// run runs a call to its end.
func run(ctx context.Context, tl tool.Tool, args string) (*message.ToolResult, error) {
	call := toolCall(tl, args)
	col := tool.NewCollector(call)
	for ch, err := range tool.Run(ctx, tl, call) {
		if err != nil {
			return nil, err
		}
		col.Add(ch)
	}
	return col.Result(), nil
}

func mustRun(t testing.TB, tl tool.Tool, args string) *message.ToolResult {
	t.Helper()
	res, err := run(t.Context(), tl, args)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A script is a server that answers as the test needs, in raw JSON.
type script func(msg request, reply func(string))

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"` // of an answer to the server
	Error  json.RawMessage `json:"error"`
}

// result is the answer to m.
func (m request) result(body string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, body)
}

func (m request) fail(code int, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q,"data":{"why":"test"}}}`, m.ID, code, message)
}

// name is the tool that is called.
func (m request) name() string {
	var p struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(m.Params, &p)
	return p.Name
}

func runScript(s script) int {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var msg request
		if json.Unmarshal(in.Bytes(), &msg) == nil {
			s(msg, func(line string) { fmt.Println(line) })
		}
	}
	return 0
}

// handleStandard handles the messages that every server must handle, and reports whether it did.
func handleStandard(msg request, reply func(string), tools string) bool {
	switch msg.Method {
	case "server/discover":
		reply(msg.fail(codeMethodNotFound, "unknown method"))
	case "initialize":
		reply(msg.result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"script","version":"1"}}`))
	case "tools/list":
		reply(msg.result(`{"tools":` + tools + `}`))
	case "ping":
		reply(msg.result(`{}`))
	default:
		return false
	}
	return true
}

var scripts = map[string]script{}

func toolCall(tl tool.Tool, args string) tool.Call {
	return tool.Call{ID: "c1", Name: tl.Info().Name, Input: json.RawMessage(args)}
}
