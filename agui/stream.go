package agui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// A stream sends the events of a session to a client, from a cursor to the end of a run.
//
// It reads events from the store, in the order of their numbers. If the session runs in this process, the stream also
// gets the events directly from the run, earlier and with the deltas that are not stored. It uses such an event if its
// number is the next one. Otherwise an event is missing, and the stream waits for the store.
type stream struct {
	h       *Handler
	out     *sink
	session string
	thread  string

	pos    cursor
	from   int64 // number of the last event that was sent before this stream began
	stored int64 // number of the last event in the store when this stream continued another one
	last   int64 // number of the last event that was processed
	tr     *translator
	queue  []event.Event   // events from the run that were not processed yet
	state  json.RawMessage // the last state that was sent; nil if another stream has sent it
	record int64           // number of the record with that state
	failed error           // error of the run in this process
}

// errDone ends a stream.
var errDone = errors.New("the stream is complete")

func (h *Handler) newStream(w http.ResponseWriter, sessionID, thread string, c cursor) *stream {
	return &stream{h: h, out: &sink{w: w, rc: http.NewResponseController(w)}, session: sessionID, thread: thread,
		pos: c, from: c.seq, last: c.seq, tr: newTranslator(c)}
}

// A storedEvent is an event from the store, or the error that ended its sequence.
type storedEvent struct {
	ev  session.Event
	err error
}

