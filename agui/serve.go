package agui

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// busy reports whether a run is in progress or was interrupted by a crash.
func busy(s session.Status) bool { return s == session.StatusWorking || s == session.StatusAbandoned }

// post sends the new inputs of a request to the session, and streams events until the run that handles them has ended.
// A request without new inputs gets what GET returns.
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
	if m, ok := errors.AsType[*mismatch](err); ok {
		s.out.send(&wireEvent{Type: "RUN_ERROR", Message: m.text, Code: m.code}, time.Now(), cursor{})
		return s.out.flush()
	}
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		return s.join(r.Context(), live, st, info)
	}
	s.pos.lastInput = inputs[len(inputs)-1].id
	waiting, err := h.store.Inputs(r.Context(), id)
	if err != nil {
		return err
	}
	if len(waiting) > 0 { // the stream also has the run of a later input that another request has sent
		s.pos.lastInput = waiting[len(waiting)-1].ID
	}
	if err := s.begin(st, info, false); err != nil {
		return err
	}
	return s.follow(r.Context(), live)
}

// A request with another grant fails while the session of a run that has just ended is still open. It is retried for two
// seconds.
const (
	grantRetry = 20 * time.Millisecond
	grantTries = 100
)

// accept sends the new inputs of a request to the session. It returns them, and the State before them.
func (h *Handler) accept(ctx context.Context, id string, in *runInput, g grant) (st *agent.State, info session.Info, inputs []newInput, err error) {
	for range grantTries {
		if st, info, err = h.current(ctx, id); err != nil {
			return nil, info, nil, err
		}
		inputs, err = (&planner{ctx: ctx, store: h.store, session: id, state: st, request: in}).plan()
		if err != nil || len(inputs) == 0 {
			return st, info, nil, err
		}
		err = h.send(ctx, id, inputs, g, st, info.Status)
		if err != errOtherGrant || busy(info.Status) {
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

// current returns a session's State, or the zero State if the store does not have the session.
func (h *Handler) current(ctx context.Context, id string) (*agent.State, session.Info, error) {
	st, info, err := session.Read(ctx, h.store, id, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return &agent.State{}, session.Info{}, nil
	}
	return st, info, err
}

// grant returns the grant of a request. A tool that the agent cannot use is an error.
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
	if g.tools, err = checkTools(in.Tools, h.cfg.MaxTools); err == nil && h.runner != nil {
		_, err = agentWithTools(r.Context(), h.runner.cfg, g.tools)
	}
	if err != nil {
		return g, refuse(http.StatusBadRequest, "tools: %v", err)
	}
	return g, nil
}

// listen returns a listener of a session, and the function that ends it. If an engine runs the sessions and the store
// is not a Notifier, the listener gets nothing.
func (h *Handler) listen(ctx context.Context, id string) (_ *listener, stop func()) {
	if h.runner != nil {
		return h.runner.listen(id)
	}
	n, ok := h.store.(session.Notifier)
	if !ok {
		return &listener{}, func() {}
	}
	ctx, stop = context.WithCancel(ctx)
	live := &listener{events: make(chan event.Event, listenerSize)}
	published := n.Live(ctx, id)
	go func() {
		for {
			select {
			case raw := <-published:
				if ev, err := event.Decode(raw.Data); err == nil { // an event that this version does not know is skipped
					live.offer(ev)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return live, stop
}

// send sends inputs to a session with a grant, and makes it run. st and status are those with which the request was
// compared.
func (h *Handler) send(ctx context.Context, id string, inputs []newInput, g grant, st *agent.State, status session.Status) error {
	var err error
	if h.runner != nil {
		err = h.runner.send(ctx, id, inputs, g, st, status)
		if err == errOtherGrant && busy(status) {
			h.runner.wake(id, false) // the process of the run in progress may have died
		}
	} else {
		err = h.sendToEngine(ctx, id, inputs, g, st, status)
	}
	if errors.Is(err, session.ErrFull) {
		return refuse(http.StatusServiceUnavailable, "too many messages of the thread are waiting; try again later")
	}
	return err
}

func (h *Handler) sendToEngine(ctx context.Context, id string, inputs []newInput, g grant, st *agent.State, status session.Status) error {
	if err := h.setGrant(ctx, id, g, st, status); err != nil {
		return err
	}
	for _, in := range inputs {
		if _, err := h.cfg.Engine.Send(ctx, id, in.id, in.input); err != nil {
			return err
		}
	}
	return nil
}

// setGrant stores the grant of a request in the session that an engine will run.
func (h *Handler) setGrant(ctx context.Context, id string, g grant, st *agent.State, status session.Status) error {
	stored, err := storedGrant(st)
	if err != nil || g.equal(stored) {
		return err
	}
	if busy(status) {
		return errOtherGrant
	}
	s, err := session.Open(ctx, h.store, id)
	if errors.Is(err, session.ErrConflict) { // a worker has the session open
		return errOtherGrant
	}
	if err != nil {
		return err
	}
	if err = g.setIn(s.State); err == nil {
		err = s.Save(ctx, s.State)
	}
	return errors.Join(err, s.Close())
}

// begin sends the first events of a stream: RUN_STARTED, the state, and with withMessages the thread's messages.
func (s *stream) begin(st *agent.State, info session.Info, withMessages bool) error {
	now := time.Now()
	s.pos.startSeq, s.pos.seq, s.processed = info.Event, info.Event, info.Event
	list := []*wireEvent{{Type: "RUN_STARTED", ThreadID: s.thread, RunID: s.pos.run, Version: protocolVersion}}
	if s.h.cfg.State != nil {
		data, err := json.Marshal(s.h.cfg.State(st))
		if err != nil {
			return err
		}
		s.sentState = data
		list = append(list, &wireEvent{Type: "STATE_SNAPSHOT", Snapshot: data})
	}
	if withMessages {
		list = append(list, &wireEvent{Type: "MESSAGES_SNAPSHOT", Messages: messagesOf(st.Messages)})
	}
	last := len(list) - 1
	for _, w := range list[:last] {
		s.out.send(w, now, cursor{}) // without an id: a client that does not get all of the list must begin again
	}
	s.out.send(list[last], now, s.pos)
	return s.out.flush()
}

// join sends a snapshot of the thread, and the events of its current run if there is one.
func (s *stream) join(ctx context.Context, live *listener, st *agent.State, info session.Info) error {
	entries, err := s.h.store.Inputs(ctx, s.session)
	if err != nil {
		return err
	}
	hasQuestions := len(st.Pending()) > 0
	for _, e := range entries {
		if !hasQuestions || isAnswerID(e.ID) { // while questions are open, messages start no run
			s.pos.lastInput = e.ID
		}
	}
	if err := s.begin(st, info, true); err != nil {
		return err
	}
	if busy(info.Status) || s.pos.lastInput != "" {
		if s.h.runner != nil {
			s.h.runner.wake(s.session, false) // the process that runs the session may have died
		}
		return s.follow(ctx, live)
	}
	s.pos.nextSent = streamEnded
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
		st = &agent.State{} // the run of the session's first input has not stored a record yet
	} else if err != nil {
		return err
	}
	lastEventID := r.Header.Get("Last-Event-ID")
	if lastEventID == "" {
		run := r.URL.Query().Get("runId")
		if run == "" {
			run = message.NewID("run")
		} else if err := session.CheckID(run); err != nil {
			return refuse(http.StatusBadRequest, "runId: %v", err)
		}
		return h.newStream(w, id, thread, cursor{run: run}).join(r.Context(), live, st, info)
	}
	c, err := parseCursor(lastEventID)
	if err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	return h.resume(r.Context(), h.newStream(w, id, thread, c), live, info)
}

// resume continues the stream of another connection. If the client has all its events the status is 204, after which an
// EventSource does not connect again.
func (h *Handler) resume(ctx context.Context, s *stream, live *listener, info session.Info) error {
	complete, err := s.isComplete(ctx, info)
	if err != nil {
		return err
	}
	if complete {
		s.out.resp.WriteHeader(http.StatusNoContent)
		return nil
	}
	// The client can be ahead of the store only during a run, whose events are sent before they are stored.
	if s.pos.startSeq > info.Event || s.pos.seq > info.Event && !busy(info.Status) && info.Inputs == 0 {
		return refuse(http.StatusBadRequest, "Last-Event-ID is after the end of the thread; repeat the request without it")
	}
	if h.runner != nil && info.Status != session.StatusWaiting {
		h.runner.wake(s.session, false) // the process that ran the session may have died
	}
	s.storedSeq = info.Event
	return s.follow(ctx, live)
}

// isComplete reports whether the last event before the cursor ended the stream.
func (s *stream) isComplete(ctx context.Context, info session.Info) (bool, error) {
	if s.pos.nextSent == streamEnded {
		return true, nil
	}
	if s.pos.seq > info.Event || s.pos.seq == s.pos.startSeq {
		return false, nil
	}
	for raw, err := range s.h.store.Watch(ctx, s.session, s.pos.seq-1) { // returns after the first event
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
		w, err := s.lastEvent(ctx, end, raw.Record)
		return w != nil, err
	}
	return false, ctx.Err()
}

// cancel interrupts the run of a thread, or ends its open questions.
func (h *Handler) cancel(w http.ResponseWriter, r *http.Request) error {
	id, err := h.sessionID(r, r.URL.Query().Get("threadId"))
	if err != nil {
		return err
	}
	st, info, err := h.current(r.Context(), id)
	if err != nil {
		return err
	}
	status := http.StatusNoContent
	if busy(info.Status) || info.Inputs > 0 || len(st.Pending()) > 0 {
		consumed, err := h.interrupt(r.Context(), id)
		if err != nil {
			return err
		}
		if !consumed {
			status = http.StatusAccepted
		}
	}
	w.WriteHeader(status)
	return nil
}

// cancelTimeout is how long a DELETE waits until the session has consumed the interrupt.
const cancelTimeout = 5 * time.Second

// interrupt sends an interrupt to a session, and reports whether the session has consumed it within cancelTimeout.
func (h *Handler) interrupt(ctx context.Context, id string) (consumed bool, err error) {
	input := message.NewID("cancel")
	if h.runner == nil {
		_, err = h.cfg.Engine.Send(ctx, id, input, agent.Interrupt{})
	} else if _, err = session.Send(ctx, h.store, id, input, agent.Interrupt{}); err == nil {
		h.runner.wake(id, true)
	}
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	_, err = session.Await(ctx, h.store, id, input)
	return err == nil, nil // whatever the error is, the interrupt was sent
}
