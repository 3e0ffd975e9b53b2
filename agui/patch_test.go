package agui

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// TestDiff applies each patch, as RFC 6902 says, and compares the result.
func TestDiff(t *testing.T) {
	value := rapid.Deferred(func() *rapid.Generator[any] { return document(3) })
	rapid.Check(t, func(t *rapid.T) {
		from, to := encode(t, value.Draw(t, "from")), encode(t, value.Draw(t, "to"))
		list, err := diff(from, to)
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		decode(t, from, &got)
		decode(t, to, &want)
		for _, p := range list {
			var v any
			if p.Op != "remove" {
				decode(t, p.Value, &v)
			}
			got = apply(t, got, p.Op, strings.Split(p.Path, "/")[1:], v)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s becomes %v, not %s: %v", from, got, to, list)
		}
	})
}

func document(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Just[any](true), rapid.Map(rapid.IntRange(0, 3), func(n int) any { return n }))
	if depth == 0 {
		return leaf
	}
	key := rapid.SampledFrom([]string{"a", "b", "a/b", "~", "~1", ""})
	object := rapid.Map(rapid.MapOfN(key, document(depth-1), 0, 4), func(m map[string]any) any { return m })
	list := rapid.Map(rapid.SliceOfN(document(depth-1), 0, 2), func(l []any) any { return l })
	return rapid.OneOf(object, object, list, leaf)
}

func encode(t *rapid.T, v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decode(t *rapid.T, data json.RawMessage, v any) {
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

func apply(t *rapid.T, doc any, op string, path []string, v any) any {
	if len(path) == 0 {
		return v
	}
	object, ok := doc.(map[string]any)
	key := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	old, exists := object[key]
	if !ok || exists == (op == "add" && len(path) == 1) {
		t.Fatalf("%s of %q in %v", op, key, doc)
	}
	if len(path) == 1 && op == "remove" {
		delete(object, key)
	} else {
		object[key] = apply(t, old, op, path[1:], v)
	}
	return object
}
