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

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
)

const (
	maxRows    = 500     // in an answer
	maxDetails = 2 << 20 // bytes of events in an answer
)

// showSession serves what is known of one session.
func (h *Handler) showSession(r *http.Request, id string) (any, error) {
	in, err := h.info(r.Context(), id)
	if err != nil {
		return nil, err
	}
	out, _, err := h.show(r.Context(), in)
	return out, err
}

// A shown is a session as its page shows it.
type shown struct {
	listed
	about
	Resumes bool `json:"resumes"` // this handler can run it
}

// show returns what is known of a session. If it works, that may be a little old, and then not fresh.
func (h *Handler) show(ctx context.Context, in session.Info) (out shown, fresh bool, err error) {
	d, fresh, err := h.digest(ctx, in)
	return shown{h.listed(in, d), d.about, h.opts.Resume != nil}, fresh, err
}

// info returns the Info of a session.
func (h *Handler) info(ctx context.Context, id string) (session.Info, error) {
	page, err := h.store.List(ctx, session.Query{ID: id})
	if err != nil || len(page.Infos) > 0 {
		return append(page.Infos, session.Info{})[0], err
	}
	_, in, err := session.Read(ctx, h.store, id, 0) // it has the reason
	return in, err
}

// sealedNote is what a sealed session loses.
const sealedNote = "The session is sealed with a key that only its program has. It cannot be copied here, as the copy would need another seal, and an export has none."

// notes says how a session is stored, and what copies and exports lose by that.
func (h *Handler) notes(in session.Info, st *agent.State) (out []string) {
	if h.opts.Note != nil {
		out = append(out, h.opts.Note(in))
	}
	if isSealed(st) {
		out = append(out, sealedNote)
	}
	kept, err := storedIn(st)
	if _, bad := kept.variant(); err != nil || bad != nil {
		out = append(out, "How this copy must run cannot be read, so it does not run: "+errors.Join(err, bad).Error())
	} else if text := kept.note(); text != "" {
		out = append(out, text)
	}
	return out
}

// isSealed reports whether a State has a seal of [agent.Config.Key].
func isSealed(st *agent.State) bool {
	var rest struct{ Seal string }
	data, err := st.MarshalFrom(len(st.Messages))
	return err == nil && json.Unmarshal(data, &rest) == nil && rest.Seal != ""
}

// showRows serves a part of a timeline.
func (h *Handler) showRows(r *http.Request, id string) (any, error) {
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
func (h *Handler) findRow(r *http.Request, id string) (any, error) {
	from, _ := strconv.Atoi(r.FormValue("from")) // the first one
	quoted, err := json.Marshal(strings.ToLower(r.FormValue("q")))
	if err != nil {
		return nil, err
	}
	q := quoted[1 : len(quoted)-1] // as it is written in an event
	f, release, err := h.wholeFeed(r.Context(), id)
	if err != nil {
		return nil, err
	}
	defer release()
	f.mu.Lock()
	rowOf, after, last := map[int64]int{}, f.dropped, f.seq
	at := -1
	for i, row := range f.timeline.rows {
		for _, seq := range row.events {
			rowOf[seq] = i
		}
		if at < 0 && i >= from && contains(strings.ToLower(r.FormValue("q")), row.Name, row.Text, row.Why, row.Fault) {
			at = i
		}
	}
	f.mu.Unlock()
	err = h.events(r.Context(), id, after, last, func(ev session.Event) bool {
		i, ok := rowOf[ev.Seq]
		if ok && i >= from && (at < 0 || i < at) && bytes.Contains(bytes.ToLower(ev.Data), q) {
			at = i
		}
		return true
	})
	return map[string]int{"row": at}, err
}

// showDetails serves the events of a row, or its messages if it has none.
func (h *Handler) showDetails(r *http.Request, id string) (any, error) {
	f, release := h.feed(id)
	defer release()
	path := r.FormValue("row")
	if _, err := f.wait(r.Context(), path, 0, 0, func(view) bool { return true }); err != nil {
		return nil, err
	}
	f.mu.Lock()
	row, err := f.timeline.at(path)
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
