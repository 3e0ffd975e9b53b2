package agent

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var (
	//go:embed prompts/summary.md
	summaryPrompt string // asks for a summary as JSON

	//go:embed prompts/summary_plain.md
	plainPrompt string // asks for a summary as prose
)

// A summary is the model's summary of the messages that will be removed. Each field asks for something that
// summaries in prose often omit.
//
// It is requested as text, not with a tool or a response format: providers put both before the messages, so that the
// request would lose the cache of the whole conversation.
type summary struct {
	Goal        string   `json:"goal" jsonschema:"minLength=1"`
	Constraints []string `json:"constraints,omitempty"`
	Decisions   []string `json:"decisions,omitempty"`
	Done        []string `json:"done,omitempty"`
	Files       []string `json:"files,omitempty"`
	Facts       []string `json:"facts,omitempty"`
	Open        []string `json:"open,omitempty"`
	Next        string   `json:"next" jsonschema:"minLength=1"`
}

// summaryTool is never called: it provides the repair and the checks of tool arguments. It is created lazily,
// because most programs never make a summary.
var summaryTool = sync.OnceValue(func() tool.Tool {
	return tool.Must(tool.New("summary", "The summary.", func(context.Context, summary) (string, error) { return "", nil }))
})

// parseSummary parses a model's answer. The answer is repaired like the arguments of a call: fences and prose are removed,
// and a string becomes a list. An answer that was cut off is an error: the field Next, at the end, is the most important.
func parseSummary(text string) (*summary, error) {
	args, err := tool.Arguments(summaryTool(), json.RawMessage(text))
	if err != nil {
		return nil, err
	}
	s := new(summary)
	return s, json.Unmarshal(args.JSON, s)
}

