package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/internal/pgtest"
)

// TestGatewayReplicas opens a session at one of two gateways, which are processes. The other one serves it, also after the
// first was stopped. Both write their calls into one audit log.
func TestGatewayReplicas(t *testing.T) {
	if pgtest.Missing() {
		t.Skip(pgtest.Why)
	}
	db, err := pgtest.Start("fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	servers(t, "demo")
	file := replicasFile(t, `{"store":"${KITBAG_REPLICAS}","url":"http://${ADDRESS}/"},"audit":{"database":"${KITBAG_REPLICAS}"}`)
	one, two := startReplica(t, file, db.URL()), startReplica(t, file, db.URL())

	session := ""
	send := func(g *replica, method, params string) string {
		t.Helper()
		body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.address+"/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v %s\n%s", method, res.StatusCode, err, data, g.log.String())
		}
		if id := res.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		return string(data)
	}
	echo := func(g *replica, text string) {
		t.Helper()
		if got := send(g, "tools/call", `{"name":"demo__echo","arguments":{"message":"`+text+`"}}`); !strings.Contains(got, text) {
			t.Errorf("the call: %s", got)
		}
	}
	send(one, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	send(one, "tools/call", `{"name":"reset_tools","arguments":{"demo":true}}`)
	echo(one, "from the first")
	if got := send(two, "tools/list", `{}`); !strings.Contains(got, "demo__echo") {
		t.Errorf("the other gateway does not know what is open: %s", got)
	}
	echo(two, "from the second")
	one.stop(t)
	if got := send(two, "tools/list", `{}`); !strings.Contains(got, "demo__echo") {
		t.Errorf("the session has not moved: %s", got)
	}
	echo(two, "from the one that is left")
	two.stop(t)
	conn, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var calls string
	if err := conn.QueryRow(t.Context(), `SELECT string_agg(record::jsonb->>'tool', ' ' ORDER BY id) FROM kitbag_audit`).Scan(&calls); err != nil || calls != "reset_tools demo__echo demo__echo demo__echo" {
		t.Errorf("the audit log: %q %v", calls, err)
	}
}

// TestGatewayReplicasRefused checks the errors for replicas that cannot work. A password is in none of them.
func TestGatewayReplicasRefused(t *testing.T) {
	servers(t, "demo")
	for _, row := range []struct{ store, http, want string }{
		{"postgres://mcp:s3cret@db/mcp", "", "kitbag.json has replicas, but these forward requests over HTTP only; add --http"},
		{"host=db password=s3cret", "127.0.0.1:0", "kitbag.json: replicas.store: must be the URL of a Postgres database"},
		{"postgres://mcp:s3cret@/mcp?host=/no/such/directory", "127.0.0.1:0", "check the URL, and that its user may create a table"},
		{"postgres://mcp:s3cret@db:port/mcp", "127.0.0.1:0", "kitbag.json: replicas.store: postgres/pggateway: "},
	} {
		args := []string{"mcp", "serve", "--config", replicasFile(t, `{"store":"`+row.store+`","url":"http://10.0.0.7/"}`)}
		if row.http != "" {
			args = append(args, "--http", row.http)
		}
		got := kitbag(t.Context(), args...)
		if got.code == exitDone || !strings.Contains(got.stderr, row.want) || strings.Contains(got.stderr, "s3cret") {
			t.Errorf("%s: %d %s\nwant %s", row.store, got.code, got.stderr, row.want)
		}
	}
}

// replicasFile returns a configuration with the default servers and the replicas.
func replicasFile(t *testing.T, replicas string) string {
	t.Helper()
	entries, err := os.ReadFile(defaultServers)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kitbag.json")
	data := strings.TrimSuffix(strings.TrimSpace(string(entries)), "}") + `,"permissions":{"allow":["demo__echo"]},"replicas":` + replicas + `}`
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A replica is a process of kitbag mcp serve.
type replica struct {
	address string
	cmd     *exec.Cmd
	log     bytes.Buffer // complete after stop
}

func startReplica(t *testing.T, file, store string) *replica {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the address must be known before the process starts
	if err != nil {
		t.Fatal(err)
	}
	g := &replica{address: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g.cmd = exec.CommandContext(t.Context(), self, "mcp", "serve", "--config", file, "--http", g.address)
	g.cmd.Env = append(os.Environ(), "KITBAG_REPLICAS="+store, "ADDRESS="+g.address, "GORACE=atexit_sleep_ms=0")
	g.cmd.Stderr = &g.log
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", g.address)
		if err == nil {
			_ = conn.Close()
			return g
		}
		if time.Now().After(end) {
			_ = g.cmd.Process.Kill()
			_ = g.cmd.Wait()
			t.Fatalf("the gateway does not listen: %s", g.log.String())
		}
	}
}

// stop ends the process as a rolling restart does.
func (g *replica) stop(t *testing.T) {
	t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = g.cmd.Wait() // the code is that of an interrupt
	if log := g.log.String(); strings.Contains(log, "before all calls have ended") || strings.Contains(log, "panic") {
		t.Errorf("the log of the gateway that was stopped: %s", log)
	}
}
