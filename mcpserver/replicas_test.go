package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A cluster is replicas of one server, and a balancer that sends each request to the next one that is up.
type cluster struct {
	t        *testing.T
	url      string // of the balancer
	replicas []*oneOf
	next     atomic.Int64
}

type oneOf struct {
	net.Listener
	server *mcpserver.Server
	web    *httptest.Server
	shared *cut
	down   atomic.Bool // to the balancer

	// arrived, unless nil, is called once, when the first bytes of a request have arrived, which the server then does not get.
	arrived atomic.Pointer[func(net.Conn)]
	last    atomic.Pointer[arrivals] // the connection on which bytes have arrived
}

// Accept replaces that of the listener.
func (o *oneOf) Accept() (net.Conn, error) {
	conn, err := o.Listener.Accept()
	return &arrivals{conn, o, make(chan bool, 1)}, err
}

type arrivals struct {
	net.Conn
	at   *oneOf
	idle chan bool // buffers true after it has become idle
}

func (a *arrivals) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	if err == nil {
		a.at.last.Store(a)
		if f := a.at.arrived.Swap(nil); f != nil {
			(*f)(a.Conn)
			return 0, io.EOF
		}
	}
	return n, err
}

// A cut is a store that a replica can be cut off from.
type cut struct {
	mcpserver.Shared
	off atomic.Bool
}

func (c *cut) Get(ctx context.Context, key string) ([]byte, error) {
	if c.off.Load() {
		return nil, errors.New("cut off from db.internal")
	}
	return c.Shared.Get(ctx, key)
}

func (c *cut) Swap(ctx context.Context, key string, old, new []byte, ttl time.Duration) (bool, error) {
	if c.off.Load() {
		return false, errors.New("cut off from db.internal")
	}
	return c.Shared.Swap(ctx, key, old, new, ttl)
}

func newCluster(t *testing.T, n int, cfg func() mcpserver.Config) *cluster {
	t.Helper()
	c := &cluster{t: t}
	shared := mcpserver.NewShared()
	for range n {
		o := &oneOf{shared: &cut{Shared: shared}}
		o.web = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.server.Handler().ServeHTTP(w, r) }))
		o.Listener = o.web.Listener
		o.web.Listener = o
		o.web.Config.ConnState = func(conn net.Conn, s http.ConnState) {
			if s == http.StateIdle {
				select {
				case conn.(*arrivals).idle <- true:
				default:
				}
			}
		}
		config := cfg()
		config.Replicas = &mcpserver.Replicas{Shared: o.shared, URL: "http://" + o.web.Listener.Addr().String() + "/"}
		o.server = serve(t, config)
		o.web.Start()
		t.Cleanup(o.web.Close)
		t.Cleanup(func() { _ = o.server.Close() })
		c.replicas = append(c.replicas, o)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Transport: transport, Rewrite: func(p *httputil.ProxyRequest) {
		for range n {
			o := c.replicas[int(c.next.Add(1))%n]
			if !o.down.Load() {
				to, _ := url.Parse(o.web.URL)
				p.SetURL(to)
				return
			}
		}
	}}
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // otherwise the body is closed when the answer begins, maybe before the transport has read its end
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(balancer.Close)
	t.Cleanup(func() { // ends the streams, for which balancer.Close waits
		for _, o := range c.replicas {
			_ = o.server.Close()
		}
	})
	c.url = balancer.URL
	return c
}

// kill ends the process of a replica, as far as anyone else can see.
func (c *cluster) kill(o *oneOf) {
	o.down.Store(true)
	o.shared.off.Store(true)
	_ = o.web.Listener.Close()
	o.web.CloseClientConnections()
}

// drain stops a replica as a rolling restart does.
func (c *cluster) drain(o *oneOf, grace time.Duration) error {
	o.down.Store(true)
	ctx, cancel := context.WithTimeout(c.t.Context(), grace)
	defer cancel()
	err := o.server.Drain(ctx)
	_ = o.server.Close()
	_ = o.web.Listener.Close()
	return err
}

