package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

// A feed keeps the timeline of a session up to date. All pages that show the session share the feed, which ends some
// time after the last page is closed.
type feed struct {
	mu       sync.Mutex    // for all fields except hub
	changed  chan struct{} // closed and replaced when rows have changed
	timeline *timeline
	seq      int64 // the number of the last event
	err      error // why no more rows follow; nil if they may
	users    int   // pages and requests that use the feed
	stop     context.CancelFunc
	idle     *time.Timer // stops the feed when it has no users

	fromMessages bool  // the messages of the State have rows
	dropped      int64 // the store may have no events up to this number

	hub  hub
	sent update // the last update
}

// feeds are the feeds of the sessions that pages show.
type feeds struct {
	mu   sync.Mutex
	byID map[string]*feed
}

// idleFor is how long a feed is kept when no page shows it.
const idleFor = 5 * time.Second

// feed returns the feed of a session. The caller calls release when it does not need it any more.
func (h *Handler) feed(id string) (f *feed, release func()) {
	all := &h.feeds
	all.mu.Lock()
	defer all.mu.Unlock()
	f = all.byID[id]
	if f == nil {
		f = &feed{timeline: newTimeline(h.opts.Price), changed: make(chan struct{})}
		ctx, cancel := context.WithCancel(h.ctx)
		f.stop = cancel
		if all.byID == nil {
			all.byID = map[string]*feed{}
		}
		all.byID[id] = f
		if !h.start(func() { f.run(ctx, h.store, id) }) { // the handler is closed
			f.err = context.Canceled
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users++
	if f.idle != nil {
		f.idle.Stop()
	}
	return f, func() { h.release(id, f) }
}

// wholeFeed returns the feed of a session when it has all events that were stored, or cannot get them.
func (h *Handler) wholeFeed(ctx context.Context, id string) (f *feed, release func(), err error) {
	info, err := h.info(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	f, release = h.feed(id)
	if _, ok := h.store.(session.Watcher); !ok {
		info.Event = 0 // the feed reads no events
	}
	for err == nil {
		f.mu.Lock()
		isEmpty := f.seq == 0 && !f.fromMessages
		done, next := f.err != nil || f.seq >= info.Event && (!isEmpty || info.Seq == 0), f.changed
		f.mu.Unlock()
		if done {
			return f, release, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	release()
	return nil, nil, err
}

// release ends the feed if it has no users for idleFor.
func (h *Handler) release(id string, f *feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	f.idle = time.AfterFunc(idleFor, func() {
		h.feeds.mu.Lock()
		defer h.feeds.mu.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users == 0 && h.feeds.byID[id] == f {
			delete(h.feeds.byID, id)
			f.stop()
		}
	})
}

// retryEvery is the time before a session is read again whose store has failed.
const retryEvery = 5 * time.Second

// run keeps the timeline up to date until ctx ends or the session is deleted.
func (f *feed) run(ctx context.Context, store session.Store, id string) {
	for {
		err := f.follow(ctx, store, id)
		if errors.Is(err, session.ErrGone) && f.skipDropped(ctx, store, id) {
			continue
		}
		f.setErr(err)
		if errors.Is(err, fs.ErrNotExist) || !pause(ctx, retryEvery) {
			return
		}
		f.setErr(nil)
	}
}

// setErr sets why no more rows follow, nil if they may.
func (f *feed) setErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.announce()
}

// follow adds the events of a session to the timeline until reading fails.
func (f *feed) follow(ctx context.Context, store session.Store, id string) error {
	w, ok := store.(session.Watcher)
	if !ok {
		return f.poll(ctx, store, id)
	}
	// A store that yields no event at first may only be slow. showMessages reads the session to find out.
	var checking sync.WaitGroup
	defer checking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	checking.Go(func() {
		if pause(ctx, eventsWithin) {
			f.showMessages(ctx, store, id)
		}
	})
	f.mu.Lock()
	after := f.seq
	f.mu.Unlock()
	lastPause, decode := time.Now(), decodeStored
	for raw, err := range w.Watch(ctx, id, after) {
		if err != nil {
			return err
		}
		ev, err := decode(raw)
		if err != nil {
			return fmt.Errorf("event %d: %w; it may be of a newer version of kitbag", raw.Seq, err)
		}
		if f.lacksRecordsBefore(raw.Record) { // such as those that a fork was copied from, which have no events
			if err := f.showState(ctx, store, id, raw.Record-1); err != nil && !errors.Is(err, session.ErrGone) {
				return err
			}
		}
		f.mu.Lock()
		f.timeline.add(ev, raw.Seq, raw.Record)
		f.seq, f.err = raw.Seq, nil // showMessages may have found no session yet
		f.announce()
		f.mu.Unlock()
		decode = decodeStored
		if now := time.Now(); now.Sub(ev.Head().Time) < listEvery { // a run is in progress
			decode = session.Event.Decode // cheap if the run is in this process
			if now.Sub(lastPause) > quiet {
				pause(ctx, 2*rowsEvery) // to read a batch of events, since waking for each costs more than reading it
				lastPause = time.Now()
			}
		}
	}
	return nil
}

// toolResult matches the beginning of a tool_result in the encoding of package event.
var toolResult = regexp.MustCompile(`^{"seq":[0-9]+,"type":"tool_result",`)

// decodeStored is raw.Decode without the Result of a tool, which is most of a long session. The timeline needs only Text.
func decodeStored(raw session.Event) (event.Event, error) {
	if !toolResult.Match(raw.Data) {
		return raw.Decode()
	}
	ev := new(event.ToolResult)
	return ev, json.Unmarshal(raw.Data, &struct {
		*event.ToolResult
		Result struct{} `json:"result"`
	}{ToolResult: ev})
}

// eventsWithin is how long a store may take to yield the first event, before it is checked that there is one.
const eventsWithin = 200 * time.Millisecond

// lacksRecordsBefore reports whether the timeline has no events of earlier records than this one, though there are such
// records.
func (f *feed) lacksRecordsBefore(record int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq == 0 && record > 1
}

// showMessages makes the timeline from the messages if the session has no events.
func (f *feed) showMessages(ctx context.Context, store session.Store, id string) {
	r, ok := store.(session.Reader)
	f.mu.Lock()
	hasEvents := f.seq > 0
	f.mu.Unlock()
	if !ok || hasEvents {
		return
	}
	info, _, err := r.Read(ctx, id, 0)
	if err == nil && info.Event == 0 && info.Seq > 0 {
		err = f.showState(ctx, store, id, 0)
	}
	if err != nil && ctx.Err() == nil {
		f.setErr(err)
	}
}

// skipDropped makes the timeline from the newest State, since the store has dropped events that the feed has not read. It
// reports whether the feed can follow the events after that State.
func (f *feed) skipDropped(ctx context.Context, store session.Store, id string) bool {
	st, info, err := session.Read(ctx, store, id, 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || info.Event <= f.seq {
		return false
	}
	f.seq, f.dropped = info.Event, info.Event
	f.setMessages(st)
	return true
}

// setMessages makes the timeline from the messages of a State. The caller has locked f.
func (f *feed) setMessages(st *agent.State) {
	f.fromMessages = true
	f.timeline, f.sent = newTimeline(f.timeline.price), update{} // all rows are new
	f.timeline.addMessages(st.Messages)
	f.announce()
}

// showState makes the timeline from the messages of a session's State after a record, 0 for the newest. Events are
// added to it later.
func (f *feed) showState(ctx context.Context, store session.Store, id string, record int64) error {
	st, _, err := session.Read(ctx, store, id, record)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seq == 0 { // no event was added in the meantime
		f.setMessages(st)
	}
	return nil
}

// poll makes the timeline from the State again when the session has changed, for a store that cannot be watched.
func (f *feed) poll(ctx context.Context, store session.Store, id string) error {
	r, ok := store.(session.Reader)
	if !ok {
		return errors.New("the store can neither be watched nor read while a session is open: there is no timeline")
	}
	ticker := time.NewTicker(listEvery)
	defer ticker.Stop()
	for last := int64(-1); ; {
		info, _, err := r.Read(ctx, id, 0)
		if err == nil && info.Seq != last {
			last = info.Seq
			err = f.showState(ctx, store, id, 0)
		}
		if err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// announce wakes the goroutines that wait for a change. The caller has locked f.
func (f *feed) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// An update tells pages what has changed.
type update struct {
	Reload  bool         `json:"reload,omitempty"` // the page must load everything again
	From    int          `json:"from,omitempty"`   // if not 0, the page must load the rows from this index on
	Total   int          `json:"total"`
	Rows    map[int]*row `json:"rows,omitempty"` // by index
	Problem string       `json:"problem"`        // why no more rows follow
}

// maxUpdate is the maximum number of rows in an update.
const maxUpdate = 100

// takeUpdate returns what has changed since it was last called.
func (f *feed) takeUpdate() (u update, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u = update{Total: len(f.timeline.rows), Problem: f.problem(), Rows: map[int]*row{}}
	for i := range f.timeline.changed {
		c := *f.timeline.rows[i]
		u.Rows[i] = &c
	}
	if len(u.Rows) > maxUpdate {
		u.From, u.Rows = slices.Min(slices.Collect(maps.Keys(u.Rows))), map[int]*row{}
		u.Reload = u.From == 0 // which JSON would leave out
	}
	if u.Total < f.sent.Total || f.sent.Rows == nil {
		u.Reload, u.Rows = true, map[int]*row{}
	}
	changed = len(f.timeline.changed) > 0 || u.Reload || u.Problem != f.sent.Problem
	clear(f.timeline.changed)
	f.sent = u
	return u, changed
}

// problem returns why no more rows follow, "" if they may. The caller has locked f.
func (f *feed) problem() string {
	switch {
	case f.err == nil || errors.Is(f.err, context.Canceled):
		return ""
	case errors.Is(f.err, fs.ErrNotExist):
		return "the session does not exist any more"
	}
	return f.err.Error()
}

// A view is a part of a feed at some moment.
type view struct {
	total   int // the number of all rows
	rows    []row
	problem string          // why no more rows follow
	next    <-chan struct{} // closed at the next change
}

// look returns up to n rows from index from on: of the session, or of the sub-agent of the row at a path, if not "".
func (f *feed) look(path string, from, n int) (view, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := view{next: f.changed, rows: []row{}, problem: f.problem()}
	t := f.timeline
	if path != "" {
		r, err := t.at(path)
		if err != nil {
			return v, err
		}
		if t = r.nested; t == nil {
			return v, nil
		}
	}
	v.total = len(t.rows)
	from = min(max(from, 0), v.total)
	for _, r := range t.rows[from:min(from+n, v.total)] {
		c := *r
		c.events = slices.Clone(r.events)
		v.rows = append(v.rows, c)
	}
	return v, nil
}

const (
	quiet    = 50 * time.Millisecond  // without events, after which a feed is taken to be up to date
	patience = 400 * time.Millisecond // the longest wait for a feed that has just begun to read
)

// wait is look, but first waits until the row at the path exists and enough, called with f locked, returns true, no event was
// added for quiet, or patience has passed. The page gets later rows as updates.
func (f *feed) wait(ctx context.Context, path string, from, n int, enough func(view) bool) (view, error) {
	end := time.After(patience)
	for {
		v, err := f.look(path, from, n)
		f.mu.Lock()
		done := v.problem != "" || err == nil && enough(v)
		f.mu.Unlock()
		if done {
			return v, err
		}
		var idle <-chan time.Time
		if v.total > 0 {
			idle = time.After(quiet)
		}
		select {
		case <-v.next:
		case <-idle:
			return v, err
		case <-end:
			return v, err
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}
