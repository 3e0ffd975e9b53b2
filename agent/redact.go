package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
)

// redactedInput is what becomes of a call whose arguments were saved without a
// secret in them: with a placeholder in its place it is another call.
const redactedInput = "Not run: the arguments held a secret, which was not kept when the conversation was saved. Make the call again, and get the secret anew."

// A curtain takes secrets out of the events of a run. The State and the model keep
// them: a model that has read a key with one tool is to use it with the next, and
// a call must run with what was judged. What it does with secrets the permission
// rules decide; here they are kept from files, screens and logs.
type curtain struct {
	r    *redact.Redactor
	held []*heldText // the texts that are coming, in order of their beginning

	away []string // calls in the background: nobody is told of their pieces any more
}

// heldText is a text that comes in deltas, of which the end is not shown as
// long as it could be the beginning of a secret.
type heldText struct {
	key   textKey
	write func(string) string
	close func() string
	event func(text string) Event // a delta
}

// A textKey tells texts apart, by what their deltas are and by the id in them.
type textKey struct {
	kind textKind
	id   string // of a block or a call
}

type textKind int

// The model says one thing at a time, but for arguments: those of several calls may
// come side by side. Of tools there is one text for each call and reader.
const (
	modelText textKind = iota
	modelThinking
	modelArgs
	toolText
	toolForUser
)

func ofModel(k textKey) bool { return k.kind <= modelArgs }

func ofCall(call string) func(textKey) bool {
	return func(k textKey) bool { return k.kind > modelArgs && k.id == call }
}

// draw returns the events to emit in the place of ev: none while a delta could be the
// beginning of a secret, several where one is followed by the end of another text.
// They get their numbers afterwards, so that none is missing.
func (c *curtain) draw(ev Event) []Event {
	switch ev := ev.(type) {
	case *TextDelta:
		return c.delta(textKey{modelText, ev.Block}, ev.Text, func(s string) Event {
			return &TextDelta{Message: ev.Message, Block: ev.Block, Text: s}
		})
	case *ThinkingDelta:
		return c.delta(textKey{modelThinking, ev.Block}, ev.Text, func(s string) Event {
			return &ThinkingDelta{Message: ev.Message, Block: ev.Block, Text: s}
		})
	case *ToolCallDelta:
		return c.delta(textKey{modelArgs, ev.Call}, ev.Args, func(s string) Event {
			return &ToolCallDelta{Message: ev.Message, Call: ev.Call, Name: ev.Name, Args: s}
		})
	case *ToolDelta:
		if slices.Contains(c.away, ev.Call) {
			return nil // what it goes on from was not told to its end
		}
		if ev.Text == "" {
			return []Event{ev}
		}
		key := textKey{toolText, ev.Call}
		if ev.ForUser {
			key.kind = toolForUser
		}
		return c.delta(key, ev.Text, func(s string) Event {
			return &ToolDelta{Call: ev.Call, Name: ev.Name, Text: s, ForUser: ev.ForUser}
		})
	case *ToolResult:
		return append(c.flush(ofCall(ev.Call)), c.clean(ev))
	case *Background:
		if ev.Result == nil {
			c.away = append(c.away, ev.Call)
			c.flush(ofCall(ev.Call))
		} else { // it says nothing any more
			c.away = slices.DeleteFunc(c.away, func(call string) bool { return call == ev.Call })
		}
	case *Discard: // the deltas are void, and so is what is held back of them
		c.flush(ofModel)
	}
	return append(c.flush(ofModel), c.clean(ev))
}

// delta takes a piece of a text and returns what can be shown by now.
func (c *curtain) delta(key textKey, text string, event func(string) Event) []Event {
	var out []Event
	args := key.kind == modelArgs
	if ofModel(key) { // whatever else the model was saying has ended
		out = c.flush(func(k textKey) bool { return ofModel(k) && k != key && !(args && k.kind == modelArgs) })
	}
	i := slices.IndexFunc(c.held, func(h *heldText) bool { return h.key == key })
	if i < 0 {
		i = len(c.held)
		c.held = append(c.held, c.hold(key))
		if args { // so that a consumer can show that there is a call
			out = append(out, event(""))
		}
	}
	h := c.held[i]
	h.event = event // a call may get its name late
	if shown := h.write(text); shown != "" {
		out = append(out, event(shown))
	}
	return out
}

// hold begins a text. Arguments are held back whole: an escape sequence of JSON
// can hide any letter until the string that it is in has come.
func (c *curtain) hold(key textKey) *heldText {
	if key.kind != modelArgs {
		s := c.r.Stream()
		return &heldText{key: key, write: s.Write, close: s.Close}
	}
	var all strings.Builder
	write := func(s string) string {
		all.WriteString(s)
		return ""
	}
	return &heldText{key: key, write: write, close: func() string { return string(c.json([]byte(all.String()))) }}
}

