package openai

import (
	"bytes"
	"encoding/json"
)

// A usual reads chunks and whole answers of the form that most servers send: known
// members only, one choice. It takes a tenth of the time of encoding/json
// and allocates little but the text. All else is left to encoding/json, so that
// whatever it accepts must come out the same from there; FuzzUsual checks that.
type usual struct {
	rest []byte // of the payload
	chunk
	choice [1]choice
	delta  delta
	calls  [1]callDelta
	usage  usage

	id, model lenient // of an earlier chunk: they are the same in all of an answer
	name      lenient // of an earlier call

	slabs *slabs // for the text of arguments; nil makes each a string of its own
}

// indexes are pointed to by chunks, instead of a new int for each.
var indexes = func() (a [64]int) {
	for i := range a {
		a[i] = i
	}
	return a
}()

// decode returns the chunk in a payload, or nil if it is not a usual one. The
// chunk is valid until the next call, and shares memory with the payload. The payload need
// not be JSON; where it is not, what comes out is nil.
func (u *usual) decode(payload []byte) *chunk {
	*u = usual{rest: payload, id: u.id, model: u.model, name: u.name, slabs: u.slabs}
	if !u.object(u.member) || len(bytes.TrimLeft(u.rest, " \t\r\n")) > 0 {
		return nil
	}
	return &u.chunk
}

// The functions for members read the value of the one that is named, into the chunk, and
// return false for one that they don't know or that is not as usual.

// member is for those of a chunk.
func (u *usual) member(name []byte) bool {
	switch string(name) {
	case "id":
		return u.same(&u.ID, &u.id)
	case "model":
		return u.same(&u.Model, &u.model)
	case "object", "service_tier", "system_fingerprint", "obfuscation":
		return u.null() || u.plain() != nil
	case "created":
		_, ok := u.number()
		return ok
	case "choices":
		if u.Choices != nil || !u.take('[') {
			return false
		}
		u.Choices = u.choice[:0]
		if u.take(']') {
			return true
		}
		u.Choices = u.choice[:]
		return u.object(u.choiceMember) && u.take(']')
	case "usage":
		if u.null() {
			return true
		}
		u.Usage = &u.usage
		return u.object(u.usageMember)
	}
	return false
}

// choiceMember is for those of a choice.
func (u *usual) choiceMember(name []byte) (ok bool) {
	c := &u.choice[0]
	switch string(name) {
	case "index":
		c.Index, ok = u.number()
		return ok
	case "delta", "message":
		to := &c.Delta
		if name[0] == 'm' {
			to = &c.Message
		}
		if *to == nil && (c.Delta != nil || c.Message != nil) { // there is memory for one
			return false
		}
		*to = &u.delta
		return u.object(u.deltaMember)
	case "finish_reason":
		return u.text((*string)(&c.FinishReason))
	case "logprobs":
		return u.null()
	}
	return false
}

// deltaMember is for those of a delta or a whole message.
func (u *usual) deltaMember(name []byte) bool {
	d := &u.delta
	switch string(name) {
	case "role":
		return u.null() || u.plain() != nil
	case "content":
		if u.null() {
			d.Content = []byte("null")
			return true
		}
		d.Content = u.quoted()
		escaped := bytes.IndexByte(d.Content, '\\') >= 0
		return d.Content != nil && (!escaped || json.Valid(d.Content))
	case "refusal":
		return u.text((*string)(&d.Refusal))
	case "reasoning":
		return u.text((*string)(&d.Reasoning))
	case "reasoning_content":
		return u.text((*string)(&d.ReasoningContent))
	case "tool_calls":
		if d.ToolCalls != nil || !u.take('[') {
			return false
		}
		d.ToolCalls = u.calls[:0]
		for {
			d.ToolCalls = append(d.ToolCalls, callDelta{})
			if !u.object(u.callMember) {
				return false
			}
			if !u.take(',') {
				return u.take(']')
			}
		}
	case "annotations", "audio", "function_call": // where there are none
		return u.null() || u.take('[') && u.take(']')
	}
	return false
}

// lastCall is the one that is being read.
func (u *usual) lastCall() *callDelta { return &u.delta.ToolCalls[len(u.delta.ToolCalls)-1] }

// callMember is for those of a tool call.
func (u *usual) callMember(name []byte) bool {
	c := u.lastCall()
	switch string(name) {
	case "index":
		n, ok := u.number()
		if !ok || n >= len(indexes) {
			return false
		}
		c.Index = &indexes[n]
		return true
	case "id":
		return u.text((*string)(&c.ID))
	case "type":
		return u.null() || u.plain() != nil
	case "function":
		return u.object(u.functionMember)
	}
	return false
}

// functionMember is for those of a call's function.
func (u *usual) functionMember(name []byte) bool {
	c := u.lastCall()
	switch string(name) {
	case "name":
		return u.same(&c.Name, &u.name)
	case "arguments":
		return u.arguments(&c.Args)
	}
	return false
}

