package agent

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// Context says how a conversation is kept within the model's window. The zero
// value works.
type Context struct {
	// Window is the model's, in tokens. 0 takes the model's own word
	// ([model.Windowed]), else 128,000.
	Window int

	// Compact is the share of the window at which the conversation is made
	// shorter; 0 means 0.8, negative never: first long old results are cut, and
	// if that is not enough the model is asked for a summary of all but the
	// newest, in fixed fields (goal, decisions, files, facts, open tasks, …) or
	// else in plain text. If there is none whole turns go, and the model is told
	// so. Keep is the share that stays word for word beside the current turn; 0
	// means 0.1. What is open, groups, skills and tasks, is told again.
	Compact, Keep float64

	// MaxResult is how much text of a tool result the model reads, in bytes; 0
	// means 100,000, negative all of it. Of a longer one it reads the beginning
	// and the end. Results, if not nil, keeps the whole; see [ReadResult].
	MaxResult int
	Results   Results

	// MaxData is how many pictures and files stay in the conversation; 0 means
	// 20, negative all. When there are more the oldest give way to a note, down
	// to half as many, so that the provider's cache is not lost for each.
	MaxData int
}

const (
	// defaultWindow is what most models have at least. A server that has less
	// refuses the request, and the conversation is compacted then.
	defaultWindow = 128_000

	// oldResult is how much text of an old tool result survives the first step
	// of compaction, in bytes.
	oldResult = 1000

	// dataTokens is what a picture or a file is taken to cost: about as much as a
	// large picture does.
	dataTokens = 1500
)

func (c *Context) setDefaults(m model.Model) error {
	if c.Compact > 1 || c.Keep < 0 || c.Compact > 0 && c.Keep >= c.Compact {
		return fmt.Errorf("Context.Compact is %g and Keep %g; Compact is at most 1 and Keep less than that", c.Compact, c.Keep)
	}
	if w, ok := model.As[model.Windowed](m); ok && c.Window == 0 {
		c.Window = w.ContextWindow()
	}
	setDefault(&c.Window, defaultWindow)
	setDefault(&c.Compact, 0.8)
	setDefault(&c.Keep, 0.1)
	setDefault(&c.MaxResult, 100_000)
	setDefault(&c.MaxData, 20)
	return nil
}

// estimate returns about how many tokens text costs: a token holds four bytes
// of Latin text but only some two of others, so runes count for more where
// there are fewer of them to the byte.
func estimate(text string) int {
	n := len(text)
	if runes := utf8.RuneCountInString(text); runes < n {
		return (n + 2*runes) / 6
	}
	return n / 4
}

// estimateMessage leaves thinking out: most servers drop that of earlier turns.
func estimateMessage(m *message.Message) int {
	n := 4 // roles and separators
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			n += estimate(b.Text)
		case *message.Hint:
			n += estimate(b.Text)
		case *message.Data:
			n += dataTokens
		case *message.ToolCall:
			n += estimate(b.Name) + estimate(string(b.Input)) + 8
		case *message.ToolResult:
			n += estimateResult(b) + 8
		}
	}
	return n
}

func estimateResult(res *message.ToolResult) int {
	n := 0
	for _, b := range res.Blocks {
		switch b := b.(type) {
		case *message.Text:
			n += estimate(b.Text)
		case *message.Data:
			n += dataTokens
		}
	}
	return n
}

// A tally is what the first n messages of a conversation hold. It grows with
// the conversation, so that a step counts only what is new.
type tally struct {
	n            int
	last         *message.Message // the n-th, which tells a conversation that was rewritten
	tokens, data int
}

// count returns what the conversation holds.
func (r *run) count() *tally {
	t, msgs := &r.tally, r.st.Messages
	if t.n > len(msgs) || t.n > 0 && msgs[t.n-1] != t.last {
		*t = tally{}
	}
	for _, m := range msgs[t.n:] {
		t.tokens += estimateMessage(m)
		t.data += len(dataIn(m.Blocks))
		t.n, t.last = t.n+1, m
	}
	return t
}

// fixed estimates what stays the same in every request: the system prompt and
// the tools.
func fixed(system string, tools []tool.Info) int {
	n := estimate(system)
	for _, t := range tools {
		n += (len(t.Name) + len(t.Description) + len(t.Input)) / 4
	}
	return n
}

