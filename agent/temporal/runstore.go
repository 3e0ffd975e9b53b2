package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

// Why a runStore stores nothing more.
var (
	errGivenBack = errors.New("the worker has given the session back to the engine")
	errCutOff    = errors.New("the worker had to stop before the step ended")
)

// A runStore is the store through which a worker runs one session. It ends the run between two steps: it stores
// the record after which no tool call is running, and returns an error for it and for all later ones. For the
// session this is a crash right after the save, in which nothing is lost.
type runStore struct {
	store
	cut context.CancelCauseFunc // cancels the run

	mu      sync.Mutex
	last    progress
	running map[string]bool // the tool calls, by id; with "/" after it in the background
	giving  bool            // the session is to be given back
	err     error           // why nothing more is stored
}

func newRunStore(s store, cut context.CancelCauseFunc) *runStore {
	return &runStore{store: s, cut: cut, running: map[string]bool{}}
}

// end returns the last record, and why the run was stopped, nil if it was not.
func (p *runStore) end() (progress, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.err
}

// beat heartbeats until done. It waits for the engine, and so nothing else may wait for it.
func (p *runStore) beat(ctx context.Context, heartbeat time.Duration, done <-chan struct{}) {
	ticker := time.NewTicker(heartbeat / 4)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			at, _ := p.end()
			activity.RecordHeartbeat(ctx, at.Seq)
		}
	}
}

// watch stops the run when it must.
func (p *runStore) watch(ctx context.Context, cfg Config, done <-chan struct{}) {
	slice := time.NewTimer(cfg.Slice)
	defer slice.Stop()
	stopping, lost := activity.GetWorkerStopChannel(ctx), ctx.Done()
	draining := false
	var limit <-chan time.Time
	for {
		select {
		case <-done:
			return
		case <-slice.C:
			p.giveBack()
		case <-stopping:
			stopping, draining = nil, true
			p.giveBack()
		case <-lost:
			// The engine has given the session to another worker, which must wait as long as this one has the
			// store's claim: nothing is stored twice. So the step may end.
			lost = nil
			p.giveBack()
			if limit = time.After(cfg.Drain); draining {
				p.stop(errCutOff)
			}
		case <-limit:
			p.stop(errCutOff)
		}
	}
}

func (p *runStore) giveBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giving = true
}

// stop cancels the run, and stores nothing more.
func (p *runStore) stop(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
	p.cut(err)
}

// Open opens the session.
func (p *runStore) Open(ctx context.Context, id string) (session.Log, error) {
	log, err := p.store.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	return &runLog{log, p}, nil
}

type runLog struct {
	session.Log
	p *runStore
}

func (l *runLog) Load(ctx context.Context) ([]session.Record, error) {
	recs, err := l.Log.Load(ctx)
	if n := len(recs); n > 0 {
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		l.p.last = progress{Seq: recs[n-1].Seq, Status: recs[n-1].Status}
	}
	return recs, err
}

func (l *runLog) Append(ctx context.Context, rec session.Record) error {
	if _, err := l.p.end(); err != nil {
		return err
	}
	if err := l.Log.Append(ctx, rec); err != nil {
		return err
	}
	return l.p.stored(rec)
}

// stored notes a record, and returns an error if the run is to stop after it.
func (p *runStore) stored(rec session.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = progress{Seq: rec.Seq, Status: rec.Status}
	for _, raw := range rec.Events {
		var ev struct {
			Type, Call string
			Result     json.RawMessage
		}
		if err := json.Unmarshal(raw.Data, &ev); err != nil {
			return err
		}
		switch ev.Type {
		case event.TypeOf(&event.ToolStart{}):
			p.running[ev.Call] = true
		case event.TypeOf(&event.ToolResult{}):
			delete(p.running, ev.Call)
		case event.TypeOf(&event.Background{}):
			if p.running[ev.Call+"/"] = true; ev.Result != nil {
				delete(p.running, ev.Call+"/")
			}
		}
	}
	if p.err == nil && p.giving && len(p.running) == 0 && rec.Status == session.StatusWorking {
		p.err = errGivenBack
		p.cut(p.err)
	}
	return p.err
}
