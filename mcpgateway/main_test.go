package mcpgateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// roleEnv makes the test binary run as an upstream server in a real child process.
const roleEnv = "KITBAG_MCPGATEWAY_TEST_ROLE"

// stderrEnv is the text that the tool "die" of such a server writes to stderr before it ends the process.
const stderrEnv = "KITBAG_MCPGATEWAY_TEST_STDERR"

// roles are what the test binary can run as, by the value of roleEnv.
var roles = map[string]func() error{
	"upstream": func() error {
		tk := toolkit.Of(echo(), pid(), hang(nil), ask(nil), think(), die())
		if dir := os.Getenv(skillsEnv); dir != "" {
			if err := tk.Update(func(c *toolkit.Config) error { c.Basic.Skills = []skill.Loader{skill.In(dir)}; return nil }); err != nil {
				return err
			}
		}
		return newServer(tk).ServeStdio(context.Background(), os.Stdin, os.Stdout)
	},
}

func die() tool.Tool {
	return tool.Must(tool.New("die", "Ends the server.", func(context.Context, none) (string, error) {
		fmt.Fprintln(os.Stderr, os.Getenv(stderrEnv))
		os.Exit(3)
		return "", nil
	}))
}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleEnv)]; role != nil {
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open is a policy that allows everything.
var open = &permission.Policy{Mode: permission.ModeBypass}

type none struct{}

type said struct {
	Message string `json:"message"`
}

func echo() tool.Tool {
	return tool.Must(tool.New("echo", "Returns the message.", func(_ context.Context, in said) (string, error) { return in.Message, nil },
		tool.Options{ReadOnly: true}))
}

// pid returns a tool that returns the id of the server's process.
func pid() tool.Tool {
	return tool.Must(tool.New("pid", "Returns the process id.", func(context.Context, none) (int, error) { return os.Getpid(), nil }))
}

// hang returns a tool that does not end by itself. It sends to started, unless that is nil, when a call starts,
// and to ended when it ends.
func hang(started chan<- struct{}, ended ...chan<- struct{}) tool.Tool {
	return tool.Must(tool.NewStream("hang", "Takes forever.", func(ctx context.Context, _ none) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			yield(tool.Chunk{Block: &message.Text{Text: "begun"}, ForUser: true}, nil)
			if started != nil {
				started <- struct{}{}
			}
			<-ctx.Done()
			for _, e := range ended {
				e <- struct{}{}
			}
		}
	}))
}

type waitIn struct {
	Ms int `json:"ms,omitempty"`
}

// ask returns a tool that asks the user for their name, after a while. Before that it sends to started, unless
// that is nil.
func ask(started chan<- struct{}) tool.Tool {
	return tool.Must(tool.New("ask", "Asks.", func(ctx context.Context, in waitIn) (string, error) {
		if started != nil {
			started <- struct{}{}
		}
		time.Sleep(time.Duration(in.Ms) * time.Millisecond)
		a, err := host.From(ctx).Elicit(ctx, host.Elicitation{Message: "Your name?",
			Schema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)})
		return fmt.Sprint(a.Action, " ", a.Content["name"]), err
	}))
}

// think returns a tool that asks the host's model.
func think() tool.Tool {
	return tool.Must(tool.New("think", "Thinks.", func(ctx context.Context, _ none) (string, error) {
		s, err := host.From(ctx).Sample(ctx, host.SampleRequest{Messages: []*message.Message{message.User("hi")}})
		return s.Text, err
	}))
}

// named returns a tool that returns its name.
func named(name string) tool.Tool {
	return tool.Must(tool.New(name, "Says "+name+".", func(context.Context, none) (string, error) { return name, nil }))
}

func newServer(tk *toolkit.Toolkit) *mcpserver.Server {
	s, err := mcpserver.New(mcpserver.Config{Toolkit: tk, Name: "upstream", Version: "1", Policy: open})
	if err != nil {
		panic(err)
	}
	return s
}

// An upstream is a server behind the gateway, in this process. starts counts the connections to it.
type upstream struct {
	mcpclient.Server
	starts *atomic.Int32
	server *mcpserver.Server
}

func behind(t testing.TB, name string, tools ...tool.Tool) upstream {
	t.Helper()
	return behindToolkit(t, name, toolkit.Of(tools...))
}