func estimateAll(msgs []*message.Message) int {
	n := 0
	for _, m := range msgs {
		n += estimateMessage(m)
	}
	return n
}

// calibrated applies the ratio of reported to estimated tokens.
func (r *run) calibrated(estimate int) int {
	if r.st.ratio == 0 {
		return estimate
	}
	return int(float64(estimate) * r.st.ratio)
}

// learn corrects later estimates by what a request really cost. Small requests
// teach nothing: what providers add to each one outweighs them.
func (r *run) learn(estimated int, u *message.Usage) {
	if u == nil || u.Input < 100 || estimated < 100 {
		return
	}
	r.st.ratio = clampRatio(float64(u.Input) / float64(estimated))
}

// clampRatio bounds how far estimates are corrected, so that neither a server that
// counts nonsense nor a State that somebody wrote turns compaction off or makes it
// endless; 0 stays, for not at all.
func clampRatio(ratio float64) float64 {
	if ratio == 0 {
		return 0
	}
	return min(max(ratio, 0.25), 4)
}

// fit compacts the conversation if the next request would fill too much of the
// window.
func (r *run) fit(v *toolkit.View) error {
	c := &r.cfg.Context
	if err := r.fitData(v); err != nil || c.Compact < 0 {
		return err
	}
	if r.calibrated(fixed(r.system(v.Prompt()), v.Tools())+r.count().tokens) < int(c.Compact*float64(c.Window)) {
		return nil
	}
	return r.compact(v, false)
}

// compact makes the conversation shorter: first old tool results, and if that
// is not enough everything before the current turn, of which a summary stays.
// refused says that a server has found it too long as it is.
func (r *run) compact(v *toolkit.View, refused bool) error {
	c := &r.cfg.Context
	fixed := fixed(r.system(v.Prompt()), v.Tools())
	ev := &Compaction{Before: r.calibrated(fixed + r.count().tokens)}
	// A server that refuses the request knows the window better than we do.
	window := min(float64(c.Window), float64(ev.Before)/c.Compact)
	goal := int(c.Compact * window * 0.75) // well below, so that it is not soon again
	keepFrom := r.keepFrom(int(c.Keep * window))
	msgs := r.shrinkOld(r.st.Messages, keepFrom)
	if r.calibrated(fixed+estimateAll(msgs)) > goal {
		summary, err := r.summarise(v, refused, goal-r.calibrated(fixed), ev)
		if ended := r.ctx.Err(); err != nil && ended != nil {
			return ended
		}
		if err != nil {
			ev.Failed, summary = err.Error(), ""
		}
		ev.Summary = summary
		msgs = r.withSummary(v, summary, keepFrom)
	}
	ev.Dropped = len(r.st.Messages) - len(msgs)
	ev.After = r.calibrated(fixed + estimateAll(msgs))
	if ev.After >= ev.Before {
		return nil // there is nothing to gain
	}
	return r.rewrite(msgs, ev)
}

// rewrite replaces the conversation.
func (r *run) rewrite(msgs []*message.Message, ev *Compaction) error {
	r.st.Messages = msgs
	r.st.Generation++
	return r.store(ev)
}

// fitData replaces the oldest pictures and files when there are too many. Servers
// refuse requests with more of them than they take, however small they are.
func (r *run) fitData(v *toolkit.View) error {
	limit := r.cfg.Context.MaxData
	n := r.count().data
	if limit < 0 || n <= limit {
		return nil
	}
	fixed := fixed(r.system(v.Prompt()), v.Tools())
	before := r.calibrated(fixed + r.count().tokens)
	drop := n - limit/2
	msgs := append([]*message.Message(nil), r.st.Messages...)
	for i, m := range msgs {
		if drop == 0 {
			break
		}
		if blocks := withoutData(m.Blocks, &drop); blocks != nil {
			cp := *m
			cp.Blocks, msgs[i] = blocks, &cp
		}
	}
	return r.rewrite(msgs, &Compaction{Before: before, After: r.calibrated(fixed + estimateAll(msgs))})
}

// dataIn returns the pictures and files among blocks, those in results too.
func dataIn(blocks message.Blocks) (found []*message.Data) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *message.Data:
			found = append(found, b)
		case *message.ToolResult:
			found = append(found, dataIn(b.Blocks)...)
		}
	}
	return found
}

