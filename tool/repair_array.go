package tool

import "errors"

// array reads what follows the opening bracket of a list, closed by ']', or of a Python tuple, closed by ')'. It
// accepts either bracket for both.
func (r *repairer) array(closing byte) (*value, error) {
	r.arrays++
	defer func() { r.arrays-- }()
	v := &value{kind: arrayValue}
	for wantComma := false; ; {
		r.skipSpace()
		switch c := r.peek(0); {
		case r.eof():
			r.truncated = true
			return v, nil
		case c == ']', c == ')':
			if !wantComma && len(v.items) > 0 && closing == ']' { // the tuple (1,) needs its comma
				r.note("trailing comma")
			}
			r.pos++
			return v, nil
		// {"a": [1, 2}: the brace closes the object around the array.
		case c == '}' && r.objects > 0:
			r.note("missing bracket")
			return v, nil
		case c == '}':
			r.note("extra bracket")
			r.pos++
			continue
		case c == ':':
			return v, errors.New("it has a colon inside a list")
		case c == ',' || c == ';':
			if !wantComma || c == ';' {
				r.note("extra comma")
			}
			wantComma = false
			r.pos++
			continue
		case r.hasPrefix("..."), r.hasPrefix("…"): // the model abbreviated the list
			r.note("ellipsis")
			r.pos += len("...") // which is also len("…")
			continue
		}
		if wantComma {
			r.note("missing comma")
		}
		wantComma = true
		if arrayEnds, err := r.item(v); arrayEnds || err != nil {
			return v, err
		}
	}
}

// item reads one item and appends it to list. It reports whether the array ends, because the text ends, or because the
// item is a key of the object around the array: then the array's closing bracket is missing.
func (r *repairer) item(list *value) (arrayEnds bool, err error) {
	item, err := r.value(valueInArray)
	if err != nil || r.truncated || r.pendingKey != nil {
		return true, err
	}
	if r.skipSpace(); r.peek(0) == ':' && item.kind == stringValue && r.objects > 0 {
		r.note("missing bracket")
		key := item.text()
		r.pendingKey = &key
		return true, nil
	}
	list.items = append(list.items, item)
	return false, nil
}