// usageMember is for those of the usage.
func (u *usual) usageMember(name []byte) (ok bool) {
	switch string(name) {
	case "prompt_tokens":
		u.usage.Prompt, ok = u.number()
	case "completion_tokens":
		u.usage.Completion, ok = u.number()
	case "total_tokens":
		_, ok = u.number()
	case "prompt_tokens_details", "completion_tokens_details":
		if u.null() {
			return true
		}
		prompt := name[0] == 'p'
		return u.object(func(name []byte) (ok bool) { return u.detail(prompt, name) })
	}
	return ok
}

// detail is for those of the usage's details: of the prompt, or of the answer. Both may have
// all names, but each is counted in one of them only.
func (u *usual) detail(prompt bool, name []byte) bool {
	n, ok := u.number()
	switch string(name) {
	case "cached_tokens":
		if prompt {
			u.usage.PromptDetails.Cached = n
		}
	case "cache_write_tokens":
		if prompt {
			u.usage.PromptDetails.CacheWrite = n
		}
	case "reasoning_tokens":
		if !prompt {
			u.usage.CompletionDetails.Reasoning = n
		}
	case "audio_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens":
	default:
		return false
	}
	return ok
}

// object reads an object. The function reads the value of the named member.
func (u *usual) object(member func(name []byte) bool) bool {
	if !u.take('{') {
		return false
	}
	if u.take('}') {
		return true
	}
	for {
		name := u.plain()
		if name == nil || !u.take(':') || !member(name[1:len(name)-1]) {
			return false
		}
		if !u.take(',') {
			return u.take('}')
		}
	}
}

// take reads a character that follows after any space.
func (u *usual) take(c byte) bool {
	i := u.space()
	if i == len(u.rest) || u.rest[i] != c {
		return false
	}
	u.rest = u.rest[i+1:]
	return true
}

// space returns how much white space comes next.
func (u *usual) space() (i int) {
	for i < len(u.rest) && (u.rest[i] == ' ' || u.rest[i] == '\n' || u.rest[i] == '\t' || u.rest[i] == '\r') {
		i++
	}
	return i
}

// null reads a null, if there is one.
func (u *usual) null() bool {
	rest, ok := bytes.CutPrefix(u.rest[u.space():], []byte("null"))
	if ok {
		u.rest = rest
	}
	return ok
}

// number reads a number that is a count: without a sign, a point or an exponent, and of 15
// digits at most, so that it fits.
func (u *usual) number() (n int, ok bool) {
	digits := u.rest[u.space():]
	i := 0
	for i < len(digits) && i < 15 && '0' <= digits[i] && digits[i] <= '9' {
		n = 10*n + int(digits[i]-'0')
		i++
	}
	u.rest = digits[i:]
	return n, i == 1 || i > 1 && digits[0] != '0'
}

// plain reads a string without escapes, and returns it with its quotes; nil for
// anything else.
func (u *usual) plain() []byte {
	s := u.quoted()
	if bytes.IndexByte(s, '\\') >= 0 {
		return nil
	}
	return s
}

// quoted reads a string, and returns it with its quotes; nil for anything else. Whether its
// escapes are valid is for whoever unquotes it.
func (u *usual) quoted() []byte {
	b := u.rest[u.space():]
	if len(b) == 0 || b[0] != '"' {
		return nil
	}
	for i := 1; i < len(b); i++ {
		switch {
		case b[i] == '"':
			u.rest = b[i+1:]
			return b[: i+1 : i+1]
		case b[i] == '\\':
			i++
		case b[i] < ' ':
			return nil
		}
	}
	return nil
}

// text reads a string into s; null leaves it.
func (u *usual) text(s *string) bool {
	if u.null() {
		return true
	}
	quoted := u.quoted()
	return quoted != nil && unquote(quoted, s) == nil
}

// arguments is text that is handed on at once, and so may share its memory.
func (u *usual) arguments(s *argumentText) bool {
	if u.slabs == nil {
		return u.text((*string)(s))
	}
	if u.null() {
		return true
	}
	before := u.rest
	quoted := u.quoted()
	if quoted == nil {
		return false
	}
	if text, n, ok := u.slabs.unquote(quoted[1:]); ok && n == len(quoted)-2 {
		*s = argumentText(text)
		return true
	}
	u.rest = before
	return u.text((*string)(s))
}

// same is text where an earlier string, last, is likely to come again.
func (u *usual) same(s, last *lenient) bool {
	if u.null() {
		return true
	}
	quoted := u.plain()
	if quoted == nil {
		return false
	}
	if string(quoted[1:len(quoted)-1]) != string(*last) && unquote(quoted, (*string)(last)) != nil {
		return false
	}
	*s = *last
	return true
}
