package agent

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
)

// redactedInput is the result of a call whose arguments were saved without their secret: with a placeholder
// it would be another call.
const redactedInput = "Not run: the arguments contained a secret, which was removed when the conversation was saved. Make the call again with the secret."

// A cleaner caches redacted messages, since each save may encode all of them.
type cleaner struct {
	r     *redact.Redactor // may be nil
	mu    sync.Mutex       // several goroutines may encode a State between runs
	clean map[*message.Message]*message.Message
}

// use makes r redact what is encoded from now on, also after the run: encoding
// the State then must not reveal secrets either.
func (c *cleaner) use(r *redact.Redactor) {
	if c.r != r {
		c.r, c.clean = r, nil
	}
}

// messages returns msgs without secrets. all is the number of messages in the State.
func (c *cleaner) messages(msgs []*message.Message, all int) []*message.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clean == nil || len(c.clean) > 2*all { // after a compaction
		c.clean = make(map[*message.Message]*message.Message, all)
	}
	out := slices.Clone(msgs)
	for i, m := range msgs {
		clean, ok := c.clean[m]
		if !ok {
			clean = redacted(c.r, m)
			c.clean[m] = clean
		}
		out[i] = clean
	}
	return out
}

// redacted returns v without secrets. It copies what it changes, and returns v itself if there are none:
// stores recognize messages by their pointers.
func redacted[T any](r *redact.Redactor, v T) T {
	if r == nil {
		return v
	}
	if clean, found := redactValue(r, reflect.ValueOf(&v).Elem()); found {
		return clean.Interface().(T)
	}
	return v
}

// notRedacted has the fields, by type, that keep their text: ids and names, which connect calls and results, and the
// event of a sub-agent, which its own run has redacted.
var notRedacted = map[reflect.Type][]string{
	reflect.TypeFor[event.Header]():       {"Type", "Run"},
	reflect.TypeFor[event.RunStart]():     {"Session"},
	reflect.TypeFor[event.ModelStart]():   {"Message", "Model", "Digest"},
	reflect.TypeFor[event.Part]():         {"Kind", "Name", "Digest"},
	reflect.TypeFor[event.ToolDelta]():    {"Call", "Name", "Data"},
	reflect.TypeFor[event.Discard]():      {"Message"},
	reflect.TypeFor[event.ToolCall]():     {"Message", "Call", "Name"},
	reflect.TypeFor[event.ToolStart]():    {"Call", "Name"},
	reflect.TypeFor[event.ToolResult]():   {"Call", "Name"},
	reflect.TypeFor[event.Approval]():     {"Call", "Name"},
	reflect.TypeFor[event.External]():     {"Call", "Name"},
	reflect.TypeFor[event.Background]():   {"Call", "Name"},
	reflect.TypeFor[event.Elicitation]():  {"Call", "Server"},
	reflect.TypeFor[event.Sampling]():     {"Call", "Server", "Model"},
	reflect.TypeFor[event.Sub]():          {"Call", "Event"},
	reflect.TypeFor[stateJSON]():          {"ID", "Run", "Scope", "Seal", "Handed"},
	reflect.TypeFor[backgroundCall]():     {"ID", "Tool"},
	reflect.TypeFor[openCall]():           {"ID", "Name", "Tool"},
	reflect.TypeFor[message.Message]():    {"ID", "Name", "Model"},
	reflect.TypeFor[message.Text]():       {"ID"},
	reflect.TypeFor[message.Hint]():       {"ID", "Source"},
	reflect.TypeFor[message.Thinking]():   {"ID"},
	reflect.TypeFor[message.Data]():       {"ID", "MediaType"},
	reflect.TypeFor[message.ToolCall]():   {"ID", "Name"},
	reflect.TypeFor[message.ToolResult](): {"ID", "Name"},
	reflect.TypeFor[permission.Rule]():    {"Tool"},
}

// redactValue returns v without secrets, and whether it had any. Strings of named types are constants, and stay.
func redactValue(r *redact.Redactor, v reflect.Value) (clean reflect.Value, found bool) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			if s := r.Text(v.String()); s != v.String() {
				return reflect.ValueOf(s), true
			}
		}
	case reflect.Interface:
		return redactValue(r, v.Elem())
	case reflect.Pointer:
		return redactPointer(r, v)
	case reflect.Struct:
		return redactFields(r, v)
	case reflect.Slice:
		return redactSlice(r, v)
	case reflect.Map:
		return redactMap(r, v)
	}
	return v, false
}