// client returns a client of the balancer, and one of each replica, with the same session and token.
func (c *cluster) client(token string) (*wire, []*wire) {
	w := newWire(c.t, c.url)
	w.token = token
	w.initialize(`{"elicitation":{}}`)
	direct := make([]*wire, len(c.replicas))
	for i, o := range c.replicas {
		direct[i] = newWire(c.t, o.web.URL)
		direct[i].token, direct[i].session = token, w.session
	}
	return w, direct
}

// holder returns the index of the replica that has the session of a client.
func (c *cluster) holder(direct []*wire) int {
	c.t.Helper()
	for i, o := range c.replicas {
		if slices.Contains(o.server.Held(), direct[i].session) {
			return i
		}
	}
	c.t.Fatal("no replica has the session")
	return -1
}

func two() []mcpserver.Credential {
	return []mcpserver.Credential{{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB}}
}

// TestReplicasSession checks a session of which each request arrives at another replica: what it has opened, questions, the state
// of tools, streams, and its end.
func TestReplicasSession(t *testing.T) {
	greet := tool.Must(tool.New("greet", "Asks.", func(ctx context.Context, _ none) (string, error) {
		a, err := host.From(ctx).Elicit(ctx, host.Elicitation{ID: "who", Message: "Who?", Schema: nameForm})
		return fmt.Sprint("hello ", a.Content["name"]), err
	}))
	c := newCluster(t, 3, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: newFixture(t, func(cfg *toolkit.Config) { cfg.Basic.Tools = append(cfg.Basic.Tools, greet) }).tk, Policy: open, Credentials: two()}
	})
	w, direct := c.client(tokenA)
	if got := w.rpc("tools/call", `{"name":"reset_tools","arguments":{"zoo":true}}`); !strings.Contains(strings.Join(got, ""), "Open now: zoo") {
		t.Fatal(got)
	}
	for i, d := range direct {
		if got := strings.Join(d.rpc("tools/list", `{}`), ""); !strings.Contains(got, `"lion"`) {
			t.Errorf("replica %d does not know what is open: %s", i, got)
		}
	}
	for i, d := range direct {
		call := d.open(d.request(t.Context(), `{"jsonrpc":"2.0","id":"g`+fmt.Sprint(i)+`","method":"tools/call","params":{"name":"greet"}}`))
		question := ""
		for !strings.Contains(question, "elicitation/create") {
			if _, question = call.next(); question == "" && call.status != 200 {
				t.Fatal(call.status)
			}
		}
		var q struct{ ID json.RawMessage }
		if err := json.Unmarshal([]byte(question), &q); err != nil {
			t.Fatal(err)
		}
		if status, got := direct[(i+1)%3].post(t.Context(), `{"jsonrpc":"2.0","id":`+string(q.ID)+`,"result":{"action":"accept","content":{"name":"Ada"}}}`); status != 202 {
			t.Fatal(status, got)
		}
		if got := strings.Join(call.rest(), ""); !strings.Contains(got, "hello Ada") {
			t.Errorf("the call through replica %d: %s", i, got)
		}
	}
	stolen := newWire(t, c.url)
	stolen.token, stolen.session = tokenB, w.session
	for range 3 {
		if status, got := stolen.post(t.Context(), listBody); status != 404 {
			t.Errorf("another credential uses the session: %d %v", status, got)
		}
	}
	direct[(c.holder(direct)+1)%3].delete()
	for i, d := range direct {
		if status, _ := d.post(t.Context(), listBody); status != 404 {
			t.Errorf("the session that has ended, at replica %d: %d", i, status)
		}
	}
}

