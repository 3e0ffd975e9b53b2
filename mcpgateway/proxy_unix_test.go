//go:build unix

package mcpgateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpgo "github.com/mark3labs/mcp-go/server"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
)

// upstreamEnv is the URL of the server that the roles "gateway" and "proxy" are in front of.
const upstreamEnv = "KITBAG_MCPGATEWAY_TEST_UPSTREAM"

func init() {
	roles["mcp-go"] = func() error { return serveHTTP(echoOfMCPGo()) }
	roles["proxy"] = func() error {
		to, err := url.Parse(os.Getenv(upstreamEnv))
		if err != nil {
			return err
		}
		return serveHTTP(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
			Transport: &http.Transport{MaxIdleConnsPerHost: 100}})
	}
	gateway := func() error {
		cfg := mcpgateway.Config{Initial: []string{"a"}, Servers: []mcpclient.Server{{Name: "a", Transport: mcpclient.HTTP{URL: os.Getenv(upstreamEnv)}}}}
		cfg.Serve.Version, cfg.Serve.Policy = "1", open
		g, err := mcpgateway.New(context.Background(), cfg)
		if err != nil {
			return err
		}
		return serveHTTP(g.Server.Handler())
	}
	roles["gateway"] = gateway
	roles["command"] = func() error {
		ballast := make([]byte, 16<<20)
		defer runtime.KeepAlive(ballast)
		return gateway()
	}
}

// echoOfMCPGo returns a server of mcp-go with one tool.
func echoOfMCPGo() http.Handler {
	s := mcpgo.NewMCPServer("upstream", "1", mcpgo.WithToolCapabilities(true))
	t := mcp.Tool{Name: "echo", RawInputSchema: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`)}
	s.AddTool(t, func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(req.GetString("message", "")), nil
	})
	return mcpgo.NewStreamableHTTPServer(s)
}

// serveHTTP serves h until standard input ends. It writes its address, and for each line the CPU time that it has used.
func serveHTTP(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String() + "/")
	go func() { _ = http.Serve(l, h) }() // ends with the process
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano() + u.Stime.Nano())
	}
	return nil
}

// A served is a process that runs serveHTTP.
type served struct {
	url string
	in  io.Writer
	out *bufio.Scanner
}

func startServed(b *testing.B, role, upstream string) *served {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env, cmd.Stderr = append(os.Environ(), roleEnv+"="+role, upstreamEnv+"="+upstream), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	s := &served{in: in, out: bufio.NewScanner(out)}
	if !s.out.Scan() {
		b.Fatalf("the role %s has not started", role)
	}
	s.url = s.out.Text()
	return s
}

// cpu returns the CPU time that the process has used.
func (s *served) cpu(b *testing.B) (used time.Duration) {
	fmt.Fprintln(s.in)
	if !s.out.Scan() {
		b.Fatal("the process has ended")
	}
	if _, err := fmt.Sscan(s.out.Text(), (*int64)(&used)); err != nil {
		b.Fatal(err)
	}
	return used
}

// A caller calls echo over HTTP, with a session of the revision 2025-11-25, or without one.
type caller struct {
	b           *testing.B
	client      *http.Client
	url, tool   string
	session     string
	sessionless bool
}

const meta2026 = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}},`

func (c *caller) call(text string) {
	meta := ""
	if c.sessionless {
		meta = meta2026
	}
	c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%s"name":%q,"arguments":{"message":%q}}}`, meta, c.tool, text), text)
}

func (c *caller) post(body, want string) {
	req, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		c.b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.sessionless {
		for name, value := range map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": c.tool} {
			req.Header.Set(name, value)
		}
	} else if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	res, err := c.client.Do(req)
	if err != nil {
		c.b.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(got), want) || strings.Contains(string(got), `"isError":true`) {
		c.b.Fatalf("%s: %s, %v", body, got, err)
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
}

func (c *caller) initialize() {
	c.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, "serverInfo")
	c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "")
}

// BenchmarkProxy compares the CPU time of the gateway for a call over HTTP with that of its upstream server, mcp-go
// with one function, and with that of httputil.ReverseProxy in front of the same server. Each is a process; eight clients
// with sessions call. The gateway calls without sessions, which costs mcp-go more: "direct-2026" are clients that do so.
// "command" is a gateway with the garbage collection of kitbag mcp serve --http.
func BenchmarkProxy(b *testing.B) {
	upstream := startServed(b, "mcp-go", "")
	ways := map[string]*served{"proxy": startServed(b, "proxy", upstream.url), "gateway": startServed(b, "gateway", upstream.url), "command": startServed(b, "command", upstream.url), "direct": upstream, "direct-2026": upstream}
	names := []string{"direct", "direct-2026", "proxy", "gateway", "command"}
	text := strings.Repeat("x", 500)
	const clients, calls = 8, 250
	callers := map[string][]*caller{}
	for _, name := range names {
		tool := "echo"
		if name == "gateway" || name == "command" {
			tool = "a__echo"
		}
		for range clients {
			c := &caller{b: b, client: &http.Client{Transport: &http.Transport{}}, url: ways[name].url, tool: tool, sessionless: name == "direct-2026"}
			defer c.client.CloseIdleConnections()
			if !c.sessionless {
				c.initialize()
			}
			callers[name] = append(callers[name], c)
		}
	}
	own, served, waits := map[string]time.Duration{}, map[string]time.Duration{}, map[string][]time.Duration{}
	round := func(name string, clients int) {
		way := ways[name]
		own[name] -= way.cpu(b)
		served[name] -= upstream.cpu(b)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, c := range callers[name][:clients] {
			wg.Go(func() {
				var took []time.Duration
				for range calls {
					start := time.Now()
					c.call(text)
					took = append(took, time.Since(start))
				}
				mu.Lock()
				defer mu.Unlock()
				waits[name] = append(waits[name], took...)
			})
		}
		wg.Wait()
		own[name] += way.cpu(b)
		served[name] += upstream.cpu(b)
	}
	for _, name := range names { // warm
		round(name, clients)
	}
	clear(own)
	clear(served)
	us := func(d time.Duration) float64 { return float64(d.Microseconds()) }
	n := 0
	for b.Loop() {
		n += clients * calls
		for _, name := range names {
			round(name, clients)
		}
	}
	for _, name := range names {
		b.ReportMetric(us(own[name])/float64(n), name+"-µs/call")
	}
	b.ReportMetric(float64(own["gateway"])/float64(own["direct"]), "gateway/direct")
	b.ReportMetric(float64(own["command"])/float64(own["direct"]), "command/direct")
	b.ReportMetric(float64(own["gateway"])/float64(served["gateway"]), "gateway/upstream")
	clear(waits)
	for range 4 { // one client at a time, for which the processors are not busy
		for _, name := range names {
			round(name, 1)
		}
	}
	for _, name := range names {
		slices.Sort(waits[name])
		b.ReportMetric(us(waits[name][len(waits[name])/2]), name+"-wall-µs")
	}
	b.ReportMetric(0, "ns/op")
}
