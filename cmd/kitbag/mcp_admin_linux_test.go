package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
)

// TestGatewayAdmin runs the gateway with --admin, calls a tool, reloads the configuration by a signal, and reads the
// endpoints and the log before and after.
func TestGatewayAdmin(t *testing.T) {
	servers(t, "demo")
	entries, err := os.ReadFile(defaultServers)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kitbag.json")
	write := func(rest string) {
		data := strings.TrimSuffix(strings.TrimSpace(string(entries)), "}") + rest + "}"
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`,"permissions":{"allow":["demo__echo"]},"hosts":["mcp.example.com"],"audit":{"file":"-"}`)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "mcp", "serve", "--config", file, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-json")
	var audit strings.Builder
	cmd.Stdout = &audit
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewScanner(stderr)
	next := func(want string) string {
		t.Helper()
		for log.Scan() {
			if strings.Contains(log.Text(), want) {
				return log.Text()
			}
		}
		t.Fatalf("the log ended before %q", want)
		return ""
	}
	address := func(line string) string {
		_, url, _ := strings.Cut(line, "http://")
		return "http://" + url
	}
	url := address(next("serving MCP"))
	admin := address(next("/readyz"))
	get := func(path string, status int) string {
		t.Helper()
		res, err := http.Get(admin + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != status {
			t.Errorf("%s: %d %v %s", path, res.StatusCode, err, data)
		}
		return string(data)
	}
	defer http.DefaultClient.CloseIdleConnections()
	c, err := mcpclient.New("g", mcpclient.HTTP{URL: url}, &mcpclient.Options{Prefix: "g__"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	runTool(t, find(t, c, "search_tools"), `{"query":"echo"}`) // starts the server
	runTool(t, find(t, c, "call_tool"), `{"name":"demo__echo","arguments":{"message":"hi"}}`)
	get("livez", http.StatusOK)
	// A page whose name was made to resolve to this machine must not read the names of servers; a probe uses an address.
	for _, row := range []struct {
		host   string
		status int
	}{
		{"localhost:9090", 200}, {"127.0.0.1", 200}, {"10.0.0.9:9090", 200}, {"[fd00::1]:9090", 200}, {"MCP.example.com:9090", 200},
		{"evil.example.com", 403}, {"localhost.evil.example.com:9090", 403}, {"127.0.0.1.evil.example.com", 403},
	} {
		for _, path := range []string{"livez", "readyz", "metrics"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = row.host
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != row.status {
				t.Errorf("/%s of the host %s: %d, want %d", path, row.host, res.StatusCode, row.status)
			}
		}
	}
	revision := func() int {
		var ready struct {
			Ready    bool
			Revision struct{ Number int }
			Servers  map[string]string
		}
		if err := json.Unmarshal([]byte(get("readyz", http.StatusOK)), &ready); err != nil || !ready.Ready || ready.Servers["demo"] != "ready" {
			t.Errorf("readyz: %v %+v", err, ready)
		}
		return ready.Revision.Number
	}
	if n := revision(); n != 1 {
		t.Errorf("revision %d", n)
	}
	metrics := get("metrics", http.StatusOK)
	for _, want := range []string{
		`kitbag_mcp_calls_total{outcome="success",server="demo"} 1`, `kitbag_mcp_call_duration_seconds_count{server="demo"} 1`,
		`kitbag_mcp_upstream_state{server="demo",state="ready"} 1`, `kitbag_mcp_upstream_withheld_tools{server="demo"} 0`,
		`kitbag_mcp_upstream_restarts_total{server="demo"} 0`, `kitbag_mcp_config_revision 1`, `kitbag_mcp_first_list_bytes`, `kitbag_mcp_list_bytes_saved_total`, `kitbag_mcp_upstream_list_bytes{server="demo"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
	hangup := func(want string) {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if line := next(`"revision":`); !strings.Contains(line, want) {
			t.Errorf("log: %s, want %s", line, want)
		}
	}
	write(`,"gruops":{}`)
	hangup("nothing has changed")
	write(`,"permissions":{"deny":["demo__echo"]},"hosts":["mcp.example.com"],"audit":{"file":"-"}`)
	hangup("the configuration was reloaded")
	if n := revision(); n != 2 {
		t.Errorf("revision %d after the reload", n)
	}
	for _, row := range []struct {
		header, value string
		status        int
	}{{"Origin", admin, 403}, {"Sec-Fetch-Site", "same-origin", 403}, {"Accept", "*/*", 200}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, admin+"reload", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(row.header, row.value)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != row.status {
			t.Errorf("POST /reload with %s %s: %d, want %d", row.header, row.value, res.StatusCode, row.status)
		}
	}
	if n := revision(); n != 3 {
		t.Errorf("revision %d after POST /reload", n)
	}
	if res := runTool(t, find(t, c, "call_tool"), `{"name":"demo__echo","arguments":{"message":"hi"}}`); res.Text() == "hi" {
		t.Errorf("after the reload: %s", res.Text())
	}
	_ = c.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stderr)
	_ = cmd.Wait() // the code is that of an interrupt
	if got := audit.String(); strings.Count(got, "\n") < 2 || !strings.Contains(got, `"outcome":"success"`) {
		t.Errorf("audit on standard output: %s", got)
	}
}
