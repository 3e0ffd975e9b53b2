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
	summaryPrompt string

	//go:embed prompts/summary_plain.md
	plainPrompt string
)

// A summary is the model's summary of the messages that will be removed. Each field asks for something that
// summaries in free form often omit.
//
// It is requested as text, not with a tool or a response format: providers put both before the messages, so
// that the cache of the whole conversation would be lost for the one request that needs all of it.
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

// parseSummary parses a model's answer, repaired like the arguments of a call: it removes fences and prose,
// and accepts a string in place of a list. An answer that was cut off is refused, since its most important
// part, what to do next, is at its end.
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

// maxShorter is how often a summary is requested with fewer messages when a server refuses the request as too long.
const maxShorter = 3

// summarise asks the model for a summary of the conversation: with the same messages as before, so that the
// provider's cache is used, or, when a server refuses those as too long, with the newest messages that fit
// into budget, in estimated tokens.
func (r *run) summarise(v *toolkit.View, refused bool, budget func() int, ev *event.Compaction) (text string, err error) {
	if !refused {
		text, err = r.askSummary(v, r.st.Messages, ev)
		switch {
		case kindOf(err) == model.KindContextTooLong:
			r.gauge().Refuse(r.fixed(v) + r.gauge().Count(r.st.Messages).Tokens)
		case kindOf(err) != model.KindBadImage: // the newest messages are sent without images
			return text, err
		}
	}
	divisor := 1
	for range maxShorter {
		if text, err = r.askSummary(v, r.newest(budget()/divisor), ev); kindOf(err) != model.KindContextTooLong {
			break
		}
		divisor *= 2
	}
	return text, err
}

// askSummary asks for a structured summary. Prose is accepted as a plain summary; if the answer is JSON that
// cannot be parsed, it asks for a plain one.
func (r *run) askSummary(v *toolkit.View, msgs []*message.Message, ev *event.Compaction) (string, error) {
	text, err := r.askText(v, msgs, summaryPrompt, ev)
	if err != nil {
		return "", err
	}
	if s, err := parseSummary(text); err == nil {
		return s.String(), nil
	}
	if text != "" && text[0] != '{' && !strings.HasPrefix(text, "```") {
		return text, nil
	}
	if text, err = r.askText(v, msgs, plainPrompt, ev); err == nil && text == "" {
		err = errors.New("the model gave no summary")
	}
	return text, err
}

// askText asks the model something about msgs. It emits no deltas.
func (r *run) askText(v *toolkit.View, msgs []*message.Message, question string, ev *event.Compaction) (string, error) {
	req := r.request(v, append(slices.Clip(msgs), r.newHint(window.SummarySource, question)))
	// The tools stay in the request: without them it would have another prefix.
	req.Choice = model.ToolChoice{Mode: model.ChoiceNone}
	req.MaxTokens = 0 // that limit is for answers, and a summary that is cut off is useless
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

// newest returns the last messages that fit into budget, in estimated tokens, with shortened results, and the
// summary of the messages before them, if there is one.
func (r *run) newest(budget int) []*message.Message {
	from := window.Newest(r.st.Messages, budget)
	msgs := r.st.Messages[from:]
	cut := window.Cut{From: len(msgs), Old: window.OldResult, Data: len(msgs)}
	noStore := func(res *message.ToolResult) (*message.ToolResult, string) {
		return redacted(r.cfg.Redact, res), ""
	}
	return append(window.Summaries(r.st.Messages[:from]), cut.Apply(msgs, noStore)...)
}

// withSummary returns the conversation with the messages before index from replaced by a summary and their pinned
// texts. room is in estimated tokens: the summary gets a quarter of it, the pinned texts half. Without a summary an
// earlier one stays, and a note tells the model that messages are missing.
func (r *run) withSummary(v *toolkit.View, summary string, from, room int) []*message.Message {
	short := window.Abridge(summary, room/4)
	if short != summary { // redact before cutting: a part of a secret is not recognized
		short = window.Abridge(redacted(r.cfg.Redact, summary), room/4)
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
	hint.Blocks = append(hint.Blocks, window.Pinned(r.st.Messages[:from], room/2)...)
	return window.Replace(r.st.Messages, from, hint)
}

// reminders collects what tools remind the model of after a compaction: open tasks, opened skills.
func (r *run) reminders(v *toolkit.View) []string {
	var out []string
	ctx := r.withToolState(r.ctx)
	for _, info := range v.Tools() {
		t, _, err := v.Resolve(ctx, info.Name, []byte("{}"))
		if err != nil { // a tool that chooses another one by its arguments
			continue
		}
		if rem, ok := tool.As[tool.Reminder](t); ok {
			out = append(out, rem.Remind(ctx))
		}
	}
	return out
}
