package inspect

import (
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// A pair is two rows side by side, one of each session. A or B may be nil.
type pair struct {
	A    *row `json:"a,omitempty"`
	B    *row `json:"b,omitempty"`
	Same bool `json:"same,omitempty"` // A and B are alike
}

// A sum is what a session has done and cost.
type sum struct {
	Title  string        `json:"title"`
	Rows   int           `json:"rows"`
	Models int           `json:"models"` // model calls
	Tools  int           `json:"tools"`  // tool calls
	Faults int           `json:"faults"` // rows with an error
	Usage  message.Usage `json:"usage"`
	Cost   float64       `json:"cost"` // in US dollars
	Took   time.Duration `json:"took"` // the sum of the durations of model and tool calls
}

const (
	maxPairs    = 500 // in an HTTP response
	contextRows = 10  // alike rows that are shown before the first difference
)

// compare serves two timelines side by side, from a little before the first difference.
func (h *Handler) compare(r *http.Request, id string) (any, error) {
	other := r.FormValue("with")
	if err := session.CheckID(other); err != nil {
		return nil, badRequest(err.Error())
	}
	var rows [2][]row
	var sums [2]sum
	for i, id := range []string{id, other} {
		var err error
		if rows[i], err = h.allRows(r, id); err != nil {
			return nil, err
		}
		sums[i] = sumOf(rows[i])
	}
	firstDiff := 0
	for firstDiff < min(len(rows[0]), len(rows[1])) && alike(&rows[0][firstDiff], &rows[1][firstDiff]) {
		firstDiff++
	}
	skipped := max(0, firstDiff-contextRows)
	pairs := align(rows[0][skipped:], rows[1][skipped:])
	more := max(0, len(pairs)-maxPairs)
	return map[string]any{"sums": sums, "skipped": skipped, "pairs": pairs[:len(pairs)-more], "more": more}, nil
}

// allRows returns the whole timeline of a session.
func (h *Handler) allRows(r *http.Request, id string) ([]row, error) {
	f, release, err := h.wholeFeed(r.Context(), id)
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := f.look("", 0, math.MaxInt)
	return v.rows, err
}

func sumOf(rows []row) sum {
	s := sum{Rows: len(rows)}
	for _, r := range rows {
		switch r.Kind {
		case kindModel:
			s.Models++
		case kindTool:
			s.Tools++
		case kindUser:
			if s.Title == "" {
				s.Title = r.Text
			}
		}
		if r.Fault != "" {
			s.Faults++
		}
		if (r.Kind == kindModel || r.Kind == kindTool) && r.End.After(r.Start) {
			s.Took += r.End.Sub(r.Start)
		}
		s.Usage.Add(r.Usage)
		s.Cost += r.Cost
	}
	return s
}

// alike reports whether two rows have the same contents. A model call whose row was made from a message, without events,
// has no State, which may match any other.
func alike(a, b *row) bool {
	return a.Kind == b.Kind && a.Name == b.Name && a.Text == b.Text && a.Fault == b.Fault &&
		(a.State == b.State || a.Kind == kindModel && (a.State == "" || b.State == ""))
}

// maxAligned is how many rows of each session are aligned; later rows are paired in order.
const maxAligned = 1000

// align puts alike rows side by side, and where there are none, rows of the same kind and name. It finds the alignment
// with the highest sum of scores.
func align(a, b []row) []pair {
	out := []pair{}
	n, m := min(len(a), maxAligned), min(len(b), maxAligned)
	// best[i][j] is the highest sum of scores of a[i:n] and b[j:m].
	best := make([][]int, n+1)
	for i := range best {
		best[i] = make([]int, m+1)
	}
	score := func(x, y *row) int {
		switch {
		case alike(x, y):
			return 3
		case x.Kind == y.Kind && (x.Kind == kindModel || x.Name == y.Name):
			return 1
		}
		return 0
	}
	for i, x := range slices.Backward(a[:n]) {
		for j, y := range slices.Backward(b[:m]) {
			best[i][j] = max(best[i+1][j], best[i][j+1])
			if s := score(&x, &y); s > 0 {
				best[i][j] = max(best[i][j], best[i+1][j+1]+s)
			}
		}
	}
	i, j := 0, 0
	for i < n || j < m {
		switch {
		case i < n && j < m && score(&a[i], &b[j]) > 0 && best[i][j] == best[i+1][j+1]+score(&a[i], &b[j]):
			out = append(out, pair{&a[i], &b[j], alike(&a[i], &b[j])})
			i, j = i+1, j+1
		case j == m || i < n && best[i][j] == best[i+1][j]:
			out = append(out, pair{A: &a[i]})
			i++
		default:
			out = append(out, pair{B: &b[j]})
			j++
		}
	}
	for ; i < len(a) || j < len(b); i, j = i+1, j+1 {
		var p pair
		if i < len(a) {
			p.A = &a[i]
		}
		if j < len(b) {
			p.B = &b[j]
		}
		out = append(out, p)
	}
	return out
}
