package distributed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/client"
	tlog "go.temporal.io/sdk/log"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/temporal"
	"github.com/kitbag-go/kitbag/agui"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A workerConfig is the configuration of a worker or a web front.
type workerConfig struct {
	Worker   int           // its number
	Postgres string        // connection string
	Temporal string        // address
	Think    time.Duration // the time of a model call and of a tool call
	Sessions int           // at a time
	Web      bool          // it is a web front
	program  string        // empty for this one
}

// A host has the connections of a process.
type host struct {
	workerConfig
	*temporal.Engine
	store  *pgsession.Store
	pool   *pgxpool.Pool
	client client.Client
}

func (cfg workerConfig) open(ctx context.Context) (*host, error) {
	store, err := pgsession.Open(ctx, cfg.Postgres, pgsession.Options{Claim: heartbeat / 2})
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, cfg.Postgres)
	if err != nil {
		return nil, err
	}
	c, err := client.DialContext(ctx, client.Options{HostPort: cfg.Temporal, Logger: tlog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return nil, err
	}
	e, err := temporal.New(temporal.Config{Client: c, Queue: "agents", Store: store, Heartbeat: heartbeat, Sessions: cfg.Sessions, Drain: 10 * time.Second})
	return &host{cfg, e, store, pool, c}, err
}

func (h *host) close() error {
	h.client.Close()
	h.pool.Close()
	return h.store.Close()
}

// run advances sessions, or serves them, until ctx ends.
func (cfg workerConfig) run(ctx context.Context) error {
	h, err := cfg.open(ctx)
	if err != nil {
		return err
	}
	if err := h.exec(ctx, "INSERT INTO noted (what, n) VALUES ('clock', extract(epoch FROM $1 - clock_timestamp())::integer)", time.Now()); err != nil {
		return err
	}
	if cfg.Web {
		return errors.Join(h.serve(ctx, os.Stdout), h.close())
	}
	return errors.Join(h.Work(ctx, func(ctx context.Context, s *session.Session) (*agent.Agent, error) {
		if err := h.note(ctx, "opened", s.State.ID, cfg.Worker); err != nil {
			return nil, err
		}
		return agui.Agent(ctx, agentConfig(s.State.ID, cfg.Think, h), s)
	}), h.close())
}

// A recorder counts the effects of tools and the calls of the model.
type recorder interface {
	note(ctx context.Context, what, session string, n int) error
	effect(ctx context.Context, key, session string, n int) error
}

// note stores a row in the database, with the time of the database's clock.
func (h *host) note(ctx context.Context, what, session string, n int) error {
	return h.exec(ctx, "INSERT INTO noted (what, session, n) VALUES ($1, $2, $3)", what, session, n)
}

// effect stores the effect of a tool, like a service that ignores a call with a known key. The token distinguishes the
// retries of exec from other calls.
func (h *host) effect(ctx context.Context, key, session string, n int) error {
	return h.exec(ctx, "INSERT INTO effect (key, session, n, token) VALUES (nullif($1, ''), $2, $3, $4) ON CONFLICT DO NOTHING", key, session, n, rand.Text())
}

// exec retries for a minute while the database cannot be reached.
func (h *host) exec(ctx context.Context, sql string, args ...any) (err error) {
	for range 600 {
		if _, err = h.pool.Exec(ctx, sql, args...); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// farewell is what the model says at the end of a run.
const farewell = "All five seats are booked, and the card was charged."

// agentConfig returns the configuration of an agent whose model alternately calls a tool that is idempotent and one that
// is not.
func agentConfig(id string, think time.Duration, rec recorder) agent.Config {
	type in struct{ N int }
	pause := func(ctx context.Context) error {
		select {
		case <-time.After(think):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	call := func(ctx context.Context, in in) (string, error) {
		if err := pause(ctx); err != nil {
			return "", err
		}
		return "ok", rec.effect(ctx, tool.CallFrom(ctx).Key, id, in.N)
	}
	tools := toolkit.Of(
		tool.Must(tool.New("book", "Books a seat.", call, tool.Options{Idempotent: true})),
		tool.Must(tool.New("charge", "Charges the card.", call)))
	turn := func(req *model.Request) (scripted.Turn, error) {
		n := 0
		for _, m := range req.Messages {
			if m.Role == message.RoleAssistant {
				n++
			}
		}
		ctx := context.Background()
		if err := errors.Join(rec.note(ctx, "asked", id, n), pause(ctx)); err != nil {
			return scripted.Turn{}, err
		}
		if n == steps-1 {
			return scripted.Say(farewell), nil
		}
		return scripted.Call([]string{"book", "charge"}[n%2], in{n}), nil
	}
	return agent.Config{Model: scripted.New(scripted.Repeat(scripted.Func(turn))), Toolkit: tools, Save: session.Save,
		Policy: permission.Policy{Rules: []permission.Rule{
			{Tool: "book", Behavior: permission.Allow}, {Tool: "charge", Behavior: permission.Allow}}}}
}

func sessionID(n int) string { return fmt.Sprintf("customer-%d", n) }