// run sends events until the run ends, the client has disconnected or the store fails.
func (s *stream) run(ctx context.Context, live *listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, ended, after := make(chan storedEvent), make(chan struct{}), max(0, s.pos.after-1)
	go func() {
		defer close(ended)
		for ev, err := range s.h.store.Watch(ctx, s.session, after) {
			select {
			case events <- storedEvent{ev, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { cancel(); <-ended }()
	if live == nil {
		live = &listener{}
	}
	ticker := time.NewTicker(idleCheck)
	defer ticker.Stop()
	for idleTicks := 0; ; {
		var err error
		select {
		case e := <-events:
			idleTicks = 0
			s.enqueue(live) // the deltas before the event were published before it was stored
			if err = s.processQueue(ctx); err == nil {
				err = e.err
			}
			if err == nil {
				err = s.processStored(ctx, e.ev)
			}
		case ev := <-live.events:
			idleTicks = 0
			s.queue = append(s.queue, ev)
			s.enqueue(live)
		case s.failed = <-live.failed:
		case <-ticker.C:
			idleTicks++
			err = s.check(ctx, idleTicks)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err == nil {
			err = s.processQueue(ctx)
		}
		if errors.Is(err, errDone) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// enqueue moves the published events to the queue. If these are too many it drops the oldest, since the store has them.
func (s *stream) enqueue(live *listener) {
	for {
		select {
		case ev := <-live.events:
			s.queue = append(s.queue, ev)
			continue
		default:
		}
		s.queue = s.queue[max(0, len(s.queue)-2*listenerSize):]
		return
	}
}

// processStored processes an event from the store.
func (s *stream) processStored(ctx context.Context, raw session.Event) error {
	if raw.Seq <= s.pos.after {
		s.record = raw.Record
		return nil
	}
	if raw.Seq > s.from && raw.Seq <= s.last {
		return nil // it was processed when the run published it
	}
	ev, err := event.Decode(raw.Data)
	if err != nil {
		return fmt.Errorf("session %q: event %d: %w", s.session, raw.Seq, err)
	}
	if raw.Seq <= s.from {
		// A crash has undone events that the client has, or the cursor is forged.
		if _, end := ev.(*event.End); end && raw.Seq > s.stored {
			return s.fail("ahead", "Last-Event-ID is after the end of the thread; repeat the request without it")
		}
		s.replay(ev, raw.Record)
		return nil
	}
	return s.process(ctx, ev, raw.Record)
}

// replay updates the translator for an event that was sent before. It keeps mid and the step, which are from the
// cursor.
func (s *stream) replay(ev event.Event, record int64) {
	mid, step := s.tr.mid, s.tr.step
	s.tr.mid = messagePos{}
	s.tr.event(ev)
	s.tr.mid, s.tr.step = mid, step
	if changesState(ev) {
		s.record = record
	}
}

// processQueue processes events from the run until one is missing.
func (s *stream) processQueue(ctx context.Context) error {
	for len(s.queue) > 0 {
		ev := s.queue[0]
		seq := ev.Head().Seq
		if seq > s.last+1 || seq == s.last+1 && s.needsRecord(ev) {
			return nil
		}
		s.queue = s.queue[1:]
		// A delta is late if a part of its stored event was sent: that event contains its text.
		if seq <= s.last || s.pos.n > 0 && isTransient(ev) {
			continue
		}
		if err := s.process(ctx, ev, 0); err != nil {
			return err
		}
	}
	return nil
}

// changesState reports whether the State may have changed after an event: at the end of a step or a run.
func changesState(ev event.Event) bool {
	switch ev := ev.(type) {
	case *event.Message:
		return ev.Message.Role == message.RoleTool
	case *event.End:
		return true
	}
	return false
}

// needsRecord reports whether an event must be taken from the store, which has the number of its record.
func (s *stream) needsRecord(ev event.Event) bool {
	_, end := ev.(*event.End)
	return end || s.h.cfg.State != nil && changesState(ev)
}

// process translates an event and sends the result. record is the number of its record, if the event is from the
// store.
func (s *stream) process(ctx context.Context, ev event.Event, record int64) error {
	seq := ev.Head().Seq
	s.last = seq
	if isDelta(ev) {
		s.tr.delta(ev, func(w *wireEvent) {
			s.pos.mid = s.tr.mid
			s.out.send(w, ev.Head().Time, s.pos)
		})
		s.pos.seq, s.pos.n = seq, 0
		return s.out.flush()
	}
	list := s.tr.event(ev)
	if s.h.cfg.State != nil && changesState(ev) {
		w, err := s.stateDelta(ctx, record)
		if err != nil {
			return err
		}
		list = append(list, w)
	}
	done := false
	if end, ok := ev.(*event.End); ok {
		w, err := s.finish(ctx, end, record)
		if err != nil {
			return err
		}
		done = w != nil
		list = append(list, w)
	}
	for i, w := range list {
		if i < s.pos.n || w == nil {
			continue
		}
		s.pos.n = i + 1
		c := s.pos
		if i == len(list)-1 {
			c = s.after(seq)
		}
		s.out.send(w, ev.Head().Time, c)
	}
	s.pos = s.after(seq)
	if err := s.out.flush(); err != nil || !done {
		return err
	}
	return errDone
}

func (s *stream) after(seq int64) cursor {
	c := s.pos
	c.seq, c.n, c.mid, c.step = seq, 0, s.tr.mid, s.tr.step
	return c
}

// stateDelta returns the change of the state since the last call; nil if there is none.
func (s *stream) stateDelta(ctx context.Context, record int64) (*wireEvent, error) {
	if s.state == nil { // this stream continues another one
		old, err := s.stateAt(ctx, s.record)
		if err != nil {
			return nil, err
		}
		s.state = old
	}
	state, err := s.stateAt(ctx, record)
	if err != nil {
		return nil, err
	}
	delta, err := diff(s.state, state)
	s.state = state
	if err != nil || len(delta) == 0 {
		return nil, err
	}
	return &wireEvent{Type: "STATE_DELTA", Delta: delta}, nil
}

// stateAt returns the state after a record, or that of a new session if there is no record.
func (s *stream) stateAt(ctx context.Context, record int64) (json.RawMessage, error) {
	st := &agent.State{}
	if record > 0 {
		var err error
		if st, _, err = s.read(ctx, record); err != nil {
			return nil, err
		}
	}
	return json.Marshal(s.h.cfg.State(st))
}

// read returns the State after a record, or the newest State if the store no longer has that one.
func (s *stream) read(ctx context.Context, record int64) (*agent.State, session.Info, error) {
	st, info, err := session.Read(ctx, s.h.store, s.session, record)
	if errors.Is(err, session.ErrGone) {
		return session.Read(ctx, s.h.store, s.session, 0)
	}
	return st, info, err
}

// finish returns the event that ends the stream, or nil if another run follows.
func (s *stream) finish(ctx context.Context, end *event.End, record int64) (*wireEvent, error) {
	if s.pos.last != "" {
		in, err := s.h.store.Input(ctx, s.session, s.pos.last)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case in.Record > 0 && in.Record <= record:
		case end.Reason == event.EndWaiting && !isAnswer(s.pos.last): // messages of the user wait too
		default:
			return nil, nil
		}
	}
	w := &wireEvent{Type: "RUN_FINISHED", ThreadID: s.thread, RunID: s.pos.run, Usage: usageOf(s.tr.usage), Outcome: &wireOutcome{Type: "success"}}
	switch end.Reason {
	case event.EndWaiting:
		st, _, err := s.read(ctx, record)
		if err != nil {
			return nil, err
		}
		w.Outcome = waitingFor(st)
	case event.EndInterrupted:
		w.Outcome.Type = "cancelled"
	case event.EndError:
		return &wireEvent{Type: "RUN_ERROR", Message: "the run failed; the server's log has the reason", Code: "run_failed", Usage: w.Usage}, nil
	case event.EndLimit:
		w.Metadata = map[string]any{"kitbag": map[string]string{"limit": end.Detail}}
	}
	w.Result = end.Output
	return w, nil
}

// waitingFor returns the outcome of a run that ended with this State.
func waitingFor(st *agent.State) *wireOutcome {
	o := &wireOutcome{Type: "success"}
	for _, ev := range st.Pending() {
		switch ev := ev.(type) {
		case *event.Approval:
			o.Interrupts = append(o.Interrupts, interruptOf(ev))
		case *event.External:
			o.Pending = append(o.Pending, ev.Call)
		}
	}
	if len(o.Interrupts) > 0 {
		o.Type, o.Pending = "interrupt", nil // AG-UI cannot have both interrupts and pending calls
	}
	return o
}

// check is called after each idleCheck without an event. It ends the stream if none will follow.
func (s *stream) check(ctx context.Context, idleTicks int) error {
	if idleTicks%int(keepAlive/idleCheck) == 0 {
		if err := s.out.comment(); err != nil {
			return err
		}
	}
	if s.h.loop != nil && idleTicks%idleReads == 0 {
		s.h.loop.wake(s.session, false) // the process that runs the session may have died
	}
	if s.failed != nil && idleTicks > 1 {
		return s.fail("run_failed", "the run failed; the server's log has the reason")
	}
	if s.pos.last == "" || idleTicks%idleReads != 2 { // the first time after two seconds
		return nil
	}
	in, err := s.h.store.Input(ctx, s.session, s.pos.last)
	if err != nil || in.Record > 0 && in.Refused == "" {
		return err
	}
	st, info, err := s.read(ctx, 0)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil || busy(info.Status) || info.Event > s.last:
		return nil
	case in.Refused != "":
		return s.fail("refused", in.Refused)
	case len(st.Pending()) > 0 && !isAnswer(s.pos.last):
		return s.fail("interrupts_open", "the thread waits for an answer; the message is used after it")
	}
	return nil
}

// fail ends the stream with a RUN_ERROR.
func (s *stream) fail(code, text string) error {
	s.pos.n = finished
	s.out.send(&wireEvent{Type: "RUN_ERROR", Message: text, Code: code}, time.Now(), s.pos)
	return cmp.Or(s.out.flush(), errDone)
}

// A sink writes server-sent events.
type sink struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	started bool
	err     error
}

// send writes an event. Unless c is the zero cursor, its text is the id of the event.
func (o *sink) send(w *wireEvent, at time.Time, c cursor) {
	if o.err != nil {
		return
	}
	w.Timestamp = at.UnixMilli()
	data, err := json.Marshal(w)
	if err != nil {
		o.err = err
		return
	}
	if o.start(); c.run != "" {
		_, o.err = fmt.Fprintf(o.w, "id: %s\n", c)
	}
	if o.err == nil {
		_, o.err = fmt.Fprintf(o.w, "data: %s\n\n", data)
	}
}

// start sets the header before the first write, and the deadline of the next write.
func (o *sink) start() {
	if !o.started {
		h := o.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		o.started = true
	}
	_ = o.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails if the writer has no deadlines
}

func (o *sink) comment() error {
	if o.err == nil {
		o.start()
		_, o.err = fmt.Fprint(o.w, ":\n\n")
	}
	return o.flush()
}

func (o *sink) flush() error {
	if o.err == nil && o.started {
		o.err = o.rc.Flush()
	}
	return o.err
}