// flush ends the texts that which picks, and returns what was held back.
func (c *curtain) flush(which func(textKey) bool) []Event {
	var out []Event
	// In the order in which they began, which a consumer can count on.
	c.held = slices.DeleteFunc(c.held, func(h *heldText) bool {
		if !which(h.key) {
			return false
		}
		if rest := h.close(); rest != "" {
			out = append(out, h.event(rest))
		}
		return true
	})
	return out
}

// json returns data without secrets, nothing of what is not JSON: there it cannot be
// told what an escape sequence stands for.
func (c *curtain) json(data json.RawMessage) json.RawMessage {
	if !json.Valid(data) {
		return nil
	}
	return c.r.JSON(data)
}

func (c *curtain) texts(list []string) []string {
	out := slices.Clone(list)
	for i, s := range out {
		out[i] = c.r.Text(s)
	}
	return out
}

// clean returns ev without secrets. What stays as it is, is ev itself.
func (c *curtain) clean(ev Event) Event {
	text := c.r.Text
	switch ev := ev.(type) {
	case *Discard:
		cp := *ev
		cp.Error = text(ev.Error)
		return &cp
	case *Retry:
		cp := *ev
		cp.Error = text(ev.Error)
		return &cp
	case *Message:
		cp := *ev
		cp.Message = redactMessage(c.r, ev.Message)
		return &cp
	case *ToolCall:
		cp := *ev
		cp.Input, cp.Repaired = c.json(ev.Input), c.texts(ev.Repaired)
		return &cp
	case *ToolStart:
		cp := *ev
		cp.Reason = text(ev.Reason)
		return &cp
	case *ToolResult:
		cp := *ev
		cp.Result = redactResult(c.r, ev.Result)
		cp.Text = cp.Result.Text()
		return &cp
	case *Approval:
		cp := *ev
		cp.Input, cp.Reason, cp.Preview = c.json(ev.Input), text(ev.Reason), text(ev.Preview)
		cp.Suggest = redactRules(c.r, ev.Suggest)
		return &cp
	case *External:
		cp := *ev
		cp.Input = c.json(ev.Input)
		return &cp
	case *Background:
		cp := *ev
		cp.Result = redactResult(c.r, ev.Result)
		return &cp
	case *Elicitation:
		cp := *ev
		cp.Message, cp.URL, cp.Site, cp.Error = text(ev.Message), text(ev.URL), text(ev.Site), text(ev.Error)
		cp.Schema, cp.Warnings = c.json(ev.Schema), c.texts(ev.Warnings)
		return &cp
	case *Sampling:
		cp := *ev
		cp.Text, cp.Refused = text(ev.Text), text(ev.Refused)
		return &cp
	case *Compaction:
		cp := *ev
		cp.Summary, cp.Failed = text(ev.Summary), text(ev.Failed)
		return &cp
	case *End:
		cp := *ev
		cp.Detail, cp.Text, cp.Output = text(ev.Detail), text(ev.Text), c.json(ev.Output)
		return &cp
	}
	return ev // deltas come here only in their pieces; a Sub's event was cleaned by the run below
}

// redactState takes secrets out of what is about to be encoded. What it changes
// it copies: the State itself goes on with them. Ids and names of tools stay, since
// calls and results are joined by them; so does what only numbers can be in.
func (st *State) redactState(in *stateJSON) {
	r := st.cleaner.r
	if r == nil {
		return
	}
	st.cleaner.forget(len(st.Messages))
	msgs := slices.Clone(in.Messages)
	for i, m := range msgs {
		msgs[i] = st.cleaner.message(m)
	}
	open := slices.Clone(in.Open)
	for i, c := range open {
		cp := *c
		cp.Input, cp.Sub = r.JSON(c.Input), r.JSON(c.Sub)
		cp.Why, cp.Danger, cp.Preview, cp.Suggest = r.Text(c.Why), r.Text(c.Danger), r.Text(c.Preview), redactRules(r, c.Suggest)
		cp.Result = redactResult(r, c.Result)
		open[i] = &cp
	}
	away := slices.Clone(in.Away)
	for i, a := range away {
		cp := *a
		cp.Result = redactResult(r, a.Result)
		away[i] = &cp
	}
	in.Messages, in.Open, in.Away = msgs, open, away
	in.Rules, in.Tools = redactRules(r, in.Rules), r.JSON(in.Tools)
}

// A cleaner keeps messages as they are without secrets, so that each is searched
// once: there are stores that encode all of them with each save.
type cleaner struct {
	r     *redact.Redactor // nil for none
	mu    sync.Mutex       // between runs several may encode a State
	clean map[*message.Message]*message.Message
}

