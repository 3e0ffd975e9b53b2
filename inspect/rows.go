package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

const (
	maxRows    = 500     // in an answer
	maxDetails = 2 << 20 // bytes of events in an answer
)

// showSession serves what is known of one session.
func (h *Handler) showSession(r *http.Request) (any, error) {
	id, err := sessionID(r)
	if err != nil {
		return nil, err
	}
	st, in, err := session.Read(r.Context(), h.store, id, 0)
	if err != nil {
		return nil, err
	}
	return struct {
		listed
		Waiting []question `json:"waiting"`
		Rules   []string   `json:"rules,omitempty"` // accepted in this conversation
		Resumes bool       `json:"resumes"`         // this handler can run it
	}{
		listed: listed{ID: in.ID, Status: in.Status, Updated: in.Updated, Labels: in.Labels, Inputs: in.Inputs,
			summary: h.summarize(st), Restart: h.resumed.state(in.ID)},
		Waiting: h.questions(r.Context(), id, st), Rules: ruleTexts(st.Rules), Resumes: h.opts.Resume != nil,
	}, nil
}

// showRows serves a part of a timeline.
func (h *Handler) showRows(r *http.Request) (any, error) {
	id, err := sessionID(r)
	if err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(r.FormValue("from")) // the first one
	n, err := strconv.Atoi(r.FormValue("n"))
	if err != nil || n < 0 || n > maxRows {
		return nil, badRequest(fmt.Sprintf("n must be a number of rows up to %d", maxRows))
	}
	f, release := h.feed(id)
	defer release()
	v, err := f.wait(r.Context(), r.FormValue("of"), from, n, func(v view) bool { return len(v.rows) == n })
	return map[string]any{"total": v.total, "rows": v.rows, "problem": v.problem}, err
}

// findRow serves the index of the next row, from the given one on, in whose events a text occurs.
func (h *Handler) findRow(r *http.Request) (any, error) {
	id, err := sessionID(r)
	if err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(r.FormValue("from")) // the first one
	quoted, err := json.Marshal(strings.ToLower(r.FormValue("q")))
	if err != nil {
		return nil, err
	}
	q := quoted[1 : len(quoted)-1] // as it is written in an event
	f, release := h.feed(id)
	defer release()
	f.mu.Lock()
	rowOf, last := map[int64]int{}, f.seq
	at := -1
	for i, row := range f.t.rows {
		for _, seq := range row.events {
			rowOf[seq] = i
		}
		if at < 0 && i >= from && contains(strings.ToLower(r.FormValue("q")), row.Name, row.Text, row.Why, row.Fault) {
			at = i
		}
	}
	f.mu.Unlock()
	err = h.events(r.Context(), id, 0, last, func(ev session.Event) bool {
		i, ok := rowOf[ev.Seq]
		if ok && i >= from && (at < 0 || i < at) && bytes.Contains(bytes.ToLower(ev.Data), q) {
			at = i
		}
		return true
	})
	return map[string]int{"row": at}, err
}

// showDetails serves the events of a row, or its messages if it has none.
func (h *Handler) showDetails(r *http.Request) (any, error) {
	id, err := sessionID(r)
	if err != nil {
		return nil, err
	}
	f, release := h.feed(id)
	defer release()
	f.mu.Lock()
	row, err := f.t.at(r.FormValue("row"))
	var seqs []int64
	var detail any
	if err == nil {
		seqs, detail = append(seqs, row.events...), row.detail
	}
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if len(seqs) == 0 {
		return map[string]any{"events": []any{detail}}, nil
	}
	wanted := map[int64]bool{}
	for _, seq := range seqs {
		wanted[seq] = true
	}
	list, size, left := []json.RawMessage{}, 0, 0
	err = h.events(r.Context(), id, seqs[0]-1, seqs[len(seqs)-1], func(ev session.Event) bool {
		switch {
		case !wanted[ev.Seq]:
		case size+len(ev.Data) > maxDetails:
			left++
		default:
			list, size = append(list, bytes.Clone(ev.Data)), size+len(ev.Data)
		}
		return true
	})
	return map[string]any{"events": list, "left": left}, err
}

// events calls use with the stored events after one number up to another, until it returns false.
func (h *Handler) events(ctx context.Context, id string, after, last int64, use func(session.Event) bool) error {
	w, ok := h.store.(session.Watcher)
	if !ok || after >= last {
		return nil
	}
	for ev, err := range w.Watch(ctx, id, after) {
		if err != nil {
			return err
		}
		if ev.Seq > last || !use(ev) || ev.Seq == last {
			return nil
		}
	}
	return nil
}

// rowsEvery is the shortest time between two messages about changed rows.
const rowsEvery = 200 * time.Millisecond

// live sends server-sent events as long as the page is shown.
func (h *Handler) live(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind string, data any) error {
		text, err := json.Marshal(data)
		if err == nil {
			_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, text)
		}
		return errors.Join(err, out.Flush())
	}
	var f *feed
	if id := r.FormValue("session"); id != "" {
		if err := session.CheckID(id); err != nil {
			writeError(w, badRequest(err.Error()))
			return
		}
		var release func()
		f, release = h.feed(id)
		defer release()
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	h.stream(ctx, f, send)
}

// stream sends "list" and "rows" until ctx ends or the browser has gone.
func (h *Handler) stream(ctx context.Context, f *feed, send func(string, any) error) {
	listed, err := h.listVersion(ctx)
	if err = errors.Join(err, send("list", map[string]string{"version": listed})); err != nil {
		return
	}
	ticker := time.NewTicker(listEvery)
	defer ticker.Stop()
	for {
		var next <-chan struct{}
		if f != nil {
			v, err := f.look("", 0, 0)
			if err != nil || send("rows", map[string]any{"total": v.total, "problem": v.problem}) != nil || !pause(ctx, rowsEvery) {
				return
			}
			next = v.next
		}
		for changed := false; !changed; {
			select {
			case <-ctx.Done():
				return
			case <-next:
				changed = true
			case <-ticker.C:
				version, err := h.listVersion(ctx)
				if err == nil && version != listed {
					listed = version
					err = send("list", map[string]string{"version": version})
				}
				if err != nil {
					return // the page connects again
				}
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
