package tool

import "errors"

// array reads what follows the opening bracket of a list, whose end is ']', or of a tuple, whose end is ')'. It accepts
// the other one too.
func (r *repairer) array(end byte) (*value, error) {
	r.arrays++
	defer func() { r.arrays-- }()
	v := &value{kind: arrayValue}
	for comma := true; ; {
		r.skipSpace()
		switch c := r.peek(0); {
		case r.eof():
			r.truncated = true
			return v, nil
		case c == end, c == ']', c == ')':
			if comma && len(v.items) > 0 && end == ']' {
				r.note("trailing comma")
			}
			r.i++
			return v, nil
		// {"a": [1, 2}: the brace closes the object around the array.
		case c == '}' && r.objects > 0:
			r.note("missing bracket")
			return v, nil
		case c == '}':
			r.note("extra bracket")
			r.i++
			continue
		case c == ':':
			return v, errors.New("it has a colon inside a list")
		case c == ',' || c == ';':
			if comma || c == ';' {
				r.note("extra comma")
			}
			comma = true
			r.i++
			continue
		case r.hasPrefix("..."), r.hasPrefix("…"): // the model left out the rest, which is not known
			r.note("ellipsis")
			r.i += len("...") // which is also len("…")
			continue
		}
		if !comma {
			r.note("missing comma")
		}
		comma = false
		done, err := r.item(v)
		if done || err != nil {
			return v, err
		}
	}
}

// item reads one item of an array. It reports whether the array ends: because the text ends, or because what it read is
// a key of the object around the array, whose bracket was missing.
func (r *repairer) item(list *value) (done bool, err error) {
	item, err := r.value(valueInArray)
	if err != nil || r.truncated || r.pending != nil {
		return true, err
	}
	if r.skipSpace(); r.peek(0) == ':' && item.kind == stringValue && r.objects > 0 {
		r.note("missing bracket")
		key := item.text()
		r.pending = &key
		return true, nil
	}
	list.items = append(list.items, item)
	return false, nil
}
