package inspect

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/message"
)

const (
	listSize   = 50   // sessions on a page of the list
	searchSize = 2000 // sessions that a search looks at, the last stored first
)

// A listed is a session in the list.
type listed struct {
	ID      string            `json:"id"`
	Status  session.Status    `json:"status"`
	Updated time.Time         `json:"updated"`
	Labels  map[string]string `json:"labels,omitempty"`
	Inputs  int               `json:"inputs,omitempty"` // that wait to be taken
	summary
	Restart string `json:"restart,omitempty"` // what became of running it again: "running", or an error
}

// A summary is what the list needs of a State.
type summary struct {
	Title     string        `json:"title"`
	Usage     message.Usage `json:"usage"`
	Cost      float64       `json:"cost,omitempty"`      // in US dollars
	Unpriced  bool          `json:"unpriced,omitempty"`  // the price of some tokens is not known
	Questions int           `json:"questions,omitempty"` // that wait for an answer
	Problem   string        `json:"problem,omitempty"`   // why the State cannot be read
}

// live are the statuses of sessions that come first in the list.
var live = []session.Status{session.StatusWorking, session.StatusWaiting}

// listSessions serves a page of the list, or what a search finds.
func (h *Handler) listSessions(r *http.Request) (any, error) {
	type result struct {
		Sessions []listed `json:"sessions"`
		Next     string   `json:"next"`
	}
	ctx, after := r.Context(), r.FormValue("after")
	if q := strings.ToLower(r.FormValue("q")); q != "" {
		found, err := h.search(ctx, q)
		return result{Sessions: found}, err
	}
	out := result{Sessions: []listed{}}
	if after == "" {
		first, err := h.store.List(ctx, session.Query{Status: live, Limit: listSize})
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(first.Infos, func(a, b session.Info) int {
			return cmp.Compare(slices.Index(live, a.Status), slices.Index(live, b.Status))
		})
		out.Sessions = h.entries(ctx, first.Infos)
	}
	rest, err := h.store.List(ctx, session.Query{Limit: listSize, After: after})
	if err != nil {
		return nil, err
	}
	for _, in := range h.entries(ctx, rest.Infos) {
		if !slices.ContainsFunc(out.Sessions, func(l listed) bool { return l.ID == in.ID }) {
			out.Sessions = append(out.Sessions, in)
		}
	}
	out.Next = rest.Next
	return out, nil
}