// redactMap also redacts the keys. It sorts them, so that if two become equal, always the same one is kept.
func redactMap(r *redact.Redactor, v reflect.Value) (clean reflect.Value, found bool) {
	clean = reflect.MakeMap(v.Type())
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		name, renamed := redactValue(r, key)
		elem, changed := redactValue(r, v.MapIndex(key))
		clean.SetMapIndex(name, elem)
		found = found || renamed || changed
	}
	return clean, found
}

func redactPointer(r *redact.Redactor, v reflect.Value) (clean reflect.Value, found bool) {
	switch x := v.Interface().(type) {
	case *message.Text: // a fast path: a result may have many thousands
		if s := r.Text(x.Text); s != x.Text {
			return reflect.ValueOf(&message.Text{ID: x.ID, Text: s}), true
		}
		return v, false
	case *message.Data: // images have no text
		if s := string(x.Bytes); strings.HasPrefix(x.MediaType, "text/") && r.Text(s) != s {
			x = new(*x)
			x.Bytes, v, found = []byte(r.Text(s)), reflect.ValueOf(x), true
		}
	case *openCall:
		if clean := redactedSubState(r, x.Sub); !bytes.Equal(clean, x.Sub) {
			x = new(*x)
			x.Sub, v, found = clean, reflect.ValueOf(x), true
		}
	}
	elem, changed := redactValue(r, v.Elem())
	if !changed {
		return v, found
	}
	switch x := elem.Addr().Interface().(type) {
	case *message.Thinking:
		x.Extra = nil // it may repeat the text, and a signature would no longer match
	case *message.ToolCall:
		if !bytes.Equal(x.Extra, v.Interface().(*message.ToolCall).Extra) {
			x.Extra = nil // providers accept it only unchanged
		}
	case *event.ToolResult:
		x.Text = r.Text(x.Result.Text()) // a secret may be spread over several blocks
	}
	return elem.Addr(), true
}

func redactFields(r *redact.Redactor, v reflect.Value) (clean reflect.Value, found bool) {
	t := v.Type()
	skip := notRedacted[t]
	for i := range t.NumField() {
		if f := t.Field(i); !f.IsExported() || slices.Contains(skip, f.Name) {
			continue
		}
		field, changed := redactValue(r, v.Field(i))
		if changed && !found {
			clean, found = reflect.New(t).Elem(), true
			clean.Set(v)
		}
		if changed {
			clean.Field(i).Set(field)
		}
	}
	return clean, found
}

func redactSlice(r *redact.Redactor, v reflect.Value) (clean reflect.Value, found bool) {
	switch list := v.Interface().(type) {
	case json.RawMessage:
		if !json.Valid(list) { // escape sequences in invalid JSON are ambiguous
			return reflect.ValueOf(json.RawMessage(nil)), len(list) > 0
		}
		data := json.RawMessage(r.JSON(list))
		return reflect.ValueOf(data), !bytes.Equal(data, list)
	case []byte:
		return v, false
	case []permission.Rule:
		rules := redactRules(r, list)
		v, found = reflect.ValueOf(rules), !slices.Equal(rules, list)
	}
	clean = reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	reflect.Copy(clean, v)
	if blocks, ok := clean.Interface().(message.Blocks); ok { // first, since the rest of a secret is not found without its beginning
		found = redactAcross(r, blocks)
	}
	for i := range v.Len() {
		if elem, changed := redactValue(r, clean.Index(i)); changed {
			clean.Index(i).Set(elem)
			found = true
		}
	}
	return clean, found
}

// redactedSubState returns the State of a sub-agent without secrets. A search of its JSON would miss secrets
// in files, or in several pieces.
func redactedSubState(r *redact.Redactor, state json.RawMessage) json.RawMessage {
	var sub State
	if state == nil || json.Unmarshal(state, &sub) != nil {
		return state
	}
	sub.cleaner.use(r)
	clean, err := json.Marshal(&sub)
	if err != nil {
		return nil
	}
	return clean
}

// redactAcross removes secrets that are spread over consecutive texts, as a tool may
// send each piece as a separate block, and reports whether there were any.
func redactAcross(r *redact.Redactor, blocks message.Blocks) (found bool) {
	for from := 0; from < len(blocks); {
		to, s := from, r.Stream()
		var all strings.Builder // a result may have many thousand pieces
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
				found = true
				for i, text := range texts {
					blocks[from+i] = &message.Text{ID: blocks[from+i].BlockID(), Text: text}
				}
			}
		}
		from = to + 1
	}
	return found
}

// redactRules returns rules without secrets. An allow rule with a secret is dropped; a deny or
// ask rule with a secret is extended to every call of its tool.
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
