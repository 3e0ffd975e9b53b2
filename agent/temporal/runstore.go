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

// Reasons why a runStore stores no more records.
var (
	errGivenBack = errors.New("the worker has given the session back to the engine")
	errCutOff    = errors.New("the worker had to stop before the step ended")
)

// A runStore is the store through which a worker runs one session. To end the run between two steps, it stores the
// next record after which no tool call is running, and returns an error for it and for all later records. To the
// session this looks like a crash right after a save, which loses nothing.
type runStore struct {
	store
	cancel context.CancelCauseFunc // cancels the run

	mu        sync.Mutex
	last      progress        // after the last stored record
	lastEvent int64           // number of the last stored event
	running   map[string]bool // running tool calls by id, with "/" appended for background calls
	release   bool            // give the session back after the next record that allows it
	err       error           // why no more records are stored
}

// withNotifier returns p, as a session.Notifier if the wrapped store is one.
func (p *runStore) withNotifier() session.Store {
	if n, ok := p.store.(session.Notifier); ok {
		return struct {
			*runStore
			session.Notifier
		}{p, n}
	}
	return p
}

// publish sends an event that is not stored yet to the processes that watch the session.
func (p *runStore) publish(id string, ev event.Event) {
	n, ok := p.store.(session.Notifier)
	seq := ev.Head().Seq
	p.mu.Lock()
	stored := seq <= p.lastEvent
	p.mu.Unlock()
	if !ok || stored {
		return
	}
	if data, err := json.Marshal(ev); err == nil {
		n.Publish(id, session.Event{Seq: seq, Data: data})
	}
}

// current returns the progress after the last record, and why the run was stopped, or nil.
func (p *runStore) current() (progress, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.err
}

// sendHeartbeats sends the heartbeats of an activity until done. It runs in a separate goroutine, as it may block
// while Temporal does not respond.
func sendHeartbeats(ctx context.Context, timeout time.Duration, done <-chan struct{}) {
	ticker := time.NewTicker(timeout / 4)
	defer ticker.Stop()
	for {
		activity.RecordHeartbeat(ctx)
		select {
		case <-done:
			return
		case <-ticker.C:
		}
	}
}

// watch stops the run when the worker must give the session back.
func (p *runStore) watch(ctx context.Context, cfg Config, done <-chan struct{}) {
	slice := time.NewTimer(cfg.Slice)
	defer slice.Stop()
	stopping, lost := activity.GetWorkerStopChannel(ctx), ctx.Done()
	draining := false
	var deadline <-chan time.Time
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
			// The engine has given the session to another worker, which must wait while this one has the store's claim,
			// so nothing is stored twice. The current step may therefore end.
			lost = nil
			p.giveBack()
			if deadline = time.After(cfg.Drain); draining {
				p.stop(errCutOff)
			}
		case <-deadline:
			p.stop(errCutOff)
		}
	}
}

func (p *runStore) giveBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release = true
}

// stop cancels the run, and refuses further records.
func (p *runStore) stop(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
	p.cancel(err)
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
	if _, err := l.p.current(); err != nil {
		return err
	}
	if err := l.Log.Append(ctx, rec); err != nil {
		return err
	}
	return l.p.stored(rec)
}

// stored records the progress, and returns an error if the run must stop after this record.
func (p *runStore) stored(rec session.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = progress{Seq: rec.Seq, Status: rec.Status}
	for _, raw := range rec.Events {
		p.lastEvent = raw.Seq
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
	if p.err == nil && p.release && len(p.running) == 0 && rec.Status == session.StatusWorking {
		p.err = errGivenBack
		p.cancel(p.err)
	}
	return p.err
}
