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
	givesBack bool            // the session is given back after the next record that allows it
	stopErr   error           // why no more records are stored
}

// withNotifier returns rs, with the methods of session.Notifier if the wrapped store has them.
func (rs *runStore) withNotifier() session.Store {
	if n, ok := rs.store.(session.Notifier); ok {
		return struct {
			*runStore
			session.Notifier
		}{rs, n}
	}
	return rs
}

// publish sends an event that is not stored yet to the processes that watch the session.
func (rs *runStore) publish(id string, ev event.Event) {
	n, ok := rs.store.(session.Notifier)
	seq := ev.Head().Seq
	rs.mu.Lock()
	isStored := seq <= rs.lastEvent
	rs.mu.Unlock()
	if !ok || isStored {
		return
	}
	if data, err := json.Marshal(ev); err == nil {
		n.Publish(id, session.Event{Seq: seq, Data: data})
	}
}

// current returns the progress after the last record, and why the run was stopped, nil if it was not.
func (rs *runStore) current() (progress, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.last, rs.stopErr
}

// sendHeartbeats sends the heartbeats of an activity until done is closed. It needs a separate goroutine, because
// RecordHeartbeat may block while Temporal does not respond.
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
func (rs *runStore) watch(ctx context.Context, cfg Config, done <-chan struct{}) {
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
			rs.requestGiveBack()
		case <-stopping:
			stopping, draining = nil, true
			rs.requestGiveBack()
		case <-lost:
			// The engine has given the session to another worker, which must wait while this worker has the store's claim,
			// so nothing is stored twice. The current step may therefore end, unless Work has waited for cfg.Drain already.
			lost = nil
			rs.requestGiveBack()
			if deadline = time.After(cfg.Drain); draining {
				rs.stop(errCutOff)
			}
		case <-deadline:
			rs.stop(errCutOff)
		}
	}
}

func (rs *runStore) requestGiveBack() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.givesBack = true
}

// stop cancels the run, and refuses further records.
func (rs *runStore) stop(err error) {
	rs.mu.Lock()
	if rs.stopErr == nil {
		rs.stopErr = err
	}
	rs.mu.Unlock()
	rs.cancel(err)
}

// Open returns a log whose Append can stop the run.
func (rs *runStore) Open(ctx context.Context, id string) (session.Log, error) {
	log, err := rs.store.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	return &runLog{log, rs}, nil
}

type runLog struct {
	session.Log
	rs *runStore
}

func (l *runLog) Load(ctx context.Context) ([]session.Record, error) {
	recs, err := l.Log.Load(ctx)
	if n := len(recs); n > 0 {
		l.rs.mu.Lock()
		defer l.rs.mu.Unlock()
		l.rs.last = progress{Seq: recs[n-1].Seq, Status: recs[n-1].Status}
	}
	return recs, err
}

func (l *runLog) Append(ctx context.Context, rec session.Record) error {
	if _, err := l.rs.current(); err != nil {
		return err
	}
	if err := l.Log.Append(ctx, rec); err != nil {
		return err
	}
	return l.rs.recordStored(rec)
}

// recordStored updates the progress after a record, and returns an error if the run must stop there.
func (rs *runStore) recordStored(rec session.Record) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.last = progress{Seq: rec.Seq, Status: rec.Status}
	for _, raw := range rec.Events {
		rs.lastEvent = raw.Seq
		var ev struct {
			Type, Call string
			Result     json.RawMessage
		}
		if err := json.Unmarshal(raw.Data, &ev); err != nil {
			return err
		}
		switch ev.Type {
		case event.TypeOf(&event.ToolStart{}):
			rs.running[ev.Call] = true
		case event.TypeOf(&event.ToolResult{}):
			delete(rs.running, ev.Call)
		case event.TypeOf(&event.Background{}):
			if rs.running[ev.Call+"/"] = true; ev.Result != nil { // the background call has ended
				delete(rs.running, ev.Call+"/")
			}
		}
	}
	if rs.stopErr == nil && rs.givesBack && len(rs.running) == 0 && rec.Status == session.StatusWorking {
		rs.stopErr = errGivenBack
		rs.cancel(rs.stopErr)
	}
	return rs.stopErr
}