func behindToolkit(t testing.TB, name string, tk *toolkit.Toolkit) upstream {
	t.Helper()
	s := newServer(tk)
	t.Cleanup(func() { _ = s.Close() })
	u := upstream{mcpclient.Server{Name: name, Options: mcpclient.Options{PingInterval: -1, Protocol: "2025-11-25"}}, new(atomic.Int32), s}
	u.Transport = mcpclient.Dial(func(ctx context.Context) (io.ReadWriteCloser, error) {
		u.starts.Add(1)
		return dial(s)(ctx)
	})
	return u
}

// dial connects to a server over a pipe.
func dial(s *mcpserver.Server) func(context.Context) (io.ReadWriteCloser, error) {
	return func(context.Context) (io.ReadWriteCloser, error) {
		a, b := net.Pipe()
		go func() {
			_ = s.ServeStdio(context.Background(), b, b)
			_ = b.Close()
		}()
		return a, nil
	}
}

// process returns an upstream server that runs in a process.
func process(t testing.TB, name string) mcpclient.Server {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return mcpclient.Server{Name: name, Transport: mcpclient.Command{Path: exe, Env: map[string]string{roleEnv: "upstream", "GORACE": "atexit_sleep_ms=0"}},
		Options: mcpclient.Options{PingInterval: -1}}
}

func newGateway(t testing.TB, cfg mcpgateway.Config) *mcpgateway.Gateway {
	t.Helper()
	cfg.Serve.Version = "1"
	if cfg.Serve.Policy == nil && len(cfg.Serve.Credentials) == 0 {
		cfg.Serve.Policy = open
	}
	g, err := mcpgateway.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// newHost returns a client of the gateway, with its own session.
func newHost(t testing.TB, g *mcpgateway.Gateway, change ...func(*mcpclient.Server)) *mcpclient.Client {
	t.Helper()
	cfg := mcpclient.Server{Name: "g", Transport: mcpclient.Dial(dial(g.Server)),
		Options: mcpclient.Options{Prefix: "_", PingInterval: -1, Protocol: "2025-11-25"}}
	for _, c := range change {
		c(&cfg)
	}
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// list waits until the client lists the wanted tools: it is notified of changes a little later than it gets the
// results of the calls that caused them.
func list(t testing.TB, c *mcpclient.Client, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		tools, err := c.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tl := range tools {
			names = append(names, tl.Info().Name[1:])
		}
		slices.Sort(names)
		if got = strings.Join(names, " "); got == want {
			return
		}
	}
	t.Fatalf("listed %s\nwant   %s", got, want)
}

// call calls a tool of the gateway, which need not be in the list.
func call(t testing.TB, c *mcpclient.Client, name, input string) *message.ToolResult {
	t.Helper()
	res, err := tryCall(t.Context(), c, name, input)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return res
}

func tryCall(ctx context.Context, c *mcpclient.Client, name, input string) (*message.ToolResult, error) {
	end := time.Now().Add(10 * time.Second)
	for {
		tools, err := c.Tools(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(tools, func(tl tool.Tool) bool { return tl.Info().Name == "_"+name })
		if i < 0 {
			if time.Now().After(end) {
				return nil, fmt.Errorf("there is no tool %s", name)
			}
			time.Sleep(5 * time.Millisecond)
			continue
		}
		cl := tool.Call{ID: "1", Name: "_" + name, Input: json.RawMessage(input)}
		col := tool.NewCollector(cl)
		for chunk, err := range tool.Run(ctx, tools[i], cl) {
			if err != nil {
				return nil, err
			}
			col.Add(chunk)
		}
		return col.Result(), nil
	}
}

// counting returns a tool that counts its calls, which must not overlap.
func counting(n *int) tool.Tool {
	return tool.Must(tool.New("count", "Counts.", func(context.Context, none) (int, error) { *n++; return *n, nil }))
}

// begin calls a tool that reports progress when it has started, and returns when the call has ended. It returns
// an error result as an error.
func begin(ctx context.Context, t testing.TB, c *mcpclient.Client, name string, began chan<- struct{}) error {
	all, err := c.Tools(ctx)
	if err != nil {
		return err
	}
	for _, tl := range all {
		if tl.Info().Name != "_"+name {
			continue
		}
		cl := tool.Call{ID: "1", Name: "_" + name, Input: json.RawMessage(`{}`)}
		col := tool.NewCollector(cl)
		for chunk, err := range tool.Run(ctx, tl, cl) {
			if err != nil {
				return err
			}
			if chunk.ForUser {
				close(began)
			}
			col.Add(chunk)
		}
		if res := col.Result(); res.Outcome != message.OutcomeSuccess {
			return errors.New(res.Text())
		}
		return nil
	}
	t.Errorf("there is no tool %s", name)
	close(began)
	return nil
}
