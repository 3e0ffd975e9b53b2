package agui

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// busy reports whether a run is in progress or was interrupted by a crash.
func busy(s session.Status) bool { return s == session.StatusWorking || s == session.StatusAbandoned }

func isAnswer(id string) bool { return strings.HasPrefix(id, answerPrefix) }

// post sends the new inputs of a request to the session and streams what follows.
func (h *Handler) post(w http.ResponseWriter, r *http.Request) error {
	in, err := h.readInput(w, r)
	if err != nil {
		return err
	}
	id, err := h.sessionID(r, in.ThreadID)
	if err != nil {
		return err
	}
	g, err := h.grant(r, in)
	if err != nil {
		return err
	}
	s := h.newStream(w, id, in.ThreadID, cursor{run: in.RunID})
	live, stopListening := h.listen(r.Context(), id) // before the inputs are sent, so that no delta is missed
	defer stopListening()
	st, info, inputs, err := h.accept(r.Context(), id, in, g)
	if bad, ok := errors.AsType[*mismatch](err); ok {
		s.out.send(&wireEvent{Type: "RUN_ERROR", Message: bad.text, Code: bad.code}, time.Now(), cursor{})
		return s.out.flush()
	}
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		return s.join(r.Context(), live, st, info)
	}
	if s.pos.last, err = h.lastInput(r.Context(), id, inputs[len(inputs)-1].id); err != nil {
		return err
	}
	if err := s.begin(st, info, false); err != nil {
		return err
	}
	return s.run(r.Context(), live)
}

// A request with another grant is tried again while a run has ended and its session is not closed yet.
const (
	grantRetry = 20 * time.Millisecond
	grantTries = 100
)

// accept sends the new inputs of a request to the session, and returns the State before them.
func (h *Handler) accept(ctx context.Context, id string, in *runInput, g grant) (st *agent.State, info session.Info, inputs []newInput, err error) {
	for range grantTries {
		if st, info, err = h.current(ctx, id); err != nil {
			return nil, info, nil, err
		}
		inputs, err = (&planner{ctx: ctx, store: h.store, id: id, state: st, in: in}).plan()
		if err != nil || len(inputs) == 0 {
			return st, info, nil, err
		}
		err = h.send(ctx, id, inputs, g, st, info.Status)
		if err != errGrant || busy(info.Status) {
			break
		}
		select {
		case <-time.After(grantRetry):
		case <-ctx.Done():
			return nil, info, nil, context.Cause(ctx)
		}
	}
	return st, info, inputs, err
}

// lastInput returns the id of the last waiting input, with whose run the stream ends. If no input waits any more,
// it returns sent.
func (h *Handler) lastInput(ctx context.Context, id, sent string) (string, error) {
	entries, err := h.store.Inputs(ctx, id)
	if err != nil || len(entries) == 0 {
		return sent, err
	}
	return entries[len(entries)-1].ID, nil
}

// current returns a session's State, or a new State if the store does not have the session.
func (h *Handler) current(ctx context.Context, id string) (*agent.State, session.Info, error) {
	st, info, err := session.Read(ctx, h.store, id, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return &agent.State{}, session.Info{}, nil
	}
	return st, info, err
}

// grant returns what a request may use.
func (h *Handler) grant(r *http.Request, in *runInput) (grant, error) {
	var g grant
	var err error
	if h.cfg.Ceiling != nil {
		if g.ceiling, err = h.cfg.Ceiling(r); err != nil {
			h.cfg.Log.InfoContext(r.Context(), "agui: request refused", "error", err)
			return g, refuse(http.StatusForbidden, "the request is not allowed")
		}
	}
	if len(in.Tools) == 0 {
		return g, nil
	}
	if g.tools, err = checkTools(in.Tools, h.cfg.MaxTools); err == nil && h.loop != nil {
		_, err = withFrontend(r.Context(), h.loop.cfg, g.tools)
	}
	if err != nil {
		return g, refuse(http.StatusBadRequest, "tools: %v", err)
	}
	return g, nil
}

