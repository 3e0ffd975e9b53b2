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
// What it sends comes from the store, in the order of the events' numbers. If the session runs in this process, the
// events of the run come earlier, with the deltas that are not stored: such an event is taken if its number is the
// next one. If not, an event is missing, and the stream waits for the store.
type stream struct {
	h       *Handler
	out     *sink
	session string
	thread  string

	pos    cursor
	from   int64 // events up to this number were sent before this stream began
	last   int64 // the number of the last event that was processed
	tr     *translator
	held   []event.Event // from the run, not processed
	state  json.RawMessage
	record int64 // of the last event that changed the state; its state is loaded when it is needed
	failed error // of the run in this process
}

// errDone ends a stream.
var errDone = errors.New("the stream is complete")

// newStream returns the stream after a cursor.
func (h *Handler) newStream(w http.ResponseWriter, sessionID, thread string, c cursor) *stream {
	return &stream{h: h, out: &sink{w: w, rc: http.NewResponseController(w)}, session: sessionID, thread: thread,
		pos: c, from: c.seq, last: c.seq, tr: newTranslator(c)}
}

// A stored is an event from the store, or the error that ended it.
type stored struct {
	ev  session.Event
	err error
}

// run sends events until the run ends, the client has disconnected or the store fails.
func (s *stream) run(ctx context.Context, live *listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, ended, after := make(chan stored), make(chan struct{}), max(0, s.pos.after-1)
	go func() {
		defer close(ended)
		for ev, err := range s.h.store.Watch(ctx, s.session, after) {
			select {
			case events <- stored{ev, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { cancel(); <-ended }()
	if live == nil {
		live = &listener{}
	}
	quiet := time.NewTicker(idle)
	defer quiet.Stop()
	for silent := 0; ; {
		var err error
		select {
		case e := <-events:
			silent = 0
			s.hold(live) // the deltas before the event were published before it was stored
			if err = s.takeHeld(ctx); err == nil {
				err = e.err
			}
			if err == nil {
				err = s.take(ctx, e.ev)
			}
		case ev := <-live.events:
			silent = 0
			s.held = append(s.held, ev)
			s.hold(live)
		case s.failed = <-live.failed:
		case <-quiet.C:
			silent++
			err = s.check(ctx, silent)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err == nil {
			err = s.takeHeld(ctx)
		}
		if errors.Is(err, errDone) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// hold takes over what the run has published. If it is too much the oldest events are dropped: then one is missing,
// and the store has what matters.
func (s *stream) hold(live *listener) {
	for {
		select {
		case ev := <-live.events:
			s.held = append(s.held, ev)
			continue
		default:
		}
		s.held = s.held[max(0, len(s.held)-2*listenerSize):]
		return
	}
}

// take processes an event from the store.
func (s *stream) take(ctx context.Context, raw session.Event) error {
	if raw.Seq <= s.pos.after {
		s.record = raw.Record
		return nil
	}
	if raw.Seq > s.from && raw.Seq <= s.last {
		return nil // it came from the run
	}
	ev, err := event.Decode(raw.Data)
	if err != nil {
		return fmt.Errorf("session %q: event %d: %w", s.session, raw.Seq, err)
	}
	if raw.Seq <= s.from {
		s.replay(ev, raw.Record)
		return nil
	}
	return s.process(ctx, ev, raw.Record)
}

// replay brings the translator to where it was after an event. The middle and the step are in the cursor.
func (s *stream) replay(ev event.Event, record int64) {
	mid, step := s.tr.mid, s.tr.step
	s.tr.mid = middle{}
	s.tr.event(ev)
	s.tr.mid, s.tr.step = mid, step
	if changesState(ev) {
		s.record = record
	}
}

// takeHeld processes events from the run, as far as none is missing.
func (s *stream) takeHeld(ctx context.Context) error {
	for len(s.held) > 0 {
		ev := s.held[0]
		seq := ev.Head().Seq
		if seq > s.last+1 || seq == s.last+1 && s.needsRecord(ev) {
			return nil
		}
		s.held = s.held[1:]
		if seq <= s.last {
			continue
		}
		if err := s.process(ctx, ev, 0); err != nil {
			return err
		}
	}
	return nil
}

// changesState reports whether the State is looked at after an event: at the end of a step, and of a run.
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

// process translates an event and sends the result. record is that of an event from the store.
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

// after returns the cursor behind an event.
func (s *stream) after(seq int64) cursor {
	c := s.pos
	c.seq, c.n, c.mid, c.step = seq, 0, s.tr.mid, s.tr.step
	return c
}

// stateDelta returns the change of the state since it was last looked at; nil if there is none.
func (s *stream) stateDelta(ctx context.Context, record int64) (*wireEvent, error) {
	if s.state == nil { // this stream continues another one
		was, err := s.stateAt(ctx, s.record)
		if err != nil {
			return nil, err
		}
		s.state = was
	}
	is, err := s.stateAt(ctx, record)
	if err != nil {
		return nil, err
	}
	delta, err := diff(s.state, is)
	s.state = is
	if err != nil || len(delta) == 0 {
		return nil, err
	}
	return &wireEvent{Type: "STATE_DELTA", Delta: delta}, nil
}

// stateAt returns the state after a record, that of a new session if there is none.
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

// read returns the State after a record, or the newest if the store has dropped that.
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
		case end.Reason == event.EndWaiting && !isAnswer(s.pos.last): // messages wait with the session
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

// waitingFor returns the outcome of a run after which a session has this State.
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
		o.Type, o.Pending = "interrupt", nil // the client finds the calls without a result itself
	}
	return o
}

// check looks after some silence whether more events will come.
func (s *stream) check(ctx context.Context, silent int) error {
	if silent%int(alive/idle) == 0 {
		if err := s.out.comment(); err != nil {
			return err
		}
	}
	if s.h.loop != nil && silent%5 == 0 {
		s.h.loop.wake(s.session, false) // its process may have died
	}
	if s.failed != nil && silent > 1 {
		return s.fail("run_failed", "the run failed; the server's log has the reason")
	}
	if s.pos.last == "" || silent%5 != 2 {
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

// start writes the header, and gives the client time to read what follows.
func (o *sink) start() {
	if !o.started {
		h := o.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		o.started = true
	}
	_ = o.rc.SetWriteDeadline(time.Now().Add(patience)) // a server without deadlines has another limit, or none
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
