package agui

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// A patch is an operation of a JSON Patch (RFC 6902).
type patch struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// diff returns the operations that change one JSON document into another. A list that differs is replaced as a whole.
func diff(from, to json.RawMessage) ([]patch, error) {
	a, err := decodeAny(from)
	if err != nil {
		return nil, err
	}
	b, err := decodeAny(to)
	if err != nil {
		return nil, err
	}
	return appendDiff(nil, "", a, b)
}

// decodeAny decodes JSON, keeping its numbers as they are written.
func decodeAny(data json.RawMessage) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// pointerEscaper escapes a member's name for a JSON Pointer (RFC 6901).
var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

func appendDiff(list []patch, path string, a, b any) ([]patch, error) {
	if reflect.DeepEqual(a, b) {
		return list, nil
	}
	from, wasObject := a.(map[string]any)
	to, isObject := b.(map[string]any)
	if !wasObject || !isObject {
		value, err := json.Marshal(b)
		return append(list, patch{"replace", path, value}), err
	}
	for _, k := range slices.Sorted(maps.Keys(from)) {
		if _, ok := to[k]; !ok {
			list = append(list, patch{Op: "remove", Path: path + "/" + pointerEscaper.Replace(k)})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(to)) {
		memberPath := path + "/" + pointerEscaper.Replace(k)
		var err error
		if old, ok := from[k]; ok {
			list, err = appendDiff(list, memberPath, old, to[k])
		} else {
			var value json.RawMessage
			value, err = json.Marshal(to[k])
			list = append(list, patch{"add", memberPath, value})
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
