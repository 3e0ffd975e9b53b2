package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// This file describes how a request differs from a recorded one, in the error of a failed
// test: which member, the recorded value, the new value.

// differences returns how r differs from a recorded request, one line for each difference.
func (r *request) differences(recorded *request) differences {
	var d differences
	if r.Method != recorded.Method || r.Path != recorded.Path {
		d.add("method and path", recorded.Method+" "+recorded.Path, r.Method+" "+r.Path)
	}
	a, errA := decode(recorded.Body.bytes())
	b, errB := decode(r.Body.bytes())
	if errA == nil && errB == nil {
		d.compare("", a, b)
	} else if a, b := string(recorded.Body.bytes()), string(r.Body.bytes()); a != b {
		d.add("the body", a, b)
	}
	return d
}

// differences are those between two requests.
type differences struct {
	lines []string // a description of each
	size  int      // the number of bytes that differ, for finding the most similar request
}

// add adds a difference at a path. Long texts are shortened to the part around the first byte that differs.
func (d *differences) add(where, recorded, now string) {
	same := 0
	for same < min(len(recorded), len(now)) && recorded[same] == now[same] {
		same++
	}
	d.size += 1 + len(recorded) + len(now) - 2*same
	const before = 30
	start := max(0, same-before)
	d.lines = append(d.lines, fmt.Sprintf("%s: recorded %s, now %s", where, cut(recorded, start), cut(now, start)))
}

// compare adds the differences of two JSON values at a path such as messages[2].content.
func (d *differences) compare(where string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			d.members(where, a, b)
			return
		}
	case []any:
		if b, ok := b.([]any); ok {
			d.elements(where, a, b)
			return
		}
	}
	if x, y := asJSON(a), asJSON(b); x != y {
		if where == "" {
			where = "the body"
		}
		d.add(where, x, y)
	}
}

// absent is the value of a missing member or element.
type absent struct{}

// members compares two objects, in the order of the names.
func (d *differences) members(where string, a, b map[string]any) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	if where != "" {
		where += "."
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		x, y := any(absent{}), any(absent{})
		if v, ok := a[name]; ok {
			x = v
		}
		if v, ok := b[name]; ok {
			y = v
		}
		d.compare(where+name, x, y)
	}
}

// elements compares two lists by index, so a missing element makes all later ones differ.
func (d *differences) elements(where string, a, b []any) {
	for i := range max(len(a), len(b)) {
		x, y := any(absent{}), any(absent{})
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		d.compare(fmt.Sprintf("%s[%d]", where, i), x, y)
	}
}

func asJSON(v any) string {
	if _, ok := v.(absent); ok {
		return "nothing"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// cut returns about 120 bytes of s from start, with … where it is cut.
func cut(s string, start int) string {
	const length = 120
	end := min(len(s), start+length)
	for start > 0 && start < len(s) && !utf8.RuneStart(s[start]) {
		start--
	}
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	out := s[start:end]
	if start > 0 {
		out = "…" + out
	}
	if end < len(s) {
		out += "…"
	}
	return out
}
