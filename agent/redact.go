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

// secretRemoved is the result of a call whose arguments were saved with a placeholder for a secret: the tool would
// take the placeholder for the secret.
const secretRemoved = "Not run: the arguments contained a secret, which was removed when the conversation was saved. Make the call again with the secret."

// A stateRedactor removes secrets from the JSON of a State; the State itself keeps them. It caches the redacted
// messages, since each save may encode all messages.
type stateRedactor struct {
	r     *redact.Redactor                      // nil if nothing is to be removed
	mu    sync.Mutex                            // guards cache: several goroutines may encode a State between runs
	cache map[*message.Message]*message.Message // from a message to its redacted form
}

// use sets the Redactor, also for encoding the State after the run.
func (sr *stateRedactor) use(r *redact.Redactor) {
	if sr.r != r {
		sr.r, sr.cache = r, nil
	}
}

// messages returns msgs without secrets. total is the number of messages in the State.
func (sr *stateRedactor) messages(msgs []*message.Message, total int) []*message.Message {
	sr.mu.Lock()
	defer sr.mu.Unlock()
	if sr.cache == nil || len(sr.cache) > 2*total { // compactions have replaced most of the cached messages
		sr.cache = make(map[*message.Message]*message.Message, total)
	}
	out := slices.Clone(msgs)
	for i, m := range msgs {
		clean, ok := sr.cache[m]
		if !ok {
			clean = redacted(sr.r, m)
			sr.cache[m] = clean
		}
		out[i] = clean
	}
	return out
}

// redacted returns a copy of v without secrets, or v itself if it has none: stores recognize messages by their pointers.
func redacted[T any](r *redact.Redactor, v T) T {
	if r == nil {
		return v
	}
	if clean, found := redactValue(r, reflect.ValueOf(&v).Elem()); found {
		return clean.Interface().(T)
	}
	return v
}

// notRedacted has, by type, the fields that are not searched for secrets: ids and names, which connect calls with
// results; digests, media types and the names of open groups; and a sub-agent's event, which the sub-agent's run has
// redacted.
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
	reflect.TypeFor[stateJSON]():          {"ID", "Run", "Scope", "Seal", "HandoffPath"},
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

// redactMap also redacts the keys. If two keys become equal, the value of the greater key is kept.
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

// redactPointer also redacts what redactFields cannot: file contents, the State of a sub-agent, and fields that depend
// on a redacted one.
func redactPointer(r *redact.Redactor, v reflect.Value) (clean reflect.Value, found bool) {
	switch x := v.Interface().(type) {
	case *message.Text: // without reflection: a result may have thousands of texts
		if s := r.Text(x.Text); s != x.Text {
			return reflect.ValueOf(&message.Text{ID: x.ID, Text: s}), true
		}
		return v, false
	case *message.Data: // the bytes of images are not searched
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
		x.Extra = nil // may repeat the text, or be a signature of the unchanged text
	case *message.ToolCall:
		if !bytes.Equal(x.Extra, v.Interface().(*message.ToolCall).Extra) {
			x.Extra = nil // providers reject an Extra that was changed
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
		if !json.Valid(list) { // removed: without syntax, escape sequences that may hide a secret cannot be read
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
	if blocks, ok := clean.Interface().(message.Blocks); ok { // before single blocks: part of a secret is not recognized
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

// redactedSubState returns the State of a sub-agent without secrets. Redacting it as JSON would miss secrets in files,
// and secrets that are spread over several texts.
func redactedSubState(r *redact.Redactor, state json.RawMessage) json.RawMessage {
	var sub State
	if state == nil || json.Unmarshal(state, &sub) != nil {
		return state // redactFields then redacts it as JSON
	}
	sub.redactor.use(r)
	clean, err := json.Marshal(&sub)
	if err != nil {
		return nil // rather than a State with secrets
	}
	return clean
}

// redactAcross removes secrets that are spread over consecutive texts, and reports whether it found any: a tool may
// send each piece of its output as a block.
func redactAcross(r *redact.Redactor, blocks message.Blocks) (found bool) {
	for from := 0; from < len(blocks); {
		to, stream := from, r.Stream()
		var original strings.Builder
		var texts []string // redacted
		for ; to < len(blocks); to++ {
			b, ok := blocks[to].(*message.Text)
			if !ok {
				break
			}
			original.WriteString(b.Text)
			texts = append(texts, stream.Write(b.Text))
		}
		if n := len(texts); n > 1 {
			texts[n-1] += stream.Close()
			if strings.Join(texts, "") != original.String() {
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

// redactRules returns rules without secrets. With a placeholder in its pattern, a rule would match other calls: an allow
// rule with a secret is dropped, and a deny or ask rule with a secret then applies to every call of its tool.
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
