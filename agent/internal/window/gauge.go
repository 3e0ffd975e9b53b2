// Package window decides how a conversation is kept within a model's window: how full it is, when it is shortened,
// what is kept verbatim, which results are cut, and what the model reads instead. It only computes: asking the
// model for a summary, and storing results before they are cut, is up to the caller.
//
// All sizes are our own estimates. A [Gauge] converts what a server
// reports and rejects to estimates, so that the two units are never mixed.
package window

import "github.com/kitbag-go/kitbag/message"

// A Gauge measures how full the window is.
type Gauge struct {
	Window  int     // in tokens
	Compact float64 // the share of the window at which the conversation is shortened; never if not positive

	// Ratio is the ratio of the tokens that the server reports to our estimate; 0 if unknown. See [Ratio].
	Ratio float64

	refused   int // size of the smallest request that a server found too long; 0 if there is none
	compacted int // size after the last compaction; 0 if there was none
	tally     Tally
}

// A Tally is the size of a conversation.
type Tally struct {
	Tokens int // estimated
	Data   int // number of images and files
	n      int // number of messages counted
}

// Count returns the size of msgs. It counts only messages added since the last
// call: after rewriting a conversation call [Gauge.Rewritten].
func (g *Gauge) Count(msgs []*message.Message) Tally {
	t := &g.tally
	for _, m := range msgs[t.n:] {
		t.Tokens += Message(m)
		t.Data += len(DataIn(m.Blocks))
	}
	t.n = len(msgs)
	return *t
}

// Rewritten makes the next Count start again.
func (g *Gauge) Rewritten() { g.tally, g.compacted = Tally{}, 0 }

// Compacted records the size of a request after a compaction, system prompt and tools included; its full size
// if nothing was gained.
func (g *Gauge) Compacted(size int) { g.compacted = size }

// Refuse records that a server found a request of the given size too long, which is more reliable than any estimate.
func (g *Gauge) Refuse(size int) {
	if g.refused == 0 || size < g.refused {
		g.refused = size
	}
}

// room returns the size of the largest request that may be made, as far as is known.
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

// Due reports whether a request, of which a part is fixed, should be shortened: it fills too much of the window,
// and at least a tenth would be gained, judging by what the last compaction left and by the budget.
func (g *Gauge) Due(fixed, messages int) bool {
	size, after := fixed+messages, max(g.compacted, fixed+g.Budget(fixed))
	return g.Compact > 0 && size >= g.Share(g.Compact) && 9*size >= 10*after
}

// Budget returns the size that the messages may have after a compaction, next to a fixed part of the request: well
// below the size at which a compaction is due, so that the next one is not due soon. If the fixed part leaves too
// little, it is half of what that leaves.
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
// is too small for that: what servers add to each request outweighs it.
func Ratio(estimated, reported int) (ratio float64, ok bool) {
	if reported < 100 || estimated < 100 {
		return 0, false
	}
	return Clamp(float64(reported) / float64(estimated)), true
}

// Clamp bounds a ratio, so that neither a server that reports nonsense nor a modified State
// disables compaction or makes it endless; 0, for unknown, stays.
func Clamp(ratio float64) float64 {
	if ratio == 0 {
		return 0
	}
	return min(max(ratio, 0.25), 4)
}