// TestReplicasDie kills the replica of a session: the call in flight fails and its client is told, what was open is open on
// another one, lost notifications are sent again, and the dead one, which was only cut off, does not continue.
func TestReplicasDie(t *testing.T) {
	for _, forwarded := range []bool{false, true} {
		t.Run(fmt.Sprint("forwarded=", forwarded), func(t *testing.T) {
			var slow []*fixture
			c := newCluster(t, 3, func() mcpserver.Config {
				slow = append(slow, newFixture(t))
				return mcpserver.Config{Toolkit: slow[len(slow)-1].tk, Policy: open, Credentials: two()}
			})
			w, direct := c.client(tokenA)
			w.rpc("tools/call", `{"name":"reset_tools","arguments":{"zoo":true}}`)
			at := c.holder(direct)
			through := direct[at]
			if forwarded {
				through = direct[(at+1)%3]
			}
			answer := make(chan []string, 1)
			go func() {
				_, got := through.post(t.Context(), `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`)
				answer <- got
			}()
			<-slow[at].started
			c.kill(c.replicas[at])
			if got := strings.Join(<-answer, ""); forwarded && !strings.Contains(got, "may have had effects") || !forwarded && strings.Contains(got, "result") {
				t.Errorf("the call in flight: %q", got)
			}
			for range 3 {
				if got := strings.Join(w.rpc("tools/list", `{}`), ""); !strings.Contains(got, `"lion"`) {
					t.Errorf("after the death: %s", got)
				}
			}
			stream := w.back("")
			if got := fmt.Sprint(stream.next()) + fmt.Sprint(stream.next()) + fmt.Sprint(stream.next()); !strings.Contains(got, "tools/list_changed") {
				t.Errorf("notifications that may have been lost: %s", got)
			}
			stream.drop()
			if next := c.holder(direct); next == at {
				t.Error("the dead replica still has the session")
			}
		})
	}
}

// TestReplicasCutOff checks that a replica that cannot reach the store refuses sessions, because others may have taken them over,
// and does not say where the store is.
func TestReplicasCutOff(t *testing.T) {
	c := newCluster(t, 2, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open} })
	_, direct := c.client("")
	at := c.holder(direct)
	c.replicas[at].shared.off.Store(true)
	for end := time.Now().Add(20 * time.Second); ; {
		status, got := direct[at].post(t.Context(), listBody)
		if status == 503 && !strings.Contains(strings.Join(got, ""), "db.internal") {
			break
		}
		if time.Now().After(end) {
			t.Fatal(status, got)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if got := strings.Join(direct[1-at].rpc("tools/list", `{}`), ""); !strings.Contains(got, `"weather"`) {
		t.Errorf("on the other: %s", got)
	}
	c.replicas[at].shared.off.Store(false)
	if got := strings.Join(direct[at].rpc("tools/list", `{}`), ""); !strings.Contains(got, `"weather"`) {
		t.Errorf("after it: %s", got)
	}
	if now := c.holder(direct); now == at {
		for end := time.Now().Add(5 * time.Second); c.holder(direct) == at; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the replica that was cut off still has the session")
			}
		}
	}
}

