package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/sdk/client"
	tlog "go.temporal.io/sdk/log"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/postgres"
	"github.com/kitbag-go/kitbag/agent/temporal"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// workerEnv is the environment variable with the workerConfig of a worker process, in JSON.
const workerEnv = "KITBAG_DISTRIBUTED_WORKER"

// A workerConfig is what a process needs to know.
type workerConfig struct {
	Worker   int           // its number
	Postgres string        // connection string
	Temporal string        // address
	Clock    time.Duration // by how much its clock is off
	Think    time.Duration // the time of a model call and of a tool call
	Sessions int           // at a time
}

// A host is a process with its connections.
type host struct {
	workerConfig
	*temporal.Engine
	store  *postgres.Store
	pool   *pgxpool.Pool
	client client.Client
}

func (cfg workerConfig) open(ctx context.Context) (*host, error) {
	store, err := postgres.Open(ctx, cfg.Postgres, postgres.Options{Claim: heartbeat / 2})
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

// workerMain advances sessions until SIGTERM, or until the process that started it has ended.
func workerMain() error {
	var cfg workerConfig
	if err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &cfg); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h, err := cfg.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(h.Work(ctx, func(ctx context.Context, s *session.Session) (*agent.Agent, error) {
		if err := h.note(ctx, "opened", s.State.ID, cfg.Worker); err != nil {
			return nil, err
		}
		return newAgent(s.State.ID, cfg.Think, cfg.Clock, h)
	}), h.close())
}

// A notebook is where the effects of tools and the calls of the model are counted.
type notebook interface {
	note(ctx context.Context, what, session string, n int) error
	effect(ctx context.Context, key, session string, n int) error
}

// note notes something in the database, with its time: all processes are on one machine.
func (h *host) note(ctx context.Context, what, session string, n int) error {
	return h.exec(ctx, "INSERT INTO noted (what, session, n, at) VALUES ($1, $2, $3, $4)", what, session, n, time.Now())
}

// effect is a service that ignores a call with a key that it knows. The token is for its own tries.
func (h *host) effect(ctx context.Context, key, session string, n int) error {
	return h.exec(ctx, "INSERT INTO effect (key, session, n, token) VALUES (nullif($1, ''), $2, $3, $4) ON CONFLICT DO NOTHING", key, session, n, rand.Text())
}

// exec waits for a database that is away.
func (h *host) exec(ctx context.Context, sql string, args ...any) (err error) {
	for range 600 {
		if _, err = h.pool.Exec(ctx, sql, args...); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// newAgent returns an agent whose model makes calls, alternating a tool that is idempotent and one that is not, and
// then says "done".
func newAgent(id string, think, clock time.Duration, notes notebook) (*agent.Agent, error) {
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
		return "ok", notes.effect(ctx, tool.CallFrom(ctx).Key, id, in.N)
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
		if err := errors.Join(notes.note(ctx, "asked", id, n), pause(ctx)); err != nil {
			return scripted.Turn{}, err
		}
		if n == steps-1 {
			return scripted.Say("done"), nil
		}
		return scripted.Call([]string{"book", "charge"}[n%2], in{n}), nil
	}
	cfg := agent.Config{Model: scripted.New(scripted.Repeat(scripted.Func(turn))), Toolkit: tools, Save: session.Save,
		Policy: permission.Policy{Mode: permission.ModeBypass}}
	if clock != 0 {
		cfg.Now = func() time.Time { return time.Now().Add(clock) }
	}
	return agent.New(cfg)
}

func sessionID(n int) string { return fmt.Sprintf("customer-%d", n) }