// String returns the summary as text for the model, without empty lists.
func (s *summary) String() string {
	var b strings.Builder
	for _, part := range []struct {
		title string
		items []string
	}{
		{"Goal", []string{s.Goal}}, {"Constraints", s.Constraints}, {"Decisions", s.Decisions}, {"Done", s.Done},
		{"Files", s.Files}, {"Facts", s.Facts}, {"Open", s.Open}, {"Next", []string{s.Next}},
	} {
		if len(part.items) == 0 {
			continue
		}
		fmt.Fprintf(&b, "## %s\n", part.title)
		for _, item := range part.items {
			b.WriteString("- " + strings.ReplaceAll(strings.TrimSpace(item), "\n", "\n  ") + "\n")
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String())
}

// summarise asks the model for a summary: of all messages, which are in the provider's cache, or, if a server refuses these
// messages, of the newest messages that fit into the budget of [window.Gauge.Budget]. tooLong says that a server has already
// refused them as too long. ev gets the usage.
func (r *run) summarise(v *toolkit.View, tooLong bool, ev *event.Compaction) (text string, err error) {
	if !tooLong {
		text, err = r.askSummary(v, r.st.Messages, ev)
		switch {
		case kindOf(err) == model.KindContextTooLong:
			r.gauge().Refuse(r.fixed(v) + r.gauge().Count(r.st.Messages).Tokens)
		case kindOf(err) != model.KindBadImage: // a refused image is not in newestMessages, which has no images
			return text, err
		}
	}
	for divisor := 1; divisor <= 4; divisor *= 2 { // three attempts, each with half as many tokens
		if text, err = r.askSummary(v, r.newestMessages(r.budget(v)/divisor), ev); kindOf(err) != model.KindContextTooLong {
			break
		}
	}
	return text, err
}

// askSummary asks for a structured summary of msgs. An answer in prose is accepted as it is; if the answer is JSON that
// cannot be parsed, askSummary asks for prose.
func (r *run) askSummary(v *toolkit.View, msgs []*message.Message, ev *event.Compaction) (string, error) {
	text, err := r.askText(v, msgs, summaryPrompt, ev)
	if err != nil {
		return "", err
	}
	if s, err := parseSummary(text); err == nil {
		return s.String(), nil
	}
	if isProse := text != "" && text[0] != '{' && !strings.HasPrefix(text, "```"); isProse {
		return text, nil
	}
	if text, err = r.askText(v, msgs, plainPrompt, ev); err == nil && text == "" {
		err = errors.New("the model gave no summary")
	}
	return text, err
}

// askText returns the model's answer to a prompt that follows msgs. It emits no deltas.
func (r *run) askText(v *toolkit.View, msgs []*message.Message, prompt string, ev *event.Compaction) (string, error) {
	req := r.request(v, append(slices.Clip(msgs), r.newHint(window.SummarySource, prompt)))
	req.Choice = model.ToolChoice{Mode: model.ChoiceNone} // a request without tools would not be in the provider's cache
	req.MaxTokens = 0                                     // the limit for answers might cut off the summary
	ask := SummaryFunc(func(_ context.Context, req *model.Request) (string, error) {
		mc := &modelCall{run: r, msg: r.newAnswer(), silent: true}
		if err := r.exchange(req, mc); err != nil {
			return "", err
		}
		ev.Usage.Add(*mc.msg.Usage)
		return mc.msg.Text(), nil
	})
	text, err := wrap(r.cfg.Middleware, ask, func(m Middleware) func(SummaryFunc) SummaryFunc { return m.Summary })(r.ctx, req)
	return strings.TrimSpace(text), err
}

// newestMessages returns the last messages that fit into budget, in estimated tokens, with shortened results and without
// images and files, after the summaries among the earlier messages.
func (r *run) newestMessages(budget int) []*message.Message {
	from := window.Newest(r.st.Messages, budget)
	msgs := r.st.Messages[from:]
	cut := window.Cut{From: len(msgs), Old: window.OldResult, Data: len(msgs)} // shorten every result, remove all data
	onlyRedact := func(res *message.ToolResult) (*message.ToolResult, string) {
		return redacted(r.cfg.Redact, res), ""
	}
	return append(window.Summaries(r.st.Messages[:from]), cut.Apply(msgs, onlyRedact)...)
}

// withSummary returns the conversation with the messages before index from replaced by a summary and the pinned results
// among these messages. Of budget, in estimated tokens, the summary gets a quarter and the pinned results half. If summary
// is empty, an earlier summary stays, and a note tells the model that messages are missing.
func (r *run) withSummary(v *toolkit.View, summary string, from, budget int) []*message.Message {
	short := window.Abridge(summary, budget/4)
	if short != summary { // redacted before it is cut: part of a secret is not recognized
		short = window.Abridge(redacted(r.cfg.Redact, summary), budget/4)
	}
	source, text := window.SummarySource, "Earlier parts of this conversation were replaced by this summary.\n\n"+short
	if summary == "" {
		source, text = window.CutSource, "Earlier messages were cut off here; no summary of them could be made. Look again for what you need of them, or ask the user."
	}
	for _, reminder := range append([]string{v.Reminder()}, r.reminders(v)...) {
		if reminder != "" {
			text += "\n\n" + reminder
		}
	}
	hint := r.newHint(source, text)
	hint.Blocks = append(hint.Blocks, window.Pinned(r.st.Messages[:from], budget/2)...)
	return window.Replace(r.st.Messages, from, hint)
}

// reminders collects what tools remind the model of after a compaction: open tasks, opened skills.
func (r *run) reminders(v *toolkit.View) []string {
	var out []string
	ctx := r.withToolState(r.ctx)
	for _, info := range v.Tools() {
		t, _, err := v.Resolve(ctx, info.Name, []byte("{}"))
		if err != nil { // call_tool, which needs the name of a tool in its arguments, has no reminder
			continue
		}
		if rem, ok := tool.As[tool.Reminder](t); ok {
			out = append(out, rem.Remind(ctx))
		}
	}
	return out
}
