package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

// A hub sends server-sent events to all pages that show the same. Each is encoded once. What makes the events runs only
// while there are pages.
type hub struct {
	mu     sync.Mutex
	events [][]byte // the last ones, at most maxBehind
	count  int      // of all events
	more   chan struct{}
	pages  int
	stop   context.CancelFunc
}

// maxBehind is how many events a page may be behind before it is told to load all again.
const maxBehind = 16

// join adds a page. The first one starts run, which ends after the last one has left.
func (b *hub) join(h *Handler, run func(context.Context)) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pages++; b.pages == 1 {
		var ctx context.Context
		ctx, b.stop = context.WithCancel(h.ctx)
		h.start(func() { run(ctx) })
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.pages--; b.pages == 0 {
			b.stop()
		}
	}
}

// encode returns a server-sent event.
func encode(kind string, data any) ([]byte, error) {
	text, err := json.Marshal(data)
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, text), err
}

func (b *hub) send(kind string, data any) {
	ev, err := encode(kind, data)
	if err != nil {
		return // values of this package always encode
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events[max(0, len(b.events)-maxBehind+1):], ev)
	b.count++
	if b.more != nil {
		close(b.more)
		b.more = nil
	}
}

// after returns the events after the first n, how many there are now, and a channel that is closed at the next one. It
// returns ok false if some are no longer known.
func (b *hub) after(n int) (events [][]byte, now int, more <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.more == nil {
		b.more = make(chan struct{})
	}
	if missing := b.count - n; missing <= len(b.events) {
		events, ok = b.events[len(b.events)-missing:], true
	}
	return events, b.count, b.more, ok
}

// How often it is looked whether the list, a session and its rows have changed, while pages show them. The more rows have
// changed, the later the next ones are sent: nobody reads many at a time. As long as they change, what else is shown of a
// session changes little, and would cost more than a step.
const (
	listEvery = time.Second
	rowsEvery = 250 * time.Millisecond // up to listEvery
	busyEvery = 5 * time.Second
)

// live sends server-sent events as long as the page is shown.
func (h *Handler) live(w http.ResponseWriter, r *http.Request) {
	b, run, first := &h.list, h.runList, "list"
	if id := r.FormValue("session"); id != "" {
		if err := session.CheckID(id); err != nil {
			writeError(w, badRequest(err.Error()))
			return
		}
		f, release := h.feed(id)
		defer release()
		b, run, first = &f.hub, func(ctx context.Context) { h.runSession(ctx, f, id) }, "rows"
	}
	defer b.join(h, run)()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	w.Header().Set("Content-Type", "text/event-stream")
	h.stream(ctx, w, b, first)
}

// stream writes the events of b until ctx ends or the browser has gone. The first one makes the page load all.
func (h *Handler) stream(ctx context.Context, w http.ResponseWriter, b *hub, first string) {
	all, err := encode(first, update{Reload: true})
	out := http.NewResponseController(w)
	_, n, more, _ := b.after(0)
	events := [][]byte{all}
	for err == nil {
		for _, ev := range events {
			if err == nil {
				_, err = w.Write(ev)
			}
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
		var ok bool
		if events, n, more, ok = b.after(n); !ok {
			events = [][]byte{all}
		}
	}
}

// runList sends an event when the beginning of the list has changed.
func (h *Handler) runList(ctx context.Context) {
	for last := ""; pause(ctx, listEvery); {
		if now, err := h.listVersion(ctx); err == nil && now != last {
			last = now
			h.list.send("list", update{})
		}
	}
}

// runSession sends events when rows of a session, or the session itself, have changed.
func (h *Handler) runSession(ctx context.Context, f *feed, id string) {
	var checked time.Time
	f.update() // the pages load what there is
	wait, busy := rowsEvery, false
	for last := ""; pause(ctx, wait); {
		every := listEvery
		wait = rowsEvery
		if u, changed := f.update(); changed {
			f.hub.send("rows", u)
			wait = min(max(rowsEvery, time.Duration(len(u.Rows))*rowsEvery/10), listEvery)
			if busy {
				every = busyEvery
			}
		}
		if time.Since(checked) < every {
			continue
		}
		checked = time.Now()
		in, err := h.info(ctx, id)
		if err != nil {
			continue // the timeline has the reason
		}
		busy = in.Status == session.StatusWorking
		if now := fmt.Sprint(in.Seq, in.Status, in.Inputs, h.resumed.state(id)); now != last {
			if s, fresh, err := h.show(ctx, in); err == nil {
				if fresh {
					last = now
				}
				f.hub.send("session", s)
			}
		}
	}
}

// pause waits, and returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
