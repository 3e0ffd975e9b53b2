package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// value draws the JSON of any value, in the form in which json.Marshal writes it, except that members may be
// in any order.
func value(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := []string{"null", "true", "0", "1", `""`, `"\u003ca\u003e"`, `"\u2028\n"`}
		if depth > 0 {
			kinds = append(kinds, "array", "object", "object", "object")
		}
		switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
		case "array":
			return "[" + strings.Join(rapid.SliceOfN(value(depth-1), 0, 5).Draw(t, "array"), ",") + "]"
		case "object":
			return object(depth, rapid.Bool().Draw(t, "sorted")).Draw(t, "object")
		default:
			return kind
		}
	})
}

func object(depth int, sorted bool) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", ""}), 0, 5, rapid.ID).Draw(t, "names")
		if sorted {
			slices.Sort(names)
		}
		for i, name := range names {
			names[i] = fmt.Sprintf("%q:%s", name, value(depth-1).Draw(t, name))
		}
		return "{" + strings.Join(names, ",") + "}"
	})
}

// TestChange draws two objects: the change makes one into the other, byte for byte, even after it was encoded
// to JSON, and an object has no change from itself.
func TestChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old := []byte(object(4, true).Draw(t, "old"))
		new := []byte(object(4, true).Draw(t, "new"))
		data := changeOf(t, old, new)
		var c change
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatal(err)
		}
		if c.empty() != bytes.Equal(old, new) {
			t.Fatalf("change %s of %s to %s", data, old, new)
		}
		n := &node{raw: old}
		if err := n.apply(&c); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(n); err != nil || !bytes.Equal(got, new) {
			t.Fatalf("%s with %s is %s, want %s (%v)", old, data, got, new, err)
		}
	})
}

func changeOf(t interface{ Fatal(...any) }, old, new []byte) []byte {
	c, err := diff(&node{raw: old}, &node{raw: new})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestChangeIsSmall(t *testing.T) {
	for _, row := range []struct{ old, new, want string }{
		{`{"a":1,"b":2}`, `{"a":1,"b":3}`, `{"set":{"b":3}}`},
		{`{"a":1,"b":2}`, `{"b":2}`, `{"unset":["a"]}`},
		{`{"a":{"x":1,"y":[1]}}`, `{"a":{"x":2,"y":[1]}}`, `{"in":{"a":{"set":{"x":2}}}}`},
		{`{"a":{"y":[1],"x":1}}`, `{"a":{"y":[1],"x":2}}`, `{"set":{"a":{"y":[1],"x":2}}}`},
		{`{"a":[1,2,3]}`, `{"a":[1,9,3]}`, `{"splice":{"a":{"at":1,"drop":1,"put":[9]}}}`},
		{`{"a":[1,2]}`, `{"a":[1,2,3]}`, `{"splice":{"a":{"at":2,"put":[3]}}}`},
		{`{"a":[1,1,1]}`, `{"a":[1]}`, `{"splice":{"a":{"at":1,"drop":2}}}`},
		{`{"a":[1]}`, `{"a":null}`, `{"set":{"a":null}}`},
		{`{"a":null}`, `{"a":[1]}`, `{"set":{"a":[1]}}`},
	} {
		if got := string(changeOf(t, []byte(row.old), []byte(row.new))); got != row.want {
			t.Errorf("%s to %s: %s, want %s", row.old, row.new, got, row.want)
		}
	}
}

func TestChangeThatDoesNotFit(t *testing.T) {
	for _, row := range []struct{ change, want string }{
		{`{"splice":{"x":{"at":0}}}`, "does not exist"},
		{`{"in":{"x":{}}}`, "does not exist"},
		{`{"in":{"a":null}}`, "does not exist"},
		{`{"splice":{"a":{"at":3,"put":[1]}}}`, "replaces 0 items from index 3 on, but the array has 2"},
		{`{"splice":{"a":{"at":1,"drop":2}}}`, "replaces 2 items from index 1 on, but the array has 2"},
		{`{"splice":{"a":{"at":-1,"drop":1}}}`, "replaces"},
		{`{"splice":{"a":{"at":1,"drop":-1}}}`, "replaces"},
		{`{"splice":{"b":{"at":0}}}`, "cannot unmarshal"},
		{`{"in":{"a":{"set":{"x":1}}}}`, "cannot unmarshal"},
	} {
		var c change
		if err := json.Unmarshal([]byte(row.change), &c); err != nil {
			t.Fatal(err)
		}
		err := (&node{raw: json.RawMessage(`{"a":[1,2],"b":1}`)}).apply(&c)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.change, err, row.want)
		}
	}
}
