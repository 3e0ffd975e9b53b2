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
	return listed{ID: in.ID, Status: in.Status, Updated: in.Updated, Labels: in.Labels, Inputs: in.Inputs,
		summary: h.summary(ctx, in), Restart: h.resumed.state(in.ID)}
}

// summaries keeps what was read of States, by session.
type summaries struct {
	mu   sync.Mutex
	byID map[string]readSummary
}

type readSummary struct {
	summary
	seq  int64
	read time.Time
	took time.Duration
}

// maxSummaries is how many are kept.
const maxSummaries = 5000

// summary returns the summary of a session. That of one that works may be a little older than the session: to
// read a long one after each step would cost more than the step.
func (h *Handler) summary(ctx context.Context, in session.Info) summary {
	s := &h.summaries
	s.mu.Lock()
	old, ok := s.byID[in.ID]
	s.mu.Unlock()
	if ok && (old.seq == in.Seq || in.Status == session.StatusWorking && time.Since(old.read) < 20*old.took) {
		return old.summary
	}
	begin := time.Now()
	st, now, err := session.Read(ctx, h.store, in.ID, 0)
	if err != nil {
		return summary{Problem: err.Error()}
	}
	sum := h.summarize(st)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil || len(s.byID) >= maxSummaries {
		s.byID = map[string]readSummary{}
	}
	s.byID[in.ID] = readSummary{sum, now.Seq, time.Now(), time.Since(begin)}
	return sum
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
	if len(text) > 4*maxPreview {
		text = text[:4*maxPreview]
	}
	words := []rune(strings.Join(strings.Fields(visible.Text(text)), " "))
	if len(words) > maxPreview {
		return string(words[:maxPreview]) + "…"
	}
	return string(words)
}

// lists remembers which sessions there were, for all who look at the list.
type lists struct {
	mu      sync.Mutex
	checked time.Time
	version string
}

// listEvery is how often the list is looked at while a page is open.
const listEvery = time.Second

// listVersion returns a text that differs when the beginning of the list does.
func (h *Handler) listVersion(ctx context.Context) (string, error) {
	l := &h.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.checked) < listEvery/2 {
		return l.version, nil
	}
	page, err := h.store.List(ctx, session.Query{})
	if err != nil {
		return "", err
	}
	sum := fnv.New64a()
	for _, in := range page.Infos {
		fmt.Fprintln(sum, in.ID, in.Seq, in.Status, in.Inputs, in.Updated.UnixNano(), h.resumed.state(in.ID))
	}
	l.checked, l.version = time.Now(), fmt.Sprint(sum.Sum64())
	return l.version, nil
}
