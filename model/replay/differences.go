package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// differences describes how a request differs from a recorded request, for the error of a failed test.
type differences struct {
	lines []string // for each difference: where it is, the recorded value, the new value
	size  int      // a measure for finding the most similar request: 1 for each difference, and the bytes that differ
}

// differences returns how r differs from a recorded request.
func (r *request) differences(recorded *request) differences {
	var d differences
	if r.Method != recorded.Method || r.Path != recorded.Path {
		d.add("method and path", recorded.Method+" "+recorded.Path, r.Method+" "+r.Path)
	}
	oldBody, newBody := recorded.Body.bytes(), r.Body.bytes()
	oldValue, oldErr := decode(oldBody)
	newValue, newErr := decode(newBody)
	if oldErr == nil && newErr == nil {
		d.compare("", oldValue, newValue)
	} else if !bytes.Equal(oldBody, newBody) {
		d.add("the body", string(oldBody), string(newBody))
	}
	return d
}

// add adds a difference. Of long texts only the part around the first byte that differs is shown.
func (d *differences) add(where, oldText, newText string) {
	same := 0 // the length of the common prefix
	for same < min(len(oldText), len(newText)) && oldText[same] == newText[same] {
		same++
	}
	d.size += 1 + len(oldText) + len(newText) - 2*same
	const shownBefore = 30
	start := max(0, same-shownBefore)
	d.lines = append(d.lines, fmt.Sprintf("%s: recorded %s, now %s", where, excerpt(oldText, start), excerpt(newText, start)))
}

// compare adds the differences of two JSON values. where is their path, such as messages[2].content; the path of the
// whole body is empty.
func (d *differences) compare(where string, oldValue, newValue any) {
	switch oldValue := oldValue.(type) {
	case map[string]any:
		if newValue, ok := newValue.(map[string]any); ok {
			d.compareObjects(where, oldValue, newValue)
			return
		}
	case []any:
		if newValue, ok := newValue.([]any); ok {
			d.compareArrays(where, oldValue, newValue)
			return
		}
	}
	if oldJSON, newJSON := asJSON(oldValue), asJSON(newValue); oldJSON != newJSON {
		d.add(cmp.Or(where, "the body"), oldJSON, newJSON)
	}
}

// absent is the value of a missing member or item.
type absent struct{}

// compareObjects compares two objects, in the order of the names.
func (d *differences) compareObjects(where string, oldObject, newObject map[string]any) {
	all := maps.Clone(oldObject)
	maps.Copy(all, newObject)
	if where != "" {
		where += "."
	}
	member := func(object map[string]any, name string) any {
		if v, ok := object[name]; ok {
			return v
		}
		return absent{}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d.compare(where+name, member(oldObject, name), member(newObject, name))
	}
}

// compareArrays compares two arrays by index, so a missing item makes all later items differ.
func (d *differences) compareArrays(where string, oldItems, newItems []any) {
	item := func(items []any, i int) any {
		if i < len(items) {
			return items[i]
		}
		return absent{}
	}
	for i := range max(len(oldItems), len(newItems)) {
		d.compare(fmt.Sprintf("%s[%d]", where, i), item(oldItems, i), item(newItems, i))
	}
}

func asJSON(v any) string {
	if v == (absent{}) {
		return "nothing"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error() // unreachable: v was decoded from JSON
	}
	return string(data)
}

// excerpt returns about 120 bytes of s from start, with … where text is left out.
func excerpt(s string, start int) string {
	const length = 120
	end := min(len(s), start+length)
	// Move both ends to the start of a character.
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