// listen returns a listener for a session, or nil if the events come from an engine's worker and the store is not a
// Notifier.
func (h *Handler) listen(ctx context.Context, id string) (*listener, func()) {
	if h.loop != nil {
		return h.loop.listen(id)
	}
	n, ok := h.store.(session.Notifier)
	if !ok {
		return nil, func() {}
	}
	ctx, end := context.WithCancel(ctx)
	live := &listener{events: make(chan event.Event, listenerSize)}
	published := n.Live(ctx, id)
	go func() {
		for {
			select {
			case raw := <-published:
				if ev, err := event.Decode(raw.Data); err == nil { // skip events of another version
					live.offer(ev)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return live, end
}

// send sends inputs to a session and has it run.
func (h *Handler) send(ctx context.Context, id string, inputs []newInput, g grant, st *agent.State, status session.Status) error {
	var err error
	if h.loop != nil {
		if err = h.loop.send(ctx, id, inputs, g, st, status); err == errGrant && busy(status) {
			h.loop.wake(id, false) // the process of the run in progress may have died
		}
	} else if err = h.setGrant(ctx, id, g, st, status); err == nil {
		for _, in := range inputs {
			if _, err = h.engine.Send(ctx, id, in.id, in.input); err != nil {
				break
			}
		}
	}
	if errors.Is(err, session.ErrFull) {
		return refuse(http.StatusServiceUnavailable, "too many messages of the thread are waiting; try again later")
	}
	return err
}

// setGrant stores the grant of a request in the session that an engine will run.
func (h *Handler) setGrant(ctx context.Context, id string, g grant, st *agent.State, status session.Status) error {
	stored, err := grantOf(st)
	if err != nil || g.equal(stored) {
		return err
	}
	if busy(status) {
		return errGrant
	}
	s, err := session.Open(ctx, h.store, id)
	if errors.Is(err, session.ErrConflict) { // a worker has it open
		return errGrant
	}
	if err != nil {
		return err
	}
	if err = g.apply(s.State); err == nil {
		err = s.Save(ctx, s.State)
	}
	return errors.Join(err, s.Close())
}

// begin sends the first events of a run: the whole thread, or only the state.
func (s *stream) begin(st *agent.State, info session.Info, whole bool) error {
	now := time.Now()
	s.pos.after, s.pos.seq, s.last = info.Event, info.Event, info.Event
	list := []*wireEvent{{Type: "RUN_STARTED", ThreadID: s.thread, RunID: s.pos.run, Version: protocolVersion}}
	if s.h.cfg.State != nil {
		data, err := json.Marshal(s.h.cfg.State(st))
		if err != nil {
			return err
		}
		s.state = data
		list = append(list, &wireEvent{Type: "STATE_SNAPSHOT", Snapshot: data})
	}
	if whole {
		list = append(list, &wireEvent{Type: "MESSAGES_SNAPSHOT", Messages: messagesOf(st.Messages)})
	}
	for i, w := range list {
		c := cursor{}
		if i == len(list)-1 {
			c = s.pos // only the last event has an id: after a part of them the client begins again
		}
		s.out.send(w, now, c)
	}
	return s.out.flush()
}

// join sends a snapshot of the thread, and the events of its current run if there is one.
func (s *stream) join(ctx context.Context, live *listener, st *agent.State, info session.Info) error {
	entries, err := s.h.store.Inputs(ctx, s.session)
	if err != nil {
		return err
	}
	waiting := len(st.Pending()) > 0 // for answers; until they are sent, other inputs start no run
	for _, e := range entries {
		if !waiting || isAnswer(e.ID) {
			s.pos.last = e.ID
		}
	}
	if err := s.begin(st, info, true); err != nil {
		return err
	}
	if busy(info.Status) || s.pos.last != "" {
		if s.h.loop != nil {
			s.h.loop.wake(s.session, false)
		}
		return s.run(ctx, live)
	}
	s.pos.n = finished
	s.out.send(&wireEvent{Type: "RUN_FINISHED", ThreadID: s.thread, RunID: s.pos.run, Outcome: waitingFor(st)}, time.Now(), s.pos)
	return s.out.flush()
}

// get continues a stream, or joins a thread.
func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	thread := r.URL.Query().Get("threadId")
	id, err := h.sessionID(r, thread)
	if err != nil {
		return err
	}
	live, stopListening := h.listen(r.Context(), id)
	defer stopListening()
	st, info, err := session.Read(r.Context(), h.store, id, 0)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := h.store.Inputs(r.Context(), id)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return refuse(http.StatusNotFound, "there is no thread %q", thread)
		}
		st = &agent.State{} // the session's first input was not processed yet
	} else if err != nil {
		return err
	}
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		run := r.URL.Query().Get("runId")
		if run == "" {
			run = message.NewID("run")
		} else if err := session.CheckID(run); err != nil {
			return refuse(http.StatusBadRequest, "runId: %v", err)
		}
		return h.newStream(w, id, thread, cursor{run: run}).join(r.Context(), live, st, info)
	}
	c, err := parseCursor(text)
	if err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	return h.resume(r.Context(), h.newStream(w, id, thread, c), live, info)
}

