package tool

import "errors"

// array reads what follows an opening bracket, or the parenthesis of a tuple. Either closing sign ends it.
func (r *repairer) array(end byte) (*value, error) {
	r.arrays++
	defer func() { r.arrays-- }()
	v := &value{kind: arrayValue}
	for comma := true; ; {
		r.space()
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

// item reads one item of an array, and reports whether the array ends, because the text does or
// because the item is the next key of the object around the array.
func (r *repairer) item(list *value) (done bool, err error) {
	item, err := r.value(valueInArray)
	if err != nil || r.truncated || r.pending != nil {
		return true, err
	}
	if r.space(); r.peek(0) == ':' && item.kind == stringValue && r.objects > 0 {
		r.note("missing bracket")
		key := item.text()
		r.pending = &key
		return true, nil
	}
	list.items = append(list.items, item)
	return false, nil
}