// TestReplicasDrain restarts the replicas in turn, while a call runs and streams are open.
func TestReplicasDrain(t *testing.T) {
	var counting []*steps
	c := newCluster(t, 3, func() mcpserver.Config {
		counting = append(counting, newSteps())
		tk := newFixture(t, func(cfg *toolkit.Config) { cfg.Basic.Tools = append(cfg.Basic.Tools, counting[len(counting)-1].tool) }).tk
		return mcpserver.Config{Toolkit: tk, Policy: open}
	})
	w, direct := c.client("")
	at := c.holder(direct)
	via := direct[(at+1)%3]
	call := via.count(5) // forwarded
	counting[at].more <- struct{}{}
	id, _ := call.next()
	for data := ""; !strings.Contains(data, `"message":"1"`); {
		id, data = call.next()
	}
	call.drop() // the client has lost its connection, but the call continues
	drained := make(chan error, 1)
	go func() { drained <- c.drain(c.replicas[at], time.Minute) }()
	counting[at].more <- struct{}{}
	w.rpc("tools/list", `{}`) // sessions are usable while their replica is drained
	close(counting[at].more)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.back(id).rest(), " "); !strings.Contains(got, `"message":"2"`) || !strings.Contains(got, `end`) {
		t.Errorf("the call resumed on another replica: %s", got)
	}
	now := c.holder(direct)
	stream := w.back("")
	last := ""
	if status, _ := w.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"reset_tools","arguments":{"zoo":true}}}`); status != 200 {
		t.Fatal(status)
	}
	if last, _ = stream.next(); last == "" {
		t.Error("the stream was not primed")
	}
	if err := c.drain(c.replicas[now], time.Minute); err != nil {
		t.Fatal(err)
	}
	stream.rest() // ends with the replica
	if again := w.back(last); again.status != 200 {
		t.Errorf("the stream resumed on another replica: %d", again.status)
	} else {
		again.drop()
	}
	if got := strings.Join(w.rpc("tools/list", `{}`), ""); !strings.Contains(got, `"lion"`) {
		t.Errorf("on the last replica: %s", got)
	}
}

// TestReplicasDrainTime checks that a call that does not end in time is cancelled and its client told, and that its session moves.
func TestReplicasDrainTime(t *testing.T) {
	var slow []*fixture
	c := newCluster(t, 2, func() mcpserver.Config {
		slow = append(slow, newFixture(t))
		return mcpserver.Config{Toolkit: slow[len(slow)-1].tk, Policy: open}
	})
	w, direct := c.client("")
	at := c.holder(direct)
	answer := make(chan []string, 1)
	go func() {
		_, got := direct[1-at].post(t.Context(), `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`)
		answer <- got
	}()
	<-slow[at].started
	if err := c.drain(c.replicas[at], 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "1 calls are cancelled") {
		t.Error(err)
	}
	if got := strings.Join(<-answer, ""); !strings.Contains(got, "may have had effects") {
		t.Errorf("the call: %q", got)
	}
	if got := strings.Join(w.rpc("tools/list", `{}`), ""); !strings.Contains(got, `"weather"`) {
		t.Errorf("after it: %s", got)
	}
}

// TestReplicasTickets checks calls of clients without sessions that wait for an answer: the answer may arrive at any replica, once.
func TestReplicasTickets(t *testing.T) {
	var ran atomic.Int64
	c := newCluster(t, 3, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: asking(&ran, nil), Policy: open, Credentials: two()}
	})
	anna, otto := newModern(t, c.url, tokenA, `{"elicitation":{}}`), newModern(t, c.url, tokenB, `{"elicitation":{}}`)
	const ada = `,"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}},"requestState":"`
	for range 6 {
		state := anna.asked("tools/call", "greet", "")
		for range 3 {
			if status, got := otto.send(t.Context(), "tools/call", "greet", ada+state+`"`); status != 400 || strings.Contains(got, "Ada") {
				t.Errorf("another credential answers: %d %s", status, got)
			}
		}
		if status, got := anna.send(t.Context(), "tools/call", "greet", ada+state+`"`); status != 200 || !strings.Contains(got, "accept Ada") {
			t.Errorf("the answer: %d %s", status, got)
		}
		for range 3 {
			if status, got := anna.send(t.Context(), "tools/call", "greet", ada+state+`"`); status != 400 {
				t.Errorf("the answer again: %d %s", status, got)
			}
		}
	}
	state := anna.asked("tools/call", "greet", "")
	for _, o := range c.replicas[1:] {
		c.kill(o)
	}
	last := anna.asked("tools/call", "greet", "") // at the only one that is left
	c.replicas[1].down.Store(false)
	for _, s := range []string{state, last} {
		told := ""
		for range 4 {
			if status, got := anna.send(t.Context(), "tools/call", "greet", ada+s+`"`); status == 200 || status == 400 {
				told += got
			}
		}
		if !strings.Contains(told, "accept Ada") && !strings.Contains(told, "repeat the request without requestState") {
			t.Errorf("after a death: %q", told)
		}
	}
}

// TestReplicasTasks checks that a replica that is drained waits for its tasks, and that their clients then get the results from
// the others.
func TestReplicasTasks(t *testing.T) {
	release := make(chan struct{})
	c := newCluster(t, 2, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: workers(release, make(chan error, 1)), Policy: open, TaskAfter: time.Nanosecond, Credentials: two()}
	})
	anna := newModern(t, c.replicas[0].web.URL, tokenA, tasksDeclared)
	id := anna.task("work")
	drained := make(chan error, 1)
	go func() { drained <- c.drain(c.replicas[0], time.Minute) }()
	for draining := false; !draining; time.Sleep(time.Millisecond) {
		members, _ := c.replicas[1].shared.Get(t.Context(), "replicas")
		draining = strings.Contains(string(members), `"draining":true`)
		select {
		case err := <-drained:
			t.Fatal("the replica has not waited for the task:", err)
		default:
		}
	}
	anna.url = c.replicas[1].web.URL
	anna.await(id, "working")
	close(release)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if got := anna.await(id, "completed"); !strings.Contains(got, `"worked"`) || !strings.Contains(got, `"resultType"`) {
		t.Error(got)
	}
	if got, _ := anna.state("tasks/cancel", id, ""); strings.Contains(got, "error") {
		t.Errorf("cancelling a task that has ended: %s", got)
	}
	if got, _ := newModern(t, anna.url, tokenB, tasksDeclared).state("tasks/get", id, ""); !strings.Contains(got, "no such task") {
		t.Errorf("another credential: %s", got)
	}
}

