// Package window decides how a conversation is kept within a model's window: how full it is, when it is shortened,
// what is kept verbatim, which results are cut, and what the model reads instead. It only computes: asking the
// model for a summary, and storing results before they are cut, is up to the caller.
//
// All sizes are our own estimates of tokens. A [Gauge] converts between them and the tokens that a server counts.
package window

import "github.com/kitbag-go/kitbag/message"

// A Gauge measures how full the window is.
type Gauge struct {
	Window  int     // in tokens of the server
	Compact float64 // the share of the window at which the conversation is shortened; never if not positive
	Ratio   float64 // of the server's tokens to our estimate, as from [Ratio]; 0 if unknown

	refused   int // size of the smallest request that a server found too long; 0 if there is none
	compacted int // size of the request after the last compaction; 0 if there was none
	tally     Tally
}

// A Tally is the size of a conversation.
type Tally struct {
	Tokens   int // estimated
	Data     int // number of images and files
	messages int // number of messages counted
}

// Count returns the size of msgs. It remembers the size of what was counted before, and adds only the messages after that:
// when earlier messages change, call [Gauge.Rewritten].
func (g *Gauge) Count(msgs []*message.Message) Tally {
	t := &g.tally
	for _, m := range msgs[t.messages:] {
		t.Tokens += Message(m)
		t.Data += len(DataIn(m.Blocks))
	}
	t.messages = len(msgs)
	return *t
}

// Rewritten makes the gauge forget the size of a conversation whose messages have changed.
func (g *Gauge) Rewritten() { g.tally, g.compacted = Tally{}, 0 }

// Compacted records the size of the request after a compaction, system prompt and tools included. If a compaction gains
// nothing, size is the size before the compaction.
func (g *Gauge) Compacted(size int) { g.compacted = size }

// Refuse records that a server found a request of the given size too long, which is more reliable than any estimate.
func (g *Gauge) Refuse(size int) {
	if g.refused == 0 || size < g.refused {
		g.refused = size
	}
}

// room returns the estimated size of the largest request that the server accepts.
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

// Share returns the size of a share of the window.
func (g *Gauge) Share(share float64) int { return int(share * float64(g.room())) }

// Due reports whether a request with a fixed part and messages should be shortened: it fills too much of the window,
// and is likely to be at least a tenth smaller after a compaction.
func (g *Gauge) Due(fixed, messages int) bool {
	size, after := fixed+messages, max(g.compacted, fixed+g.Budget(fixed)) // the last compaction may not have reached the budget
	return g.Compact > 0 && size >= g.Share(g.Compact) && size*9/10 >= after
}

// Budget returns the size that the messages may have after a compaction, next to the fixed part of the request: such that
// the request is a quarter below the size at which a compaction is due, so that the next compaction is not due soon, but
// at least half of the window without the fixed part.
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

// Ratio returns the ratio of reported to estimated tokens, and false for a request that is so small that what servers add
// to each request would distort the ratio.
func Ratio(estimated, reported int) (ratio float64, ok bool) {
	if reported < 100 || estimated < 100 {
		return 0, false
	}
	return Clamp(float64(reported) / float64(estimated)), true
}

// Clamp bounds a ratio, so that neither a server that reports nonsense nor a modified State can disable compaction or make
// it endless. The ratio 0, for unknown, is returned unchanged.
func Clamp(ratio float64) float64 {
	if ratio == 0 {
		return 0
	}
	return min(max(ratio, 0.25), 4)
}
