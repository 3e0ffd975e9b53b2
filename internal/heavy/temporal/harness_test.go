package temporal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/client"
	tlog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/temporal"
	"github.com/kitbag-go/kitbag/internal/child"
	"github.com/kitbag-go/kitbag/internal/heavy/temporalserver"
	"github.com/kitbag-go/kitbag/internal/pgtest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A place has the servers of a test, which all its processes share.
type place struct {
	URL, Schema string // of Postgres
	Temporal    string // the server's address
	Queue       string
	Heartbeat   time.Duration
	WaitFor     time.Duration
	Drain       time.Duration
	Slice       time.Duration
}

// servers are those of this process.
var servers struct {
	sync.Once
	pg   *pgtest.Server
	temp *temporalserver.Server
	err  error
}

func TestMain(m *testing.M) {
	child.Main(func(ctx context.Context, p place) error {
		h, err := p.open(ctx)
		if err != nil {
			return err
		}
		return errors.Join(h.Work(ctx, h.agent), h.close())
	})
	worker.SetStickyWorkflowCacheSize(cached)
	code := m.Run()
	if servers.pg != nil {
		_ = servers.pg.Close()
	}
	if servers.temp != nil {
		_ = servers.temp.Close()
	}
	if code == 0 {
		// The SDK can leave the coroutines of workflows that get a task while their worker stops. What a worker itself leaves
		// would still be found: its polls.
		ignored := []goleak.Option{goleak.IgnoreAnyFunction("os/exec.(*Cmd).Start.func2"),
			goleak.IgnoreAnyFunction("go.temporal.io/sdk/internal.(*coroutineState).initialYield")}
		if err := goleak.Find(ignored...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var places atomic.Int64

// newPlace returns a new place in servers that the tests share.
func newPlace(t *testing.T) place {
	t.Helper()
	servers.Do(func() {
		var starting sync.WaitGroup
		var pgErr, tempErr error
		starting.Go(func() { servers.pg, pgErr = pgtest.Start("fsync=off") })
		starting.Go(func() { servers.temp, tempErr = temporalserver.Start("../temporalserver/server") })
		starting.Wait()
		servers.err = errors.Join(pgErr, tempErr)
	})
	if servers.err != nil {
		t.Fatal(servers.err)
	}
	n := places.Add(1)
	return place{URL: servers.pg.URL(), Schema: fmt.Sprintf("t%d", n), Temporal: servers.temp.Address,
		Queue: fmt.Sprintf("queue-%d", n), Heartbeat: 2 * time.Second}
}

// A host is a process at a place.
type host struct {
	place
	*temporal.Engine
	store  *pgsession.Store
	client client.Client
	pool   *pgxpool.Pool
}

func (p place) open(ctx context.Context) (*host, error) {
	store, err := pgsession.Open(ctx, p.URL, pgsession.Options{Schema: p.Schema, Claim: p.Heartbeat / 2})
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, p.URL)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+p.Schema+"_done (session text, what text, at timestamptz DEFAULT clock_timestamp())")
	if err != nil && !strings.Contains(err.Error(), "already exists") && !strings.Contains(err.Error(), "duplicate key") {
		return nil, err
	}
	c, err := client.DialContext(ctx, client.Options{HostPort: p.Temporal, Logger: tlog.NewStructuredLogger(quiet)})
	if err != nil {
		return nil, err
	}
	e, err := temporal.New(temporal.Config{Client: c, Queue: p.Queue, Store: store, Heartbeat: p.Heartbeat, WaitFor: p.WaitFor, Drain: p.Drain, Slice: p.Slice})
	return &host{p, e, store, c, pool}, err
}

func (h *host) close() error {
	h.client.Close()
	h.pool.Close()
	return h.store.Close()
}

func newHost(t *testing.T, p place) *host {
	t.Helper()
	h, err := p.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// work runs a worker in this process. stop ends it as SIGTERM would.
func (h *host) work(t *testing.T, agents temporal.AgentFunc) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		if err := h.Work(ctx, agents); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); working.Wait() }
	t.Cleanup(stop)
	return stop
}