// TestReplicasNonces checks that a ticket for a call is good at one replica only.
func TestReplicasNonces(t *testing.T) {
	c := newCluster(t, 3, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk} })
	m := newModern(t, c.url, "", `{"elicitation":{}}`)
	for range 4 {
		with := `,"arguments":{},"inputResponses":{"allow":{"action":"accept"}},"requestState":"` + m.asked("tools/call", "weather", `,"arguments":{}`) + `"`
		ran := 0
		for range 4 {
			if _, got := m.send(t.Context(), "tools/call", "weather", with); strings.Contains(got, `"c":7`) {
				ran++
			} else if !strings.Contains(got, "used before") {
				t.Error(got)
			}
		}
		if ran != 1 {
			t.Errorf("a ticket was good for %d calls", ran)
		}
	}
}

// TestReplicasForged checks that only a replica can forward, only to the replica it means, once, and no farther.
func TestReplicasForged(t *testing.T) {
	var passes []string
	c := newCluster(t, 2, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Credentials: two()}
	})
	for _, o := range c.replicas {
		inner := o.web.Config.Handler
		o.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if p := r.Header.Get("Kitbag-Forwarded"); p != "" {
				passes = append(passes, p)
			}
			inner.ServeHTTP(w, r)
		})
	}
	_, direct := c.client(tokenA)
	at := c.holder(direct)
	direct[1-at].rpc("tools/list", `{}`) // forwarded
	if len(passes) != 1 {
		t.Fatal("not forwarded", passes)
	}
	stranger := newWire(t, c.replicas[at].web.URL)
	stranger.token, stranger.header = "unknown", map[string]string{"Kitbag-Forwarded": passes[0]}
	if status, _ := stranger.post(t.Context(), listBody); status != 401 {
		t.Errorf("a pass without a credential: %d", status)
	}
	for why, header := range map[string]string{"made up": "abc", "empty": " ", "used": passes[0], "changed": passes[0][:len(passes[0])-2] + "AA"} {
		for i := range c.replicas {
			direct[i].header = map[string]string{"Kitbag-Forwarded": header}
			if status, got := direct[i].post(t.Context(), listBody); status != 403 && !(status == 421 && why == "used" && i != at) {
				t.Errorf("a pass that is %s, at replica %d: %d %v", why, i, status, got)
			}
		}
	}
}

// TestReplicasHeaders checks that a client cannot remove headers between the replicas by naming them in Connection.
func TestReplicasHeaders(t *testing.T) {
	c := newCluster(t, 2, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Credentials: two()}
	})
	_, direct := c.client(tokenA)
	at := c.holder(direct)
	for _, names := range []string{"Authorization", "Mcp-Session-Id", "authorization, mcp-session-id, content-type, accept", "Kitbag-Forwarded", "upgrade"} {
		for i := range c.replicas {
			direct[i].header = map[string]string{"Connection": names}
			if status, got := direct[i].post(t.Context(), listBody); status != 200 {
				t.Errorf("Connection: %s, forwarded %v: %d %v", names, i != at, status, got)
			}
		}
	}
}

// TestReplicasLimits checks that a limit holds for all replicas together, and can be used up through any of them.
func TestReplicasLimits(t *testing.T) {
	for _, share := range []int{1, 2, 7, 20} {
		c := newCluster(t, 3, func() mcpserver.Config {
			return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Credentials: two(), Limits: mcpserver.Limits{Share: share}}
		})
		opened := 0
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && opened < share; {
			w := newWire(t, c.url)
			w.token = tokenA
			if status, _ := w.post(t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`); status == 200 {
				opened++
			}
		}
		for range 12 {
			w := newWire(t, c.url)
			w.token = tokenA
			if status, _ := w.post(t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`); status == 200 {
				opened++
			}
		}
		if opened != share {
			t.Errorf("%d sessions were opened, and the limit is %d", opened, share)
		}
	}
}