// use has r clean what is encoded from now on. Between runs that stays: who encodes
// the State then is to find no secrets either.
func (c *cleaner) use(r *redact.Redactor) {
	if c.r != r {
		c.r, c.clean = r, nil
	}
}

// forget makes room after a compaction. n messages are in use.
func (c *cleaner) forget(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clean == nil || len(c.clean) > 2*n {
		c.clean = make(map[*message.Message]*message.Message, n)
	}
}

func (c *cleaner) message(m *message.Message) *message.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	clean, ok := c.clean[m]
	if !ok {
		clean = redactMessage(c.r, m)
		c.clean[m] = clean
	}
	return clean
}

// redactMessage returns m without secrets, or m itself if it has none: most have
// none, and stores know by the pointer what they have.
func redactMessage(r *redact.Redactor, m *message.Message) *message.Message {
	blocks, changed := redactBlocks(r, m.Blocks)
	if !changed {
		return m
	}
	cp := *m
	cp.Blocks = blocks
	return &cp
}

func redactBlocks(r *redact.Redactor, blocks message.Blocks) (message.Blocks, bool) {
	if r == nil {
		return blocks, false
	}
	out := slices.Clone(blocks)
	for i, b := range blocks {
		out[i] = redactBlock(r, b)
	}
	redactAcross(r, out)
	return out, !slices.Equal(out, blocks)
}

// redactAcross takes out secrets of which parts stand in texts that follow each
// other: a tool may send each piece as a block of its own.
func redactAcross(r *redact.Redactor, blocks message.Blocks) {
	for from := 0; from < len(blocks); {
		to, s := from, r.Stream()
		var all strings.Builder // a result may be of many thousand pieces
		var texts []string
		for ; to < len(blocks); to++ {
			b, ok := blocks[to].(*message.Text)
			if !ok {
				break
			}
			all.WriteString(b.Text)
			texts = append(texts, s.Write(b.Text))
		}
		if n := len(texts); n > 1 {
			texts[n-1] += s.Close()
			if strings.Join(texts, "") != all.String() {
				for i, text := range texts {
					blocks[from+i] = &message.Text{ID: blocks[from+i].BlockID(), Text: text}
				}
			}
		}
		from = to + 1
	}
}

// redactBlock returns b without secrets, or b itself if it has none.
func redactBlock(r *redact.Redactor, b message.Block) message.Block {
	switch b := b.(type) {
	case *message.Text:
		if s := r.Text(b.Text); s != b.Text {
			return &message.Text{ID: b.ID, Text: s}
		}
	case *message.Hint:
		if s := r.Text(b.Text); s != b.Text {
			return &message.Hint{ID: b.ID, Source: b.Source, Text: s}
		}
	case *message.Thinking:
		if s := r.Text(b.Text); s != b.Text {
			return &message.Thinking{ID: b.ID, Text: s} // a signature would not fit any more
		}
	case *message.Data:
		cp := *b
		cp.Name, cp.URL = r.Text(b.Name), r.Text(b.URL)
		if strings.HasPrefix(b.MediaType, "text/") { // nobody looks into pictures
			cp.Bytes = []byte(r.Text(string(b.Bytes)))
		}
		if cp.Name != b.Name || cp.URL != b.URL || string(cp.Bytes) != string(b.Bytes) {
			return &cp
		}
	case *message.ToolCall:
		if in := r.JSON(b.Input); string(in) != string(b.Input) {
			cp := *b
			cp.Input = in
			return &cp
		}
	case *message.ToolResult:
		return redactResult(r, b)
	}
	return b
}

// redactResult returns res without secrets, or res itself if it has none.
func redactResult(r *redact.Redactor, res *message.ToolResult) *message.ToolResult {
	if res == nil {
		return nil
	}
	blocks, changed := redactBlocks(r, res.Blocks)
	forUser, changedToo := redactBlocks(r, res.ForUser)
	structured := r.JSON(res.Structured)
	changed = changed || changedToo || string(structured) != string(res.Structured)
	var meta map[string]json.RawMessage
	for k, v := range res.Meta {
		clean := r.JSON(v)
		if changed = changed || string(clean) != string(v); meta == nil {
			meta = make(map[string]json.RawMessage, len(res.Meta))
		}
		meta[k] = clean
	}
	if !changed {
		return res
	}
	cp := *res
	cp.Blocks, cp.ForUser, cp.Structured, cp.Meta = blocks, forUser, structured, meta
	return &cp
}

// redactRules returns rules without those that would name a secret. One that
// denies must not get lost: it denies every call of its tool then.
func redactRules(r *redact.Redactor, rules []permission.Rule) []permission.Rule {
	out := rules[:0:0]
	for _, rule := range rules {
		if r.Text(rule.Pattern) != rule.Pattern {
			if rule.Behavior == permission.Allow {
				continue
			}
			rule.Pattern = ""
		}
		out = append(out, rule)
	}
	return out
}
