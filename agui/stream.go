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

const (
	eventStream  = "text/event-stream" // the media type of a stream
	maxQueue     = 2 * listenerSize    // published events
	writeTimeout = 30 * time.Second

	idleCheck      = time.Second // interval of the calls of [stream.checkIdle] while there are no events
	firstRead      = 2           // the first idle check that may end the stream; before, events may still be on their way
	readEvery      = 5           // of so many successive idle checks, one reads the store and one wakes the session
	keepAliveEvery = 15          // of so many successive idle checks, one sends a comment: proxies close silent streams
)

// A stream sends the events of a session to a client, from a cursor to the end of a run.
//
// The stream reads events from the store, in the order of their numbers. A listener also gets the events directly from
// the run, earlier and with the deltas that are not stored. The stream uses such a published event if its number is the
// next one. Otherwise an event is missing, and the stream waits for the store.
type stream struct {
	h       *Handler
	out     *sink
	session string // id
	thread  string // id

	pos         cursor
	resumedSeq  int64 // number of the last event that an earlier stream has sent
	storedSeq   int64 // number of the last event in the store when this stream resumed an earlier one
	processed   int64 // number of the last event that was processed
	translator  *translator
	queue       []event.Event   // published events that were not processed yet
	sentState   json.RawMessage // the last state that was sent; nil if an earlier stream has sent it
	stateRecord int64           // number of the record with sentState
	runErr      error           // of a run in this process
}

// errDone is returned after the last event of a stream.
var errDone = errors.New("the stream is complete")

func (h *Handler) newStream(w http.ResponseWriter, sessionID, thread string, c cursor) *stream {
	return &stream{h: h, out: &sink{resp: w, ctrl: http.NewResponseController(w)}, session: sessionID, thread: thread,
		pos: c, resumedSeq: c.seq, processed: c.seq, translator: newTranslator(c)}
}

// A storedEvent is an event from the store, or the error that ended its sequence.
type storedEvent struct {
	ev  session.Event
	err error
}

// watch starts to read the stored events, beginning with the last one before the stream: its record has the state with
// which the stream began. stop ends the reading.
func (s *stream) watch(ctx context.Context) (_ <-chan storedEvent, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	events, ended := make(chan storedEvent), make(chan struct{})
	after := max(0, s.pos.startSeq-1) // not in the goroutine: s.pos changes
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
	return events, func() { cancel(); <-ended }
}