// TestReplicasSubscription checks that a subscription is kept when its session moves, in both ways, and that an update that may
// have been lost is sent.
func TestReplicasSubscription(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed=", killed), func(t *testing.T) {
			c := newCluster(t, 2, library)
			w, direct := c.client("")
			const uri = "db://rows/1"
			if got := strings.Join(w.rpc("resources/subscribe", `{"uri":"`+uri+`"}`), ""); strings.Contains(got, "error") {
				t.Fatal(got)
			}
			at := c.holder(direct)
			if killed {
				c.kill(c.replicas[at])
			} else if err := c.drain(c.replicas[at], time.Minute); err != nil {
				t.Fatal(err)
			}
			stream := w.back("")
			updated := func() {
				t.Helper()
				for {
					switch id, data := stream.next(); {
					case id == "" && data == "":
						t.Fatal("the stream has ended")
					case strings.Contains(data, "resources/updated") && strings.Contains(data, uri):
						return
					}
				}
			}
			if killed { // it may have changed while no one had the session
				updated()
			}
			c.replicas[1-at].server.ResourceUpdated(uri)
			updated()
			stream.drop()
		})
	}
}

// TestReplicasSSE checks HTTP+SSE, whose stream is at one replica while messages arrive at any of them.
func TestReplicasSSE(t *testing.T) {
	c := newCluster(t, 3, func() mcpserver.Config {
		return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Credentials: two()}
	})
	o, status := dialOld(t, c.url, tokenA, nil)
	if status != 200 {
		t.Fatal(status)
	}
	for range 4 {
		if got := o.send(listBody); !strings.Contains(got, `"weather"`) {
			t.Error(got)
		}
	}
	thief := newWire(t, o.url)
	thief.token = tokenB
	for range 3 {
		if status, _ := thief.post(t.Context(), listBody); status != 404 {
			t.Errorf("another credential posts: %d", status)
		}
	}
	o.leave()
	for end := time.Now().Add(10 * time.Second); status != 404; {
		if status, _ = o.post(t.Context(), listBody); time.Now().After(end) {
			t.Fatal("the session has not ended with its stream")
		}
	}
}

// TestReplicasDrainDirect checks that a client whose balancer does not know that a replica is drained notices nothing.
func TestReplicasDrainDirect(t *testing.T) {
	c := newCluster(t, 2, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open} })
	old, direct := c.client("")
	at := c.holder(direct)
	if err := c.replicas[at].server.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if got := strings.Join(old.rpc("tools/list", `{}`), ""); !strings.Contains(got, `"weather"`) {
			t.Errorf("the session: %s", got)
		}
		opened, mine := c.client("")
		if got := strings.Join(opened.rpc("tools/list", `{}`), ""); !strings.Contains(got, `"weather"`) || c.holder(mine) == at {
			t.Errorf("a new session, at replica %d: %s", c.holder(mine), got)
		}
		if status, got := newModern(t, c.replicas[at].web.URL, "", `{}`).send(t.Context(), "tools/call", "weather", ""); status != 200 {
			t.Errorf("without a session: %d %s", status, got)
		}
	}
}

// TestDrainAlone checks that Drain of a server that has no replicas waits for calls, and leaves the sessions.
func TestDrainAlone(t *testing.T) {
	fx := newFixture(t)
	s := serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open})
	w := newWire(t, listen(t, s))
	w.initialize(`{}`)
	call := func(ms string) <-chan string {
		answer := make(chan string, 1)
		go func() {
			_, got := w.post(t.Context(), `{"jsonrpc":"2.0","id":"`+ms+`","method":"tools/call","params":{"name":"slow","arguments":{"ms":`+ms+`}}}`)
			answer <- strings.Join(got, "")
		}()
		<-fx.started
		return answer
	}
	short := call("200")
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if got := <-short; !strings.Contains(got, "done") {
		t.Errorf("a call that Drain has waited for: %s", got)
	}
	long := call("60000")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if got := <-long; !strings.Contains(got, "may have had effects") {
		t.Errorf("a call that was cancelled: %s", got)
	}
}

