// Package strictjson rejects JSON that this program and another one, such as a proxy or an audit, could read
// differently. Of two members with the same name package encoding/json uses the last, and it accepts "Method" and
// "argumentſ" for method and arguments; other programs may not.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// ErrAmbiguous means that another program could read the JSON differently.
var ErrAmbiguous = errors.New("ambiguous JSON")

// A Head has the members that determine the kind of a JSON-RPC message.
type Head struct {
	ID     []byte // as written; nil if absent
	Method bool   // whether there is a method

	kinds int // how many of method, result and error are present
}

// Message checks a JSON-RPC message: no object in it, at any depth, has two members of the same name, its own members
// are spelled exactly as in the specification, and it has only one of method, result and error. It does not report
// invalid JSON.
func Message(data []byte) (Head, error) {
	var h Head
	err := check(data, &h)
	return h, err
}

// Members checks that no object in data, at any depth, has two members of the same name.
func Members(data []byte) error { return check(data, nil) }

// Unmarshal is [json.Unmarshal], but refuses a member whose name differs from one of v's
// only in case. It does not look for duplicate members; see [Message].
func Unmarshal(data []byte, v any) error {
	if shape := shapeOf(reflect.TypeOf(v)); shape != nil {
		s := scanner{data: data}
		if err := s.value(shape); err != nil && !errors.Is(err, errBroken) {
			return err
		}
	}
	return json.Unmarshal(data, v)
}

var (
	messageMembers = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	errorMembers   = []string{"code", "message", "data"}
)

// fewMembers is the size of an object up to which its members are compared one by one.
const fewMembers = 8

// An openObject is an object whose end check has not reached.
type openObject struct {
	first int             // the index in check's names of the object's first member
	seen  map[string]bool // nil up to fewMembers
}

// check looks for names in one pass: a string followed by a colon is a name.
func check(data []byte, head *Head) error {
	var open []openObject // the outermost first
	var names [][]byte
	top := "" // the member of the message that is being read
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{':
			open = append(open, openObject{first: len(names)})
			if head != nil && len(open) == 1 {
				head.kinds = 0
			}
		case '}':
			if len(open) > 0 {
				last := len(open) - 1
				names, open = names[:open[last].first], open[:last]
			}
		case '"':
			end := StringEnd(data, i)
			text := data[i:end]
			i = end - 1
			if len(open) == 0 || !ColonFollows(data, end) {
				continue
			}
			name := decodeName(text)
			o := &open[len(open)-1]
			if o.has(names, name) {
				return fmt.Errorf("%w: the member %.60q occurs twice in one object", ErrAmbiguous, name)
			}
			names = append(names, name)
			var known []string
			switch {
			case head != nil && len(open) == 1:
				top, known = string(name), messageMembers
				if head.note(top, data[end:]); head.kinds > 1 {
					return fmt.Errorf("%w: a message has one of method, result and error, not two", ErrAmbiguous)
				}
			case head != nil && len(open) == 2 && top == "error":
				known = errorMembers
			}
			if err := checkSpelling(name, known); err != nil {
				return err
			}
		}
	}
	return nil
}

// note records a member in the head. rest is the JSON after the member's name.
func (h *Head) note(name string, rest []byte) {
	s := scanner{data: rest[bytes.IndexByte(rest, ':')+1:]}
	s.space()
	switch name {
	case "method", "result", "error":
		if !bytes.HasPrefix(s.data[s.i:], []byte("null")) { // some clients write null for an absent member
			h.Method = h.Method || name == "method"
			h.kinds++
		}
		return
	case "id":
	default:
		return
	}
	from := s.i
	if s.skip() == nil {
		h.ID = bytes.TrimRight(s.data[from:s.i], " \t\r\n")
	}
}

// has reports whether the object has a member of that name. If the object has many members, has adds the name to seen.
func (o *openObject) has(names [][]byte, name []byte) bool {
	own := names[o.first:]
	if len(own) < fewMembers {
		return slices.ContainsFunc(own, func(n []byte) bool { return bytes.Equal(n, name) })
	}
	if o.seen == nil {
		o.seen = make(map[string]bool, 2*fewMembers)
		for _, n := range own {
			o.seen[string(n)] = true
		}
	}
	had := o.seen[string(name)]
	o.seen[string(name)] = true
	return had
}

func checkSpelling(name []byte, known []string) error {
	if slices.ContainsFunc(known, func(k string) bool { return string(name) == k }) {
		return nil
	}
	for _, k := range known {
		if strings.EqualFold(string(name), k) {
			return fmt.Errorf("%w: the member %.60q must be written %q", ErrAmbiguous, name, k)
		}
	}
	return nil
}