// resume continues a stream. If it was complete the status is 204, after which an EventSource does not connect again.
func (h *Handler) resume(ctx context.Context, s *stream, live *listener, info session.Info) error {
	done, err := s.complete(ctx, info)
	if err != nil {
		return err
	}
	if done {
		s.out.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if s.pos.after > info.Event || s.pos.seq > info.Event && !busy(info.Status) && info.Inputs == 0 {
		return refuse(http.StatusBadRequest, "Last-Event-ID is after the end of the thread; repeat the request without it")
	}
	if h.loop != nil && info.Status != session.StatusWaiting {
		h.loop.wake(s.session, false) // the process that ran the session may have died
	}
	s.stored = info.Event
	return s.run(ctx, live)
}

// complete reports whether nothing follows the stream's cursor.
func (s *stream) complete(ctx context.Context, info session.Info) (bool, error) {
	if s.pos.n == finished {
		return true, nil
	}
	if s.pos.seq > info.Event || s.pos.seq == s.pos.after {
		return false, nil
	}
	for raw, err := range s.h.store.Watch(ctx, s.session, s.pos.seq-1) {
		if err != nil {
			return false, err
		}
		if raw.Seq != s.pos.seq {
			return false, nil
		}
		ev, err := event.Decode(raw.Data)
		if err != nil {
			return false, err
		}
		end, ok := ev.(*event.End)
		if !ok {
			return false, nil
		}
		w, err := s.finish(ctx, end, raw.Record)
		return w != nil, err
	}
	return false, ctx.Err()
}

// cancel interrupts the run of a thread, or ends its open questions.
func (h *Handler) cancel(w http.ResponseWriter, r *http.Request) error {
	thread := r.URL.Query().Get("threadId")
	id, err := h.sessionID(r, thread)
	if err != nil {
		return err
	}
	st, info, err := h.current(r.Context(), id)
	if err != nil {
		return err
	}
	if busy(info.Status) || info.Inputs > 0 || len(st.Pending()) > 0 {
		done, err := h.interrupt(r.Context(), id)
		if err != nil {
			return err
		}
		if !done {
			w.WriteHeader(http.StatusAccepted)
			return nil
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// cancelTimeout is how long a request to cancel waits for the effect.
const cancelTimeout = 5 * time.Second

// interrupt sends an interrupt to a session, and reports whether it has taken effect.
func (h *Handler) interrupt(ctx context.Context, id string) (done bool, err error) {
	input := message.NewID("cancel")
	if h.loop != nil {
		err = h.loop.interrupt(ctx, id, input)
	} else {
		_, err = h.engine.Send(ctx, id, input, agent.Interrupt{})
	}
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	_, err = session.Await(ctx, h.store, id, input)
	return err == nil, nil
}