// closing lets the replica close the connection on which the next request arrives, before it has read the request, as a server does
// that shuts down, or whose connection was idle for too long.
func (o *oneOf) closing() {
	f := func(conn net.Conn) { _ = conn.Close() }
	o.arrived.Store(&f)
}

// TestReplicasClosing forwards requests of each kind on connections that are closed before the request is read. As it was not
// handled, it must be repeated.
func TestReplicasClosing(t *testing.T) {
	t.Run("sessions", func(t *testing.T) {
		c := newCluster(t, 2, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open} })
		_, direct := c.client("")
		at := c.holder(direct)
		holder, via := c.replicas[at], direct[1-at]
		for range 2 {
			for body, want := range map[string]string{
				listBody: `200 "weather"`,
				`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"weather"}}`: `200 "c":7`,
				`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                     "202 ",
				`{"jsonrpc":"2.0","id":"ask-99","result":{"action":"cancel"}}`:               "202 ",
			} {
				holder.closing()
				via.expect(body, want)
			}
		}
		holder.closing()
		stream := via.back("")
		if stream.status != 200 {
			t.Errorf("a stream: %d", stream.status)
		}
		stream.drop()
		holder.closing()
		via.delete()

		old, _ := dialOld(t, holder.web.URL, "", nil)
		old.url = strings.Replace(old.url, holder.web.URL, via.url, 1)
		holder.closing()
		if got := old.send(oldInitialize); !strings.Contains(got, `"protocolVersion":"2024-11-05"`) {
			t.Errorf("HTTP+SSE: %s", got)
		}
	})
	t.Run("answers", func(t *testing.T) {
		c := newCluster(t, 2, func() mcpserver.Config {
			return mcpserver.Config{Toolkit: asking(new(atomic.Int64), nil), Policy: open}
		})
		const caps = `{"elicitation":{}}`
		state := newModern(t, c.replicas[0].web.URL, "", caps).asked("tools/call", "greet", "")
		c.replicas[0].closing()
		status, got := newModern(t, c.replicas[1].web.URL, "", caps).send(t.Context(), "tools/call", "greet", `,"inputResponses":{"who":{"action":"accept","content":{"name":"Ada"}}},"requestState":"`+state+`"`)
		if !strings.Contains(got, "accept Ada") {
			t.Errorf("%d %s", status, got)
		}
	})
	t.Run("polls", func(t *testing.T) {
		release := make(chan struct{})
		c := newCluster(t, 2, func() mcpserver.Config {
			return mcpserver.Config{Toolkit: workers(release, make(chan error, 1)), Policy: open, TaskAfter: time.Nanosecond}
		})
		here := newModern(t, c.replicas[0].web.URL, "", tasksDeclared)
		id := here.task("work")
		close(release)
		here.await(id, "completed")
		c.replicas[0].closing()
		if got, status := newModern(t, c.replicas[1].web.URL, "", tasksDeclared).state("tasks/get", id, ""); status != "completed" {
			t.Error(got)
		}
	})
}

// expect posts a body. want is the status and a part of the answer.
func (w *wire) expect(body, want string) {
	w.t.Helper()
	code, text, _ := strings.Cut(want, " ")
	if status, got := w.post(w.t.Context(), body); fmt.Sprint(status) != code || !strings.Contains(strings.Join(got, ""), text) {
		w.t.Errorf("%s: %d %q, want %s", body, status, got, want)
	}
}

// TestReplicasShutDown lets a replica end, as in a deployment, when a request has arrived on a connection that it was about to
// close: another replica handles it.
func TestReplicasShutDown(t *testing.T) {
	for _, row := range []struct{ body, want string }{
		{listBody, `200 "weather"`},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"weather"}}`, `200 "c":7`},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "202 "},
	} {
		c := newCluster(t, 2, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open} })
		_, direct := c.client("")
		at := c.holder(direct)
		holder, via := c.replicas[at], direct[1-at]
		via.rpc("tools/list", `{}`) // opens the connection
		<-holder.last.Load().idle
		end := func(net.Conn) {
			if err := errors.Join(holder.server.Drain(t.Context()), holder.web.Config.Shutdown(t.Context()), holder.server.Close()); err != nil {
				t.Error(err)
			}
		}
		holder.arrived.Store(&end)
		via.expect(row.body, row.want)
	}
}