// StringEnd returns the offset after the string that starts at i; len(data) if it does not end.
func StringEnd(data []byte, i int) int {
	for i++; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(data))
}

// ColonFollows reports whether the first character from i on that is not white space is a colon.
func ColonFollows(data []byte, i int) bool {
	for i < len(data) && data[i] <= ' ' {
		i++
	}
	return i < len(data) && data[i] == ':'
}

// decodeName reads a string as encoding/json does, in which two different names that are
// not UTF-8 may become equal.
func decodeName(text []byte) []byte {
	var name string
	if bytes.IndexByte(text, '\\') >= 0 || !utf8.Valid(text) {
		if json.Unmarshal(text, &name) == nil {
			return []byte(name)
		}
	}
	return text[1:max(1, len(text)-1)]
}

// A shape has the names of the JSON members of a type; nil for a type without any.
type shape struct {
	members map[string]*shape // of a struct
	names   []string
	each    *shape // of the elements of a slice or map
}

var shapes sync.Map // reflect.Type → *shape

// shapeOf returns the shape of a type, which must not be recursive.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	var s *shape
	switch {
	case t.Kind() == reflect.Pointer:
		s = shapeOf(t.Elem())
	case t.Implements(reflect.TypeFor[json.Unmarshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
	case t.Kind() == reflect.Struct:
		s = &shape{members: map[string]*shape{}}
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if name != "" && name != "-" && t.Field(i).IsExported() {
				s.members[name] = shapeOf(t.Field(i).Type)
				s.names = append(s.names, name)
			}
		}
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Map:
		if each := shapeOf(t.Elem()); each != nil {
			s = &shape{each: each}
		}
	}
	shapes.Store(t, s)
	return s
}

// errBroken means invalid JSON, for which the decoder has a better message.
var errBroken = errors.New("invalid JSON")

// A scanner walks through the parts of JSON for which a shape has names.
type scanner struct {
	data []byte
	i    int
}

// space skips white space and returns the next byte; 0 at the end.
func (s *scanner) space() byte {
	for s.i < len(s.data) && s.data[s.i] <= ' ' {
		s.i++
	}
	if s.i == len(s.data) {
		return 0
	}
	return s.data[s.i]
}

// value skips one value, and checks the names that the shape has.
func (s *scanner) value(as *shape) error {
	switch c := s.space(); {
	case c == '{' && as != nil:
		return s.object(as)
	case c == '[' && as != nil && as.each != nil:
		return s.list(as.each)
	}
	return s.skip()
}

func (s *scanner) object(as *shape) error {
	for s.i++; s.space() != '}'; {
		if s.space() == ',' {
			s.i++
			s.space()
		}
		if s.i >= len(s.data) || s.data[s.i] != '"' {
			return errBroken
		}
		end := StringEnd(s.data, s.i)
		name := decodeName(s.data[s.i:end])
		s.i = end
		if s.space() != ':' {
			return errBroken
		}
		s.i++
		within, known := as.members[string(name)]
		if !known {
			if within = as.each; within == nil { // the names in a map are free
				if err := checkSpelling(name, as.names); err != nil {
					return err
				}
			}
		}
		if err := s.value(within); err != nil {
			return err
		}
	}
	s.i++
	return nil
}

func (s *scanner) list(each *shape) error {
	for s.i++; s.space() != ']'; {
		if s.space() == ',' {
			s.i++
		}
		if err := s.value(each); err != nil {
			return err
		}
	}
	s.i++
	return nil
}

// skip skips a value of unknown type.
func (s *scanner) skip() error {
	began, depth := s.i, 0
	for s.i < len(s.data) {
		switch c := s.data[s.i]; c {
		case '"':
			s.i = StringEnd(s.data, s.i)
			if depth == 0 {
				return nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 0 {
				if s.i == began {
					return errBroken
				}
				return nil
			}
			if c != ',' {
				if depth--; depth == 0 {
					s.i++
					return nil
				}
			}
		}
		s.i++
	}
	if depth > 0 || s.i == began {
		return errBroken
	}
	return nil
}

// Canonical returns the canonical form of a JSON value: its members are sorted, it has no white space and no unnecessary
// escapes; numbers keep their digits. It is nil for invalid JSON.
func Canonical(data []byte) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	if _, err := d.Token(); err != io.EOF { // something follows the value
		return nil
	}
	out, _ := Encode(v) // cannot fail for a decoded value
	return out
}

// Encode is [json.Marshal] without escapes of <, > and &, which matter only in web pages.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
