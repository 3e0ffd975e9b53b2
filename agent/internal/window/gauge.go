// Package window decides how a conversation is kept within a model's window: how full
// it is, when it is made shorter, what stays word for word, which results are cut, and
// what the model reads where something was cut. It is data and functions: asking the
// model for a summary, and keeping the whole of what is cut, is up to the caller.
//
// Everything is counted in our own estimates. A [Gauge] knows how they compare with what a server
// reports and refuses, and gives budgets in estimates too, so that the two are never mixed.
package window

import "github.com/kitbag-go/kitbag/message"

// A Gauge measures how full the window is.
type Gauge struct {
	Window  int     // in tokens
	Compact float64 // the share at which the conversation is made shorter; not positive for never

	// Ratio is of the tokens that the server reports to those estimated; 0 for
	// not known. See [Ratio].
	Ratio float64

	refused int // the smallest request that a server found too long; 0 for none
	left    int // what the last compaction left; 0 for none
	tally   Tally
}

// A Tally is what a conversation holds.
type Tally struct {
	Tokens int // estimated
	Data   int // pictures and files
	n      int // messages counted
}

// Count returns what msgs hold. It counts only what has been added since the last
// time: code that rewrites a conversation calls [Gauge.Rewritten].
func (g *Gauge) Count(msgs []*message.Message) Tally {
	t := &g.tally
	for _, m := range msgs[t.n:] {
		t.Tokens += Message(m)
		t.Data += len(DataIn(m.Blocks))
	}
	t.n = len(msgs)
	return *t
}

// Rewritten has the next Count begin anew.
func (g *Gauge) Rewritten() { g.tally, g.left = Tally{}, 0 }

// Left notes what a compaction left of a request, system prompt and tools included, which is all of it
// if nothing was gained.
func (g *Gauge) Left(size int) { g.left = size }

// Refuse notes that a server has found a request of the given size too long, which it
// knows better than any estimate.
func (g *Gauge) Refuse(size int) {
	if g.refused == 0 || size < g.refused {
		g.refused = size
	}
}

// room is the size of the largest request that may be made, as far as is known.
func (g *Gauge) room() int {
	n := g.Window
	if g.Ratio > 0 {
		n = int(float64(n) / g.Ratio)
	}
	if g.refused > 0 {
		n = min(n, g.refused)
	}
	return n
}

// Share returns a share of the window, as an estimate.
func (g *Gauge) Share(share float64) int { return int(share * float64(g.room())) }

// Due reports whether a request is to be made shorter, of which a part is fixed: it fills
// too much of the window, and at least a tenth would be gained, going by what was left the
// last time and by the budget.
func (g *Gauge) Due(fixed, messages int) bool {
	size, left := fixed+messages, max(g.left, fixed+g.Budget(fixed))
	return g.Compact > 0 && size >= g.Share(g.Compact) && 9*size >= 10*left
}

// Budget is what the messages may hold after a compaction, next to a fixed part of the
// request: well below what makes one due, so that it is not soon due again. Where the
// fixed part leaves too little, it is half of that.
func (g *Gauge) Budget(fixed int) int {
	return max(g.Share(0.75*g.Compact)-fixed, (g.room()-fixed)/2)
}

// Tokens returns how many tokens the server is expected to count.
func (g *Gauge) Tokens(estimate int) int {
	if g.Ratio == 0 {
		return estimate
	}
	return int(float64(estimate) * g.Ratio)
}

// Ratio returns the ratio of reported to estimated tokens, and false for a request that
// is too small to learn from: what servers add to each one outweighs it.
func Ratio(estimated, reported int) (ratio float64, ok bool) {
	if reported < 100 || estimated < 100 {
		return 0, false
	}
	return Clamp(float64(reported) / float64(estimated)), true
}

// Clamp bounds a ratio, so that neither a server that counts nonsense nor a State that
// was tampered with turns compaction off or makes it endless; 0 stays, for not known.
func Clamp(ratio float64) float64 {
	if ratio == 0 {
		return 0
	}
	return min(max(ratio, 0.25), 4)
}