// withoutData returns blocks with up to *drop pictures and files replaced by a
// note, and counts them down; nil if there are none.
func withoutData(blocks message.Blocks, drop *int) message.Blocks {
	if *drop == 0 || len(dataIn(blocks)) == 0 {
		return nil
	}
	out := append(message.Blocks(nil), blocks...)
	for i, b := range out {
		switch b := b.(type) {
		case *message.Data:
			if *drop > 0 {
				*drop--
				out[i] = &message.Text{Text: strings.TrimSpace("[" + b.MediaType + " " + b.Name + " was taken out to save room]")}
			}
		case *message.ToolResult:
			if inner := withoutData(b.Blocks, drop); inner != nil {
				cp := *b
				cp.Blocks, out[i] = inner, &cp
			}
		}
	}
	return out
}

// turnStart returns the index of the user's last words. What the agent says to the
// model in the user's role does not count.
func turnStart(msgs []*message.Message) int {
	for i := len(msgs) - 1; i > 0; i-- {
		if msgs[i].Role == message.RoleUser && !isHint(msgs[i]) {
			return i
		}
	}
	return 0
}

// keepFrom returns the index of the first message that stays as it is: the
// start of the earliest turn that fits into the budget, in tokens, or of a round
// within the current turn where that alone is too long.
func (r *run) keepFrom(budget int) int {
	msgs := r.st.Messages
	start := turnStart(msgs)
	from, sum := len(msgs), 0
	for i := len(msgs) - 1; i >= 0; i-- {
		sum += r.calibrated(estimateMessage(msgs[i]))
		whole := i > start && msgs[i].Role == message.RoleAssistant || i <= start && msgs[i].Role == message.RoleUser
		if sum > budget && from < len(msgs) {
			break
		}
		if whole {
			from = i
		}
	}
	return from
}

// shrinkOld cuts long tool results before index from. That comes before a summary
// because it loses least: the model can make the call again, and knows of it.
func (r *run) shrinkOld(msgs []*message.Message, from int) []*message.Message {
	out := append([]*message.Message(nil), msgs...)
	for i, m := range out[:from] {
		if m.Role != message.RoleTool {
			continue
		}
		cp := *m
		cp.Blocks = append(message.Blocks(nil), m.Blocks...)
		changed := false
		for j, res := range m.ToolResults() {
			if short, ok := r.shortened(res, oldResult, ""); ok {
				cp.Blocks[j], changed = short, true
			}
		}
		if changed {
			out[i] = &cp
		}
	}
	return out
}

// shortened returns a copy of res with at most about limit bytes of text, its
// beginning and its end, and reports whether there was anything to cut. how says
// how the rest is had.
func (r *run) shortened(res *message.ToolResult, limit int, how string) (*message.ToolResult, bool) {
	text := res.Text()
	if len(text) <= limit {
		return res, false
	}
	res = redactResult(r.cfg.Redact, res) // before it is cut: half a secret is not found any more
	if text = res.Text(); len(text) <= limit {
		return res, true
	}
	head, tail := text[:limit*2/3], text[len(text)-limit/3:]
	head = strings.ToValidUTF8(head, "") // cut runes
	tail = strings.ToValidUTF8(tail, "")
	note := fmt.Sprintf("\n[… %d bytes left out%s", len(text)-len(head)-len(tail), how)
	cp := *res
	cp.Blocks = message.Blocks{&message.Text{Text: head + note + "]\n" + tail}}
	for _, b := range res.Blocks {
		if d, ok := b.(*message.Data); ok {
			cp.Blocks = append(cp.Blocks, d)
		}
	}
	return &cp, true
}

// clip cuts a result that is too long for the model.
func (r *run) clip(res *message.ToolResult) *message.ToolResult {
	limit := r.cfg.Context.MaxResult
	if limit < 0 || len(res.Text()) <= limit {
		return res
	}
	how := ""
	if kept := r.cfg.Context.Results; kept != nil {
		if err := kept.Put(context.WithoutCancel(r.ctx), res.ID, redactResult(r.cfg.Redact, res).Text()); err != nil {
			how = "; the whole could not be kept: " + err.Error()
		} else {
			how = fmt.Sprintf("; read_result with call %q reads the whole", res.ID)
		}
	}
	short, _ := r.shortened(res, limit, how)
	return short
}