// startWorker starts a worker in a process of its own.
func startWorker(t *testing.T, p place) *exec.Cmd {
	t.Helper()
	cmd, err := child.Command("", p)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// did records an action of a session in the database.
func (h *host) did(ctx context.Context, id, what string) error {
	_, err := h.pool.Exec(ctx, "INSERT INTO "+h.Schema+"_done (session, what) VALUES ($1, $2)", id, what)
	return err
}

func (h *host) done(t *testing.T, id string) string {
	t.Helper()
	var list []string
	err := h.pool.QueryRow(t.Context(), "SELECT coalesce(array_agg(what ORDER BY at), '{}') FROM "+h.Schema+"_done WHERE session = $1", id).Scan(&list)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

// tools returns the tools of the tests, which note their calls: pay, book (idempotent), sleep (for as many
// milliseconds as its argument says) and ask (needs approval).
func (h *host) tools(id string) (tools []tool.Tool) {
	type in struct{ N int }
	for _, name := range []string{"pay", "book", "sleep", "ask"} {
		run := func(ctx context.Context, in in) (string, error) {
			if name == "sleep" {
				select {
				case <-time.After(time.Duration(in.N) * time.Millisecond):
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			return "ok", h.did(ctx, id, name+":"+strconv.Itoa(in.N))
		}
		tools = append(tools, tool.Must(tool.New(name, "For tests.", run, tool.Options{Idempotent: name == "book"})))
	}
	return tools
}

// config returns the configuration of the tests' agent: for each word of the user's last message it calls a
// tool, one after the other, and then answers "done". The word "pay:3" is a call of pay with the argument 3.
func (h *host) config(s *session.Session) agent.Config {
	id := s.State.ID
	turn := func(req *model.Request) (scripted.Turn, error) {
		words, at := []string(nil), 0
		for _, m := range req.Messages {
			switch {
			case m.Role == message.RoleUser && m.Text() != "":
				words, at = strings.Fields(m.Text()), 0
			case m.Role == message.RoleAssistant:
				at++
			}
		}
		if err := h.did(context.Background(), id, fmt.Sprintf("model:%d", at)); err != nil {
			return scripted.Turn{}, err
		}
		if at >= len(words) {
			return scripted.Say("done"), nil
		}
		name, arg, _ := strings.Cut(words[at], ":")
		if name == "fail" {
			return scripted.Fail(&model.Error{Kind: model.KindAuthentication, Message: "no key"}), nil
		}
		n, err := strconv.Atoi(arg)
		return scripted.Call(name, map[string]int{"N": n}), err
	}
	return agent.Config{Model: scripted.New(scripted.Repeat(scripted.Func(turn))), Toolkit: toolkit.Of(h.tools(id)...), Save: session.Save,
		Policy: permission.Policy{Mode: permission.ModeBypass, Rules: []permission.Rule{{Tool: "ask", Behavior: permission.Ask}}}}
}

func (h *host) agent(_ context.Context, s *session.Session) (*agent.Agent, error) {
	return agent.New(h.config(s))
}

// until watches a session until ok is true for an event, and returns the types of all.
func (h *host) until(t *testing.T, id string, ok func(event.Event) bool) (seen []event.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ev, err := range session.Watch(ctx, h.store, id, 0) {
		if err != nil {
			t.Fatalf("session %s: after %d events: %v", id, len(seen), err)
		}
		if seen = append(seen, ev); ok(ev) {
			break
		}
	}
	return seen
}

// ended waits for the nth end of a run.
func (h *host) ended(t *testing.T, id string, n int) *event.End {
	t.Helper()
	seen := h.until(t, id, func(ev event.Event) bool {
		if _, ok := ev.(*event.End); ok {
			n--
		}
		return n == 0
	})
	return seen[len(seen)-1].(*event.End)
}

func (h *host) send(t *testing.T, id, input string, in agent.Input) {
	t.Helper()
	if _, err := h.Send(t.Context(), id, input, in); err != nil && !errors.Is(err, temporal.ErrNoWorkers) {
		t.Fatal(err)
	}
}
