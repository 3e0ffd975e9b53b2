package inspect

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
)

// A request is a model call in the ledger of the prompt cache.
type request struct {
	Row    int       `json:"row"`
	Step   int       `json:"step"`
	Start  time.Time `json:"start"`
	Model  string    `json:"model,omitempty"`
	Tools  int       `json:"tools"`
	Shown  []string  `json:"shown,omitempty"` // changes of the list of tools: +added, -removed, ~redefined
	Digest string    `json:"digest,omitempty"`

	// Bytes of the parts as the agent has them; a provider writes them differently.
	ToolBytes   int `json:"tool_bytes"`
	SystemBytes int `json:"system_bytes"`
	Bytes       int `json:"bytes"`
	Same        int `json:"same"` // bytes at its beginning that are those of the previous request

	Usage message.Usage `json:"usage"`
	Cause string        `json:"cause,omitempty"` // why the provider's cache did not have all of the previous request
	Lost  int           `json:"lost,omitempty"`  // tokens of the previous request that were not in the cache, and are billed again
	Cost  float64       `json:"cost,omitempty"`  // of that, in US dollars
}

// A ledger follows the requests of a conversation.
type ledger struct {
	requests []*request
	spans    []span
	parts    []event.Part // of the last request
	pending  *pending     // the request that has no answer yet
	interim  interim
	caches   bool // the provider has reported a cached token
	lost     int
	cost     float64
}

// pending is a request until its answer comes.
type pending struct {
	request *request
	message string
	before  []event.Part
	after   []event.Part
	interim interim
}

// An interim is what happened between the previous request and this one.
type interim struct {
	compaction *event.Compaction
	prev       *request
}

// expiry is how long providers keep a prompt that is not used, at least.
const expiry = 5 * time.Minute

// smallest is the number of tokens below which providers cache nothing.
const smallest = 1024

// add takes what the ledger needs of an event. Row is that of the event.
func (l *ledger) add(ev event.Event, row int, price func(string, message.Usage) (float64, bool)) {
	switch ev := ev.(type) {
	case *event.ModelStart:
		l.begin(ev, row)
	case *event.Compaction:
		l.interim.compaction = ev
	case *event.Message:
		if p := l.pending; p != nil && ev.Message != nil && ev.Message.ID == p.message {
			l.pending = nil
			l.finish(p, ev.Message, price)
		}
	}
}

// begin adds a request. Its parts are not known in sessions of old versions, and if the store has dropped earlier events;
// then it has no cause.
func (l *ledger) begin(ev *event.ModelStart, row int) {
	r := &request{Row: row, Step: ev.Step, Start: ev.Time, Model: ev.Model, Tools: ev.Tools, Digest: ev.Digest}
	before := l.parts
	if ev.Same >= 0 && ev.Same <= len(before) && len(ev.Parts)+ev.Same > 0 {
		same := before[:ev.Same]
		if len(same) < len(before) {
			same = slices.Clip(same) // what follows in before stays
		}
		l.parts = append(same, ev.Parts...)
	} else {
		l.parts = nil
	}
	for _, p := range l.parts {
		switch p.Kind {
		case "tool", "change":
			r.ToolBytes += p.Bytes
		case "system":
			r.SystemBytes += p.Bytes
		}
		r.Bytes += p.Bytes
	}
	for _, p := range before[:firstDifference(before, l.parts)] {
		r.Same += p.Bytes
	}
	if len(l.requests) > 0 {
		r.Shown = toolChanges(toolsOf(before), toolsOf(l.parts))
		l.interim.prev = l.requests[len(l.requests)-1]
	}
	l.addSpan(ev, r)
	l.requests = append(l.requests, r)
	l.pending = &pending{r, ev.Message, before, l.parts, l.interim}
	l.interim = interim{}
}

// finish compares what the provider says was cached with what could have been.
func (l *ledger) finish(p *pending, m *message.Message, price func(string, message.Usage) (float64, bool)) {
	r := p.request
	if m.Model != "" {
		r.Model = m.Model
	}
	if m.Usage == nil {
		return
	}
	r.Usage = *m.Usage
	l.caches = l.caches || r.Usage.Cached > 0
	prev := p.interim.prev
	if prev == nil || len(p.after) == 0 {
		if prev == nil {
			r.Cause = "first request"
		}
		return
	}
	cacheable := min(prev.Usage.Input, r.Usage.Input)
	r.Cause = cause(p, l.caches, cacheable)
	if cacheable >= smallest && r.Usage.Cached < cacheable && r.Cause != "" {
		r.Lost = cacheable - r.Usage.Cached
		full, ok := price(r.Model, message.Usage{Input: r.Lost})
		cached, _ := price(r.Model, message.Usage{Input: r.Lost, Cached: r.Lost})
		if ok {
			r.Cost = full - cached
		}
		l.lost, l.cost = l.lost+r.Lost, l.cost+r.Cost
	}
}

// maxRequests is how many requests an HTTP response has.
const maxRequests = 500

// showRequests serves a part of the ledger.
func (h *Handler) showRequests(r *http.Request, id string) (any, error) {
	from, err := strconv.Atoi(r.FormValue("from"))
	if err != nil || from < 0 {
		return nil, badRequest("from must be the number of a request")
	}
	f, release := h.feed(id)
	defer release()
	v, err := f.wait(r.Context(), "", 0, 0, func(view) bool { return len(f.timeline.ledger.requests)-maxRequests >= from })
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l, list := &f.timeline.ledger, []request{}
	rest := l.requests[min(from, len(l.requests)):]
	for _, q := range rest[:min(maxRequests, len(rest))] {
		list = append(list, *q)
	}
	return map[string]any{"total": len(l.requests), "requests": list, "lost": l.lost, "cost": l.cost, "problem": v.problem}, nil
}
