package inspect

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A span is a number of successive requests with the same groups open, or of a session without groups with the same tools.
type span struct {
	Row      int           `json:"row"` // of the first request
	Step     int           `json:"step"`
	First    int           `json:"first"` // its number
	Requests int           `json:"requests"`
	Tools    int           `json:"tools"`
	Bytes    int           `json:"bytes"` // of the list of tools, in the first request
	Digest   string        `json:"digest,omitempty"`
	Groups   []event.Group `json:"groups"`

	basic int // bytes of tools that are in no group, without control tools
}

// addSpan notes the groups of a request, if they have changed. Without groups it notes the list of tools.
func (l *ledger) addSpan(ev *event.ModelStart, r *request) {
	if n := len(l.spans); n > 0 {
		last := &l.spans[n-1]
		alike := func(a, b event.Group) bool { a.By = b.By; return a == b }
		if ev.Groups == nil && (len(last.Groups) > 0 || last.Digest == r.Digest) ||
			len(ev.Groups) > 0 && slices.EqualFunc(ev.Groups, last.Groups, alike) { // the first request of a process has all groups
			last.Requests++
			return
		}
	}
	s := span{Row: r.Row, Step: r.Step, First: len(l.requests), Requests: 1, Tools: r.Tools, Digest: r.Digest, Groups: append([]event.Group{}, ev.Groups...)}
	for _, p := range l.parts {
		size := 0
		switch p.Kind {
		case "tool":
			size = frame + p.Bytes
		case "change": // a change of the tools at the end of the conversation
			size = frame*strings.Count(" "+p.Name, " +") + p.Bytes
		}
		s.Bytes += size
		if !isControl(p.Name) {
			s.basic += size
		}
	}
	for _, g := range ev.Groups {
		if g.Open {
			s.basic -= g.Bytes
		}
	}
	s.basic = max(s.basic, 0) // a tool may be in several open groups
	l.spans = append(l.spans, s)
}

// frame is what [toolkit.Cost] counts for a definition besides its name, description and schema.
const frame = len(`{"type":"function","function":{"name":"","description":"","parameters":}},`)

// isControl reports whether a tool opens groups, by the names of those of package toolkit.
func isControl(name string) bool {
	return slices.Contains([]string{"reset_tools", "enable_tools", "disable_tools", "search_tools", "describe_tools", "call_tool"}, name) ||
		strings.HasSuffix(name, "_activate") || strings.HasSuffix(name, "_deactivate")
}

// A styleCost is what the lists of tools of a session cost, or would have cost in a style.
type styleCost struct {
	Style   string `json:"style"`
	Bytes   int    `json:"bytes"`   // of the lists of all requests
	Changes int    `json:"changes"` // of the list, after each of which the provider's cache has nothing
}

// styles are the ways to open groups that are compared.
var styles = []struct {
	name    string
	control *toolkit.Control
	opens   bool // what is open is in the list
}{
	{"reset", toolkit.ResetTools(nil), true}, {"enable", toolkit.EnableDisable(), true}, {"per-group", toolkit.PerGroup(), true},
	{"discover", toolkit.Discover(), false}, {"full", new(toolkit.Control), true},
}

// showGroups serves which groups were open, and what other styles, or other groups, would have cost.
func (h *Handler) showGroups(r *http.Request, id string) (any, error) {
	f, release, err := h.wholeFeed(r.Context(), id)
	if err != nil {
		return nil, err
	}
	defer release()
	f.mu.Lock()
	spans, total, problem := append([]span{}, f.timeline.ledger.spans...), len(f.timeline.ledger.requests), f.problem()
	f.mu.Unlock()
	open, fixed := r.URL.Query()["open"]
	other := []styleCost{}
	for i := range styles {
		c, err := costOf(r.Context(), i, spans, open, fixed)
		if err != nil {
			problem = "Other styles cannot be computed: " + err.Error()
			break
		}
		other = append(other, c)
	}
	was := styleCost{Style: "as it was", Changes: max(len(spans)-1, 0)}
	for _, s := range spans {
		was.Bytes += s.Requests * s.Bytes
	}
	return map[string]any{"total": total, "spans": spans, "was": was, "styles": other, "problem": problem}, nil
}

// costOf returns the cost of a style, with the groups that were open, or always with others.
func costOf(ctx context.Context, style int, spans []span, open []string, fixed bool) (styleCost, error) {
	st := styles[style]
	out := styleCost{Style: st.name}
	last, lastOpen := -1, ""
	known := map[string]int{} // sizes of control tools
	for _, s := range spans {
		var names []string
		list := s.basic
		for _, g := range s.Groups {
			if g.Open && !fixed || fixed && slices.Contains(open, g.Name) || st.name == "full" {
				names = append(names, g.Name)
				if st.opens {
					list += g.Bytes
				}
			}
		}
		of := ""
		if st.name == "enable" { // its descriptions depend on what is open
			of = strings.Join(names, " ")
		}
		for _, g := range s.Groups {
			of += fmt.Sprintf("\n%s %d", g.Name, g.About)
		}
		if _, ok := known[of]; !ok {
			var err error
			if known[of], err = controlBytes(ctx, st.control, s.Groups, names); err != nil {
				return out, err
			}
		}
		list += known[of]
		out.Bytes += s.Requests * list
		now := strings.Join(names, " ")
		if last >= 0 && (list != last || st.opens && now != lastOpen) {
			out.Changes++
		}
		last, lastOpen = list, now
	}
	return out, nil
}

// controlBytes returns the size of the tools with which a model opens these groups. Their descriptions were not
// stored, only their lengths.
func controlBytes(ctx context.Context, control *toolkit.Control, groups []event.Group, open []string) (int, error) {
	cfg := toolkit.Config{Control: control}
	for _, g := range groups {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: strings.Repeat("x", min(max(g.About-len(g.Name), 1), 1<<16)),
			Sources: []tool.Source{none{}}})
	}
	tk, err := toolkit.New(cfg)
	if err != nil {
		return 0, err
	}
	var scope toolkit.Scope
	if _, err := tk.Set(ctx, &scope, open...); err != nil {
		return 0, err
	}
	v, err := tk.View(ctx, &scope)
	if err != nil {
		return 0, err
	}
	return v.Cost().Total.Bytes, nil
}

// none is a source without tools.
type none struct{}

func (none) Tools(context.Context) ([]tool.Tool, error) { return nil, nil }
