package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Args are the arguments of a call, ready to be judged and run.
type Args struct {
	// JSON is an object that fits the tool's schema. If nothing was repaired, JSON shares the memory of the model's text
	// and must not be changed.
	JSON json.RawMessage

	// Repaired lists the repairs of what the model sent, a phrase each. JSON that fits the schema is never changed.
	Repaired []string
}

// An ArgumentError means that arguments are invalid. Its text is for the model: what is
// wrong, where, and what is allowed.
type ArgumentError struct {
	Text string

	// Truncated says that the arguments were cut off, usually by the limit of output tokens. The call is never run: what
	// is left of its arguments may look right.
	Truncated bool
}

func (e *ArgumentError) Error() string { return e.Text }

// Arguments returns valid arguments for t from what a model sent: repaired if that is safe, and checked against
// the schema. The error is an [*ArgumentError]. Empty input is the empty object. It is safe for concurrent use.
//
// The schema may be untrusted. It is compiled once, however often its tool is listed; references to files and URLs are
// not loaded, and keywords that Go cannot check are ignored.
func Arguments(t Tool, raw json.RawMessage) (Args, error) {
	info := t.Info()
	return validators.get(info.Input).arguments(info.Name, raw)
}

// arguments tries, in this order, the bytes as they are, the repaired value, and the coerced value.
func (v *validator) arguments(name string, raw json.RawMessage) (args Args, err error) {
	defer func() {
		if p := recover(); p != nil { // in the validator, on an unusual schema
			args, err = Args{}, refuse("The arguments of %s cannot be checked: %v", name, p)
		}
	}()
	if v.err != nil {
		return Args{}, refuse("The tool %s cannot be called: %v", name, v.err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	var notes []string
	if !utf8.Valid(raw) { // required by RFC 8259 and by model APIs
		raw, notes = bytes.ToValidUTF8(raw, []byte("\uFFFD")), []string{"invalid UTF-8"}
	}
	parsed, more, err := v.read(name, raw)
	if err != nil {
		return Args{}, err
	}
	if more != nil { // it was not JSON: the repaired value runs
		raw, notes = parsed.appendJSON(nil), append(notes, more...)
	}
	if parsed.kind == objectValue && v.validate(parsed.generic()) == nil {
		return Args{JSON: raw, Repaired: notes}, nil
	}
	// Only values that do not fit are changed: a "3" stays a text if the schema allows one.
	c := coercer{validator: v, notes: notes}
	parsed = c.coerceArguments(parsed)
	if parsed.kind != objectValue {
		return Args{}, refuse("The arguments of %s must be a JSON object, not %s.%s", name, article([]string{parsed.kind.String()}), v.advice())
	}
	if violation := v.validate(parsed.generic()); violation != nil {
		return Args{}, &ArgumentError{Text: v.explain(name, parsed, violation)}
	}
	return Args{JSON: parsed.appendJSON(nil), Repaired: c.notes}, nil
}

// read parses what the model sent. The notes list the repairs, and are nil if raw was JSON. The error is an
// [*ArgumentError].
func (v *validator) read(name string, raw json.RawMessage) (parsed *value, notes []string, err error) {
	parsed, err = parseValue(raw)
	if err == nil {
		return parsed, nil, nil
	}
	if json.Valid(raw) { // it has a field twice, is nested too deep or has a number out of range
		return nil, nil, refuse("The arguments of %s cannot be used: %v. Correct that and call it again.", name, err)
	}
	fixed, r, repairErr := repair(raw)
	switch {
	case repairErr != nil:
		return nil, nil, refuse("The arguments of %s are %v, and %v.%s", name, err, repairErr, v.advice())
	case r.truncated:
		e := refuse("The arguments of %s were cut off after %d bytes, so nothing was run. Send the whole call again; if it is long, do the work in smaller pieces.", name, len(raw))
		e.Truncated = true
		return nil, nil, e
	}
	if len(r.notes) == 0 { // it was not JSON, so something was left out
		r.note("characters that JSON does not know")
	}
	return fixed, r.notes, nil
}

func refuse(format string, a ...any) *ArgumentError {
	return &ArgumentError{Text: fmt.Sprintf(format, a...)}
}

// advice shows an example of valid arguments, for arguments so wrong that naming single fields would not help.
func (v *validator) advice() string {
	if e := v.requiredExample(); e != "" {
		return " A valid example: " + e
	}
	return ""
}
