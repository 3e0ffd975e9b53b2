package mcpgateway_test

import (
	"context"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A user answers the questions of one session with their name, and counts them.
type user struct {
	name  string
	asked atomic.Int32
}

func (p *user) answerFor(c *mcpclient.Server) {
	c.Options.Elicitation = func(_ context.Context, q host.Elicitation) (host.Answer, error) {
		p.asked.Add(1)
		if !strings.HasPrefix(q.Message, "[a] ") {
			return host.Answer{Action: host.ActionDecline}, nil // the question does not say which server asks
		}
		return host.Answer{Action: host.ActionAccept, Content: map[string]any{"name": p.name}}, nil
	}
	c.Options.Sampling = func(context.Context, host.SampleRequest) (host.Sample, error) {
		return host.Sample{Model: "m", Text: "the model of " + p.name}, nil
	}
}

// TestQuestions checks that questions go to the host in whose session the call runs, and that the answers come
// back, for all protocol revisions on both sides.
func TestQuestions(t *testing.T) {
	for _, row := range []struct{ name, behind, host string }{
		{"old behind old", "2025-11-25", "2025-11-25"}, {"old behind new", "2025-11-25", "2026-07-28"},
		{"new behind old", "2026-07-28", "2025-11-25"}, {"new behind new", "2026-07-28", "2026-07-28"},
	} {
		t.Run(row.name, func(t *testing.T) {
			up := behind(t, "a", ask(nil), think())
			up.Options.Protocol = row.behind
			g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up.Server}, Style: mcpgateway.StyleFull})
			era := func(c *mcpclient.Server) { c.Options.Protocol = row.host }
			anna, otto := &user{name: "Anna"}, &user{name: "Otto"}
			a, o, mute := newHost(t, g, era, anna.answerFor), newHost(t, g, era, otto.answerFor), newHost(t, g, era)
			for range 2 {
				if res := call(t, a, "a__ask", `{}`); res.Text() != "accept Anna" {
					t.Errorf("Anna's call: %s", res.Text())
				}
				if res := call(t, o, "a__ask", `{}`); res.Text() != "accept Otto" {
					t.Errorf("Otto's call: %s", res.Text())
				}
			}
			if anna.asked.Load() != 2 || otto.asked.Load() != 2 {
				t.Errorf("Anna was asked %d times, Otto %d times", anna.asked.Load(), otto.asked.Load())
			}
			if res := call(t, o, "a__think", `{}`); res.Text() != "the model of Otto" {
				t.Errorf("a sample: %s", res.Text())
			}
			// If no one can be asked, the tool gets that answer, and the host its result.
			if res := call(t, mute, "a__ask", `{}`); res.Text() != "cancel <nil>" {
				t.Errorf("without a user: %s", res.Text())
			}
			if res, err := tryCall(t.Context(), mute, "a__think", `{}`); err == nil && (res.Outcome != message.OutcomeError || !strings.Contains(res.Text(), "capability")) {
				t.Errorf("without a model: %s %s", res.Outcome, res.Text())
			}
		})
	}
}

// TestUpstreamAsks checks the result of a call that needs the user's consent if the gateway's client cannot
// ask: it says why the call was refused, and which rule of the server would allow it.
func TestUpstreamAsks(t *testing.T) {
	for _, behindPin := range []string{"2025-11-25", "2026-07-28"} {
		for _, hostPin := range []string{"2025-11-25", "2026-07-28"} {
			s, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(named("remove")), Name: "upstream", Version: "1"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			up := mcpclient.Server{Name: "files", Transport: mcpclient.Dial(dial(s)), Options: mcpclient.Options{PingInterval: -1, Protocol: behindPin}}
			g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up}, Style: mcpgateway.StyleFull})
			res := call(t, newHost(t, g, func(c *mcpclient.Server) { c.Options.Protocol = hostPin }), "files__remove", `{}`)
			if text := res.Text(); res.Outcome != message.OutcomeError || !strings.Contains(text, "the client cannot ask the user") ||
				!strings.Contains(text, "by the rule remove.") || strings.Contains(text, "did not allow") {
				t.Errorf("%s behind %s: %s %q", behindPin, hostPin, res.Outcome, text)
			}
		}
	}
}

