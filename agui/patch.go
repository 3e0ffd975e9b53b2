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

// diff returns the operations that change one JSON document into another. Lists are replaced as a whole.
func diff(from, to json.RawMessage) ([]patch, error) {
	a, err := generic(from)
	if err != nil {
		return nil, err
	}
	b, err := generic(to)
	if err != nil {
		return nil, err
	}
	return appendDiff(nil, "", a, b)
}

// generic decodes JSON without changing its numbers.
func generic(data json.RawMessage) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

func appendDiff(list []patch, path string, a, b any) ([]patch, error) {
	if reflect.DeepEqual(a, b) {
		return list, nil
	}
	from, isObject := a.(map[string]any)
	to, becomesObject := b.(map[string]any)
	if !isObject || !becomesObject {
		value, err := json.Marshal(b)
		return append(list, patch{"replace", path, value}), err
	}
	for _, k := range slices.Sorted(maps.Keys(from)) {
		if _, ok := to[k]; !ok {
			list = append(list, patch{Op: "remove", Path: path + "/" + pointer.Replace(k)})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(to)) {
		at := path + "/" + pointer.Replace(k)
		old, ok := from[k]
		if !ok {
			value, err := json.Marshal(to[k])
			if err != nil {
				return nil, err
			}
			list = append(list, patch{"add", at, value})
			continue
		}
		var err error
		if list, err = appendDiff(list, at, old, to[k]); err != nil {
			return nil, err
		}
	}
	return list, nil
}
