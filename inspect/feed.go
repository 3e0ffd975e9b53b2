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

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

// A feed is the timeline of a session, which grows while the session does. All pages that show the session share
// it, and it ends some time after the last of them.
type feed struct {
	mu      sync.Mutex    // for all fields
	changed chan struct{} // closed and replaced when rows have changed
	t       *timeline
	seq     int64 // of the last event
	err     error // why it ended
	users   int
	stop    context.CancelFunc
	idle    *time.Timer

	fromMessages bool // the messages of the State have rows

	hub  hub
	sent update // the last one
}

// feeds are those of the sessions that are shown.
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
		f = &feed{t: newTimeline(h.opts.Price), changed: make(chan struct{})}
		ctx, cancel := context.WithCancel(h.ctx)
		f.stop = cancel
		if all.byID == nil {
			all.byID = map[string]*feed{}
		}
		all.byID[id] = f
		if !h.start(func() { f.run(ctx, h.store, id) }) {
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
	in, err := h.info(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	f, release = h.feed(id)
	if _, ok := h.store.(session.Watcher); !ok {
		in.Event = 0
	}
	for err == nil {
		f.mu.Lock()
		whole := f.seq >= in.Event && (f.seq > 0 || f.fromMessages || in.Seq == 0)
		done, next := whole || f.err != nil, f.changed
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

// release ends a feed that stays without users.
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

// retryEvery is how often it is tried to read a session whose store has failed.
const retryEvery = 5 * time.Second

// run adds to the timeline until ctx ends or the session is deleted.
func (f *feed) run(ctx context.Context, store session.Store, id string) {
	for {
		err := f.follow(ctx, store, id)
		f.setErr(err)
		if errors.Is(err, fs.ErrNotExist) || !pause(ctx, retryEvery) {
			return
		}
		f.setErr(nil)
	}
}

// setErr sets why there are no more rows, nil if there may be.
func (f *feed) setErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.announce()
}

func (f *feed) follow(ctx context.Context, store session.Store, id string) error {
	w, ok := store.(session.Watcher)
	if !ok {
		return f.poll(ctx, store, id)
	}
	// Only reading all of a session shows that it has no events. Showing the first event does not wait for that.
	var check sync.WaitGroup
	defer check.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	check.Go(func() {
		if pause(ctx, eventsWithin) {
			f.withoutEvents(ctx, store, id)
		}
	})
	f.mu.Lock()
	after := f.seq
	f.mu.Unlock()
	woke, decode := time.Now(), decodeStored
	for raw, err := range w.Watch(ctx, id, after) {
		if err != nil {
			return err
		}
		ev, err := decode(raw)
		if err != nil {
			return fmt.Errorf("event %d: %w; it may be of a newer version of kitbag", raw.Seq, err)
		}
		// What a forked session has from before its first event is in its State only.
		if f.first(raw.Record) {
			if err := f.fromState(ctx, store, id, raw.Record-1); err != nil && !errors.Is(err, session.ErrGone) {
				return err
			}
		}
		f.mu.Lock()
		f.t.add(ev, raw.Seq, raw.Record)
		f.seq = raw.Seq
		f.announce()
		f.mu.Unlock()
		// While a run works, its events are read in batches, since waking this process for each would cost more than to read
		// it. If the run is in this process, its events are decoded already.
		now := time.Now()
		if decode = decodeStored; now.Sub(ev.Head().Time) < listEvery {
			decode = session.Event.Decode
			if now.Sub(woke) > quiet {
				pause(ctx, 2*rowsEvery)
				woke = time.Now()
			}
		}
	}
	return nil
}

// toolResult matches the beginning of a tool_result as package event encodes it.
var toolResult = regexp.MustCompile(`^{"seq":[0-9]+,"type":"tool_result",`)

// decodeStored is raw.Decode, but leaves out the Result of a tool, most of a long session. The timeline needs only its Text.
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

// eventsWithin is how long a store may take to yield the first event.
const eventsWithin = 200 * time.Millisecond

// first reports whether the event of this record is the first one, and something was stored before it.
func (f *feed) first(record int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seq == 0 && record > 1
}

// withoutEvents makes the timeline of a session that has no events.
func (f *feed) withoutEvents(ctx context.Context, store session.Store, id string) {
	r, ok := store.(session.Reader)
	f.mu.Lock()
	found := f.seq > 0
	f.mu.Unlock()
	if !ok || found {
		return
	}
	in, _, err := r.Read(ctx, id, 0)
	if err == nil && in.Event == 0 && in.Seq > 0 {
		err = f.fromState(ctx, store, id, 0)
	}
	if err != nil && ctx.Err() == nil {
		f.setErr(err)
	}
}

// fromState makes the timeline of the messages of a session's State after a record, 0 for the newest. Events
// follow these.
func (f *feed) fromState(ctx context.Context, store session.Store, id string, record int64) error {
	st, _, err := session.Read(ctx, store, id, record)
	if err != nil {
		return err
	}
	t := newTimeline(f.t.price)
	t.addMessages(st.Messages)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fromMessages = true
	if f.seq == 0 { // no event has come meanwhile
		f.t, f.sent = t, update{} // all rows are new
	}
	f.announce()
	return nil
}

// poll reads the State again and again, of a store that cannot be watched.
func (f *feed) poll(ctx context.Context, store session.Store, id string) error {
	r, ok := store.(session.Reader)
	if !ok {
		return errors.New("the store can neither be watched nor read while a session is open: there is no timeline")
	}
	ticker := time.NewTicker(listEvery)
	defer ticker.Stop()
	for last := int64(-1); ; {
		in, _, err := r.Read(ctx, id, 0)
		if err == nil && in.Seq != last {
			last = in.Seq
			err = f.fromState(ctx, store, id, 0)
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

// announce wakes those who wait for a change. The caller has locked f.
func (f *feed) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// An update tells pages what has changed.
type update struct {
	Reload  bool         `json:"reload,omitempty"` // all rows, and what else is shown
	From    int          `json:"from,omitempty"`   // many rows from this one on, which Rows does not have
	Total   int          `json:"total"`
	Rows    map[int]*row `json:"rows,omitempty"` // by index
	Problem string       `json:"problem"`
}

// maxUpdate is how many rows an update has.
const maxUpdate = 100

// update returns what has changed since it was last called.
func (f *feed) update() (u update, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u = update{Total: len(f.t.rows), Problem: f.problem(), Rows: map[int]*row{}}
	for i := range f.t.changed {
		c := *f.t.rows[i]
		u.Rows[i] = &c
	}
	if len(u.Rows) > maxUpdate {
		u.From, u.Rows = slices.Min(slices.Collect(maps.Keys(u.Rows))), map[int]*row{}
		u.Reload = u.From == 0
	}
	if u.Total < f.sent.Total || f.sent.Rows == nil {
		u.Reload, u.Rows = true, map[int]*row{}
	}
	changed = len(f.t.changed) > 0 || u.Reload || u.Problem != f.sent.Problem
	clear(f.t.changed)
	f.sent = u
	return u, changed
}

// problem returns why there will be no more rows. The caller has locked f.
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
	total   int
	rows    []row
	problem string          // why there will be no more
	next    <-chan struct{} // closed at the next change
}

// look returns n rows from the given one on, of the timeline of the sub-agent of the row at path of.
func (f *feed) look(of string, from, n int) (view, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := view{next: f.changed, rows: []row{}, problem: f.problem()}
	t := f.t
	if of != "" {
		r, err := t.at(of)
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

// A feed that has just begun to read is waited for: until there is enough, no event has come for quiet, or patience
// is at its end. The page is told of what comes later.
const (
	quiet    = 50 * time.Millisecond
	patience = 400 * time.Millisecond
)

// wait is look after such a wait. Enough is called with f locked.
func (f *feed) wait(ctx context.Context, of string, from, n int, enough func(view) bool) (view, error) {
	end := time.After(patience)
	for {
		v, err := f.look(of, from, n)
		f.mu.Lock()
		done := err != nil || v.problem != "" || enough(v)
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
			return v, nil
		case <-end:
			return v, nil
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}