// TestWhoseQuestion checks that no one is asked if it cannot be known which call a question belongs to.
func TestWhoseQuestion(t *testing.T) {
	up := process(t, "a")
	up.Options.Protocol = "2025-11-25"
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up}, Style: mcpgateway.StyleFull})
	anna, otto := &user{name: "Anna"}, &user{name: "Otto"}
	a, o := newHost(t, g, anna.answerFor), newHost(t, g, otto.answerFor)
	expect := func(when string, c *mcpclient.Client, want string, annas, ottos int32) {
		t.Helper()
		if res := call(t, c, "a__ask", `{}`); !strings.Contains(res.Text(), want) {
			t.Errorf("%s: %s, want %s", when, res.Text(), want)
		}
		if anna.asked.Load() != annas || otto.asked.Load() != ottos {
			t.Errorf("%s: Anna was asked %d times, Otto %d, want %d and %d", when, anna.asked.Load(), otto.asked.Load(), annas, ottos)
		}
	}
	expect("alone", a, "accept Anna", 1, 0)

	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	hanging := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		hanging <- begin(ctx, t, o, "a__hang", began)
	}()
	<-began
	expect("while another session's call runs", a, "several hosts", 1, 0)
	giveUp()
	<-hanging
	// The client or the gateway refuses, depending on which notices the end of the call first.
	expect("after another session abandoned its call", a, "does not name its call", 1, 0)
	expect("for the session that abandoned it", o, "accept Otto", 1, 1)

	pid, err := strconv.Atoi(call(t, a, "a__pid", `{}`).Text())
	if err != nil {
		t.Fatal(err)
	}
	killProcess(t, pid)
	for end := time.Now().Add(10 * time.Second); g.Status()[0].Restarts == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	expect("after the server was restarted", a, "accept Anna", 2, 1)
}

func killProcess(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestApart checks that several sessions can be asked at the same time if each session or each call has its own
// process of the server.
func TestApart(t *testing.T) {
	for _, per := range []string{"session", "call"} {
		up := process(t, "a")
		up.Options.Protocol, up.Options.Stateless = "2025-11-25", per == "call"
		cfg := mcpgateway.Config{Servers: []mcpclient.Server{up}, Style: mcpgateway.StyleFull}
		if per == "session" {
			cfg.PerSession = []string{"a"}
		}
		g := newGateway(t, cfg)
		anna, otto := &user{name: "Anna"}, &user{name: "Otto"}
		a, o := newHost(t, g, anna.answerFor), newHost(t, g, otto.answerFor)
		got := make(chan string, 2)
		for _, c := range []*mcpclient.Client{a, o} {
			go func() {
				res, err := tryCall(t.Context(), c, "a__ask", `{"ms":300}`)
				if err != nil {
					t.Error(err)
					got <- ""
					return
				}
				got <- res.Text()
			}()
		}
		if both := <-got + ", " + <-got; both != "accept Anna, accept Otto" && both != "accept Otto, accept Anna" {
			t.Errorf("a process for each %s: %s", per, both)
		}
	}
}

// TestPerSession checks that a session has one process of the server, which no other session uses and which
// ends with the session.
func TestPerSession(t *testing.T) {
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{process(t, "a")}, Style: mcpgateway.StyleFull, PerSession: []string{"a"}})
	pid := func(c *mcpclient.Client) int {
		t.Helper()
		res := call(t, c, "a__pid", `{}`)
		n, err := strconv.Atoi(res.Text())
		if err != nil {
			t.Fatal(res.Text())
		}
		return n
	}
	alive := func(pid int) bool {
		p, err := os.FindProcess(pid)
		return err == nil && p.Signal(syscall.Signal(0)) == nil
	}
	one, two := newHost(t, g), newHost(t, g)
	modern := newHost(t, g, func(c *mcpclient.Server) { c.Options.Protocol = "2026-07-28" })
	first, second := pid(one), pid(two)
	if first == second || pid(one) != first || pid(two) != second {
		t.Errorf("the processes are %d and %d, but different later", first, second)
	}
	if a, b := pid(modern), pid(modern); a == b || a == first {
		t.Errorf("without sessions: %d and %d", a, b)
	}
	_ = one.Close()
	for end := time.Now().Add(10 * time.Second); alive(first) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if alive(first) || !alive(second) || pid(two) != second {
		t.Errorf("after the first session ended, its process lives: %v, the other: %v", alive(first), alive(second))
	}
	if err := g.Close(); err != nil || alive(second) {
		t.Errorf("after the gateway was closed a process lives: %v, %v", alive(second), err)
	}
}