// follow sends events until the run ends, the client has disconnected or the store fails.
func (s *stream) follow(ctx context.Context, live *listener) error {
	events, stop := s.watch(ctx)
	defer stop()
	ticker := time.NewTicker(idleCheck)
	defer ticker.Stop()
	for idleChecks := 0; ; {
		var err error
		select {
		case e := <-events:
			idleChecks = 0
			s.enqueue(live) // the deltas before the event were published before it was stored
			if err = cmp.Or(s.processQueue(ctx), e.err); err == nil {
				err = s.processStored(ctx, e.ev)
			}
		case ev := <-live.events:
			idleChecks = 0
			s.queue = append(s.queue, ev)
			s.enqueue(live)
		case s.runErr = <-live.failed:
		case <-ticker.C:
			idleChecks++
			err = s.checkIdle(ctx, idleChecks)
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

// enqueue moves the published events to the queue. If the queue gets too long, the oldest events are dropped: the stream
// gets them from the store.
func (s *stream) enqueue(live *listener) {
	for range len(live.events) {
		s.queue = append(s.queue, <-live.events)
	}
	s.queue = s.queue[max(0, len(s.queue)-maxQueue):]
}

// processStored processes an event from the store.
func (s *stream) processStored(ctx context.Context, raw session.Event) error {
	if raw.Seq <= s.pos.startSeq {
		s.stateRecord = raw.Record
		return nil
	}
	if raw.Seq > s.resumedSeq && raw.Seq <= s.processed {
		return nil // the event was processed when it was published
	}
	ev, err := event.Decode(raw.Data)
	if err != nil {
		return fmt.Errorf("session %q: event %d: %w", s.session, raw.Seq, err)
	}
	if raw.Seq <= s.resumedSeq {
		// The client was ahead of the store, and now the run ends before the client's position: a crash has undone events
		// that the client has, or the cursor is forged.
		if _, isEnd := ev.(*event.End); isEnd && raw.Seq > s.storedSeq {
			return s.fail("ahead", "Last-Event-ID is after the end of the thread; repeat the request without it")
		}
		s.replay(ev, raw.Record)
		return nil
	}
	return s.process(ctx, ev, raw.Record)
}

// replay updates the translator for an event that an earlier stream has sent. The translator keeps its msgPos and step,
// which are those of the cursor.
func (s *stream) replay(ev event.Event, record int64) {
	msgPos, step := s.translator.msgPos, s.translator.step
	s.translator.msgPos = messagePos{}
	s.translator.translate(ev)
	s.translator.msgPos, s.translator.step = msgPos, step
	if changesState(ev) {
		s.stateRecord = record
	}
}

// processQueue processes published events until one is missing.
func (s *stream) processQueue(ctx context.Context) error {
	for len(s.queue) > 0 {
		ev := s.queue[0]
		seq := ev.Head().Seq
		if seq > s.processed+1 || seq == s.processed+1 && s.needsRecord(ev) {
			return nil
		}
		s.queue = s.queue[1:]
		// A delta is late if a part of the stored message was sent, which contains the delta's text.
		if seq <= s.processed || s.pos.nextSent > 0 && isTransient(ev) {
			continue
		}
		if err := s.process(ctx, ev, 0); err != nil {
			return err
		}
	}
	return nil
}

// changesState reports whether an event ends a step or a run, so that the State may have changed.
func changesState(ev event.Event) bool {
	switch ev := ev.(type) {
	case *event.Message:
		return ev.Message.Role == message.RoleTool
	case *event.End:
		return true
	}
	return false
}

// needsRecord reports whether the stream needs the number of an event's record, which only events from the store have.
func (s *stream) needsRecord(ev event.Event) bool {
	_, isEnd := ev.(*event.End)
	return isEnd || s.h.cfg.State != nil && changesState(ev)
}

// process translates an event and sends the result. record is the number of the event's record; 0 for a published event.
func (s *stream) process(ctx context.Context, ev event.Event, record int64) error {
	seq := ev.Head().Seq
	s.processed = seq
	if isDelta(ev) {
		s.translator.translateDelta(ev, func(w *wireEvent) {
			s.pos.msgPos = s.translator.msgPos
			s.out.send(w, ev.Head().Time, s.pos)
		})
		s.pos.seq, s.pos.nextSent = seq, 0
		return s.out.flush()
	}
	list := s.translator.translate(ev)
	if s.h.cfg.State != nil && changesState(ev) {
		w, err := s.stateDelta(ctx, record)
		if err != nil {
			return err
		}
		list = append(list, w)
	}
	ended := false
	if end, ok := ev.(*event.End); ok {
		w, err := s.lastEvent(ctx, end, record)
		if err != nil {
			return err
		}
		ended = w != nil
		list = append(list, w)
	}
	for i, w := range list {
		if i < s.pos.nextSent || w == nil { // sent by an earlier stream, or nothing to send
			continue
		}
		s.pos.nextSent = i + 1
		c := s.pos
		if i == len(list)-1 {
			c = s.posAfter(seq)
		}
		s.out.send(w, ev.Head().Time, c)
	}
	s.pos = s.posAfter(seq)
	if err := s.out.flush(); err != nil || !ended {
		return err
	}
	return errDone
}

// posAfter returns the cursor after all AG-UI events of event seq.
func (s *stream) posAfter(seq int64) cursor {
	c := s.pos
	c.seq, c.nextSent, c.msgPos, c.step = seq, 0, s.translator.msgPos, s.translator.step
	return c
}

// stateDelta returns the change of the state since the last call; nil if there is none.
func (s *stream) stateDelta(ctx context.Context, record int64) (*wireEvent, error) {
	if s.sentState == nil {
		sent, err := s.stateAt(ctx, s.stateRecord)
		if err != nil {
			return nil, err
		}
		s.sentState = sent
	}
	state, err := s.stateAt(ctx, record)
	if err != nil {
		return nil, err
	}
	delta, err := diff(s.sentState, state)
	s.sentState = state
	if err != nil || len(delta) == 0 {
		return nil, err
	}
	return &wireEvent{Type: "STATE_DELTA", Delta: delta}, nil
}

// stateAt returns the state after a record; for record 0, the state of a new session.
func (s *stream) stateAt(ctx context.Context, record int64) (json.RawMessage, error) {
	st := &agent.State{}
	if record > 0 {
		var err error
		if st, _, err = s.readState(ctx, record); err != nil {
			return nil, err
		}
	}
	return json.Marshal(s.h.cfg.State(st))
}

// readState returns the State after a record, or the newest State if record is 0 or the store no longer has the record.
func (s *stream) readState(ctx context.Context, record int64) (*agent.State, session.Info, error) {
	st, info, err := session.Read(ctx, s.h.store, s.session, record)
	if errors.Is(err, session.ErrGone) {
		return session.Read(ctx, s.h.store, s.session, 0)
	}
	return st, info, err
}

// lastEvent returns the event that ends the stream at the end of a run, or nil if the stream has another run.
func (s *stream) lastEvent(ctx context.Context, end *event.End, record int64) (*wireEvent, error) {
	if s.pos.lastInput != "" {
		in, err := s.h.store.Input(ctx, s.session, s.pos.lastInput)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the cursor is forged
		case err != nil:
			return nil, err
		case in.Record > 0 && in.Record <= record: // this run, or an earlier one, has consumed the input
		case end.Reason == event.EndWaiting && !isAnswerID(s.pos.lastInput): // a message waits until the questions are answered
		default:
			return nil, nil
		}
	}
	w := &wireEvent{Type: "RUN_FINISHED", ThreadID: s.thread, RunID: s.pos.run, Usage: usageOf(s.translator.usage), Outcome: &wireOutcome{Type: "success"}}
	switch end.Reason {
	case event.EndWaiting:
		st, _, err := s.readState(ctx, record)
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

// waitingFor returns the outcome of a run after which the State may have open questions.
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

// checkIdle is called after each idleCheck without an event. It ends the stream if no event will follow. idleChecks is the
// number of its calls since the last event.
func (s *stream) checkIdle(ctx context.Context, idleChecks int) error {
	if idleChecks%keepAliveEvery == 0 {
		if err := s.out.comment(); err != nil {
			return err
		}
	}
	if s.h.runner != nil && idleChecks%readEvery == 0 {
		s.h.runner.wake(s.session, false) // the process that runs the session may have died
	}
	if s.runErr != nil && idleChecks >= firstRead {
		return s.fail("run_failed", "the run failed; the server's log has the reason")
	}
	if s.pos.lastInput == "" || idleChecks%readEvery != firstRead {
		return nil
	}
	in, err := s.h.store.Input(ctx, s.session, s.pos.lastInput)
	if err != nil || in.Record > 0 && in.Refused == "" { // events of the run that has consumed the input will follow
		return err
	}
	st, info, err := s.readState(ctx, 0)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil || busy(info.Status) || info.Event > s.processed:
		return nil
	case in.Refused != "":
		return s.fail("refused", in.Refused)
	case len(st.Pending()) > 0 && !isAnswerID(s.pos.lastInput):
		return s.fail("interrupts_open", "the thread waits for an answer; the message is used after it")
	}
	return nil
}

// fail ends the stream with a RUN_ERROR.
func (s *stream) fail(code, text string) error {
	s.pos.nextSent = streamEnded
	s.out.send(&wireEvent{Type: "RUN_ERROR", Message: text, Code: code}, time.Now(), s.pos)
	return cmp.Or(s.out.flush(), errDone)
}

// A sink writes server-sent events.
type sink struct {
	resp    http.ResponseWriter
	ctrl    *http.ResponseController // of resp
	started bool                     // something was written
	err     error                    // of the first write that failed
}

// send writes an event. The id of the event is c, unless c is zero.
func (o *sink) send(ev *wireEvent, at time.Time, c cursor) {
	if o.err != nil {
		return
	}
	ev.Timestamp = at.UnixMilli()
	data, err := json.Marshal(ev)
	if err != nil {
		o.err = err
		return
	}
	o.start()
	if c != (cursor{}) {
		_, o.err = fmt.Fprintf(o.resp, "id: %s\n", c)
	}
	if o.err == nil {
		_, o.err = fmt.Fprintf(o.resp, "data: %s\n\n", data)
	}
}

// start sets the header before the first write, and the deadline of the next write.
func (o *sink) start() {
	if !o.started {
		h := o.resp.Header()
		h.Set("Content-Type", eventStream)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		o.started = true
	}
	_ = o.ctrl.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails if the writer has no deadlines
}

func (o *sink) comment() error {
	if o.err == nil {
		o.start()
		_, o.err = fmt.Fprint(o.resp, ":\n\n")
	}
	return o.flush()
}

func (o *sink) flush() error {
	if o.err == nil && o.started {
		o.err = o.ctrl.Flush()
	}
	return o.err
}
