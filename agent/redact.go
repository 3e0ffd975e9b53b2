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

// redactedInput is what becomes of a call whose arguments were saved without a secret in them: with a placeholder in its
// place it is another call.
const redactedInput = "Not run: the arguments held a secret, which was not kept when the conversation was saved. Make the call again, and get the secret anew."

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

// redactJudgement returns what is kept of j: what it is compared with is judged anew.
func redactJudgement(r *redact.Redactor, j *permission.Judgement) *permission.Judgement {
	if j == nil {
		return nil
	}
	cp := *j
	cp.Text = r.Text(j.Text)
	cp.Files = slices.Clone(j.Files)
	for i := range cp.Files {
		cp.Files[i].Path = r.Text(cp.Files[i].Path)
	}
	return &cp
}