// TestStrays checks that an abandoned call counts as long as the server runs, not only as long as the client
// remembers it.
func TestStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", ask(nil), hang(nil)).Server}, Style: mcpgateway.StyleFull})
		anna, otto := &user{name: "Anna"}, &user{name: "Otto"}
		a, o := newHost(t, g, anna.answerFor), newHost(t, g, otto.answerFor)
		call(t, a, "a__ask", `{}`)
		ctx, giveUp := context.WithCancel(t.Context())
		began, hanging := make(chan struct{}), make(chan error, 1)
		go func() { hanging <- begin(ctx, t, o, "a__hang", began) }()
		<-began
		giveUp()
		<-hanging
		time.Sleep(time.Hour)
		if res := call(t, a, "a__ask", `{}`); !strings.Contains(res.Text(), "abandoned a call") || anna.asked.Load() != 1 {
			t.Errorf("an hour later: %s, Anna was asked %d times", res.Text(), anna.asked.Load())
		}
		if res := call(t, o, "a__ask", `{}`); res.Text() != "accept Otto" {
			t.Errorf("the session that abandoned it: %s", res.Text())
		}
	})
}

// TestQuestionShare checks that a credential whose users do not answer does not block the questions of others,
// on a server that all share.
func TestQuestionShare(t *testing.T) {
	const tokenA, tokenB = "0123456789abcdef-anna", "0123456789abcdef-otto"
	up := behind(t, "a", ask(nil))
	up.Options.Protocol = "2026-07-28"
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{up.Server}, Style: mcpgateway.StyleFull,
		Serve: mcpgateway.ServeOptions{Credentials: []mcpserver.Credential{{Name: "anna", Token: tokenA, Policy: open}, {Name: "otto", Token: tokenB, Policy: open}}}})
	srv := httptest.NewServer(g.Server.Handler())
	t.Cleanup(srv.Close) // after the clients, which hold streams open
	connect := func(token string, elicit func(context.Context, host.Elicitation) (host.Answer, error)) *mcpclient.Client {
		c, err := mcpclient.New("g", mcpclient.HTTP{URL: srv.URL, Headers: map[string]string{"Authorization": "Bearer " + token}},
			&mcpclient.Options{Prefix: "_", PingInterval: -1, Protocol: "2025-11-25", Elicitation: elicit})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var open atomic.Int64
	silent := func(ctx context.Context, _ host.Elicitation) (host.Answer, error) {
		open.Add(1)
		<-ctx.Done()
		return host.Answer{}, ctx.Err()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var refused atomic.Int64
	for range 10 {
		anna := connect(tokenA, silent)
		for range 16 {
			wg.Go(func() {
				if _, _ = tryCall(ctx, anna, "a__ask", `{}`); ctx.Err() == nil {
					refused.Add(1)
				}
			})
		}
	}
	for end := time.Now().Add(20 * time.Second); open.Load()+refused.Load() < 160; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d questions are unanswered, %d refused", open.Load(), refused.Load())
		}
	}
	if open.Load() > 128 {
		t.Errorf("%d questions of one credential are unanswered", open.Load())
	}
	otto := &user{name: "Otto"}
	c := mcpclient.Server{}
	otto.answerFor(&c)
	if res := call(t, connect(tokenB, c.Options.Elicitation), "a__ask", `{}`); res.Text() != "accept Otto" {
		t.Errorf("Otto's call: %s", res.Text())
	}
}