// search returns the sessions whose id, labels, status or first message contains q.
func (h *Handler) search(ctx context.Context, q string) ([]listed, error) {
	found := []listed{}
	query := session.Query{Limit: 500}
	for n := 0; n < searchSize && len(found) < 4*listSize; {
		page, err := h.store.List(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, in := range page.Infos {
			l := h.entry(ctx, in)
			texts := []string{l.ID, string(l.Status), l.Title}
			for k, v := range l.Labels {
				texts = append(texts, k+"="+v)
			}
			if contains(q, texts...) {
				found = append(found, l)
			}
		}
		n += len(page.Infos)
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	return found, nil
}

func (h *Handler) entries(ctx context.Context, infos []session.Info) []listed {
	out := []listed{}
	for _, in := range infos {
		out = append(out, h.entry(ctx, in))
	}
	return out
}

func (h *Handler) entry(ctx context.Context, in session.Info) listed {
	d, _, _ := h.digest(ctx, in) // it has the problem
	return h.listed(in, d)
}

func (h *Handler) listed(in session.Info, d digest) listed {
	return listed{ID: in.ID, Status: in.Status, Updated: in.Updated, Labels: in.Labels, Inputs: in.Inputs,
		summary: d.summary, Restart: h.resumed.state(in.ID)}
}

// A digest is what the page needs of a State.
type digest struct {
	summary
	about
}

// An about is what only the page of a session shows.
type about struct {
	Waiting []question `json:"waiting"`
	Rules   []string   `json:"rules,omitempty"` // accepted in this conversation
	Notes   []string   `json:"notes,omitempty"` // how it is stored
}

// digests keeps what was read of States, by session.
type digests struct {
	mu   sync.Mutex
	byID map[string]readDigest
}

type readDigest struct {
	digest
	of   session.Info
	read time.Time
	took time.Duration
}

// maxDigests is how many are kept.
const maxDigests = 5000

// digest returns the digest of a session. That of one that works may be a little older than the session, and is not
// fresh then: to read a long one after each step would cost more than the step.
func (h *Handler) digest(ctx context.Context, in session.Info) (d digest, fresh bool, err error) {
	all := &h.digests
	all.mu.Lock()
	old, ok := all.byID[in.ID]
	all.mu.Unlock()
	if ok && old.of.Seq == in.Seq && old.of.Inputs == in.Inputs && old.of.Updated.Equal(in.Updated) { // another session may have had the id
		return old.digest, true, nil
	}
	if ok && in.Status == session.StatusWorking && time.Since(old.read) < min(max(2*busyEvery, 5000*old.took), time.Minute) {
		if old.of.Status == session.StatusWaiting { // its questions were answered
			old.Waiting, old.Questions = []question{}, 0
		}
		return old.digest, false, nil
	}
	begin := time.Now()
	st, now, err := session.Read(ctx, h.store, in.ID, 0)
	if err != nil {
		return digest{summary: summary{Problem: err.Error()}}, false, err
	}
	d = digest{h.summarize(st), about{h.questions(ctx, in.ID, st), ruleTexts(st.Rules), h.notes(now, st)}}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byID == nil || len(all.byID) >= maxDigests {
		all.byID = map[string]readDigest{}
	}
	all.byID[in.ID] = readDigest{d, now, time.Now(), time.Since(begin)}
	return d, true, nil
}

// summarize makes the summary of a State. Tokens of messages that a compaction has replaced are
// counted at the price of the newest model.
func (h *Handler) summarize(st *agent.State) summary {
	sum := summary{Title: title(st), Usage: st.Usage, Questions: len(st.Pending())}
	rest, model := st.Usage, ""
	add := func(u message.Usage) {
		cost, ok := h.opts.Price(model, u)
		sum.Cost += cost
		sum.Unpriced = sum.Unpriced || !ok
	}
	for _, m := range st.Messages {
		if u := m.Usage; u != nil {
			model = m.Model
			add(*u)
			rest = message.Usage{Input: rest.Input - u.Input, Output: rest.Output - u.Output, Cached: rest.Cached - u.Cached,
				CacheWrite: rest.CacheWrite - u.CacheWrite, Reasoning: rest.Reasoning - u.Reasoning}
		}
	}
	if rest.Input > 0 || rest.Output > 0 {
		add(rest)
	}
	return sum
}

// title returns the beginning of the first message of the user.
func title(st *agent.State) string {
	for _, m := range st.Messages {
		if m.Role == message.RoleUser && m.Text() != "" {
			return preview(m.Text())
		}
	}
	return ""
}

// maxPreview is how many characters of a text a row or the list shows.
const maxPreview = 200

// preview returns the beginning of a text on one line.
func preview(text string) string {
	words := []rune(strings.Join(strings.Fields(visible.Text(visible.Cut(text, 4*maxPreview, "…"))), " "))
	if len(words) > maxPreview {
		return string(words[:maxPreview]) + "…"
	}
	return string(words)
}

// listVersion returns a text that differs when the beginning of the list does.
func (h *Handler) listVersion(ctx context.Context) (string, error) {
	page, err := h.store.List(ctx, session.Query{})
	sum := fnv.New64a()
	for _, in := range page.Infos {
		fmt.Fprintln(sum, in.ID, in.Seq, in.Status, in.Inputs, in.Updated.UnixNano(), h.resumed.state(in.ID))
	}
	return fmt.Sprint(sum.Sum64()), err
}
