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

// A hub sends server-sent events to all pages that show the same view. An event is encoded once, and one goroutine writes it to
// all pages, since waking one for each page costs more. The function that makes the events runs only while there are pages.
type hub struct {
	mu    sync.Mutex // held while events are written, so that the responses last as long
	pages map[*page]bool
	stop  context.CancelFunc
}

// A page is a response to which events are written.
type page struct {
	w    http.ResponseWriter
	gone context.CancelFunc // called when it takes no more
}

// maxWrite is how long a page may take to accept an event. Then it must connect again, and loads all.
const maxWrite = time.Second

// join adds a page, which is told to load all. The first one starts run, which ends after the last one has left.
func (b *hub) join(h *Handler, p *page, kind string, run func(context.Context)) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pages) == 0 {
		var ctx context.Context
		ctx, b.stop = context.WithCancel(h.ctx)
		b.pages = map[*page]bool{}
		h.start(func() { run(ctx) })
	}
	b.pages[p] = true
	p.write(encode(kind, update{Reload: true}))
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.pages, p); len(b.pages) == 0 {
			b.stop()
		}
	}
}

// encode returns a server-sent event.
func encode(kind string, data any) []byte {
	text, _ := json.Marshal(data) // values of this package always encode
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, text)
}

// send sends an event to all pages, and returns their number.
func (b *hub) send(kind string, data any) int {
	ev := encode(kind, data)
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.pages {
		p.write(ev)
	}
	return len(b.pages)
}

func (p *page) write(ev []byte) {
	out := http.NewResponseController(p.w)
	_ = out.SetWriteDeadline(time.Now().Add(maxWrite)) // not every ResponseWriter has one
	_, err := p.w.Write(ev)
	if errors.Join(err, out.Flush()) != nil {
		p.gone()
	}
	_ = out.SetWriteDeadline(time.Time{})
}

// How often the list, a session and its rows are checked for changes while pages show them. The more rows have changed and
// the more pages show them, the later the next ones are sent: no one reads many at a time, and writing to a page costs more than
// to make its rows. While rows change, the rest of a session is checked less often: it changes little, and reading it would cost
// more than a step.
const (
	listEvery = time.Second
	rowsEvery = 250 * time.Millisecond // up to rowsLate
	rowsLate  = 2 * time.Second        // of a session that 10 pages show
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
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Transfer-Encoding", "identity") // one write for an event, where chunks need three
	defer b.join(h, &page{w, cancel}, first, run)()
	<-ctx.Done()
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
	f.takeUpdate() // the pages load what there is
	wait, busy := rowsEvery, false
	for last := ""; pause(ctx, wait); {
		every := listEvery
		wait = rowsEvery
		if u, changed := f.takeUpdate(); changed {
			pages := f.hub.send("rows", u)
			wait = max(rowsEvery, min(time.Duration(len(u.Rows))*rowsEvery/10, listEvery), min(time.Duration(pages)*rowsLate/10, rowsLate))
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
