package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	"github.com/kitbag-go/kitbag/tool"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

type (
	node struct {
		Name string  `json:"name"`
		Kids []*node `json:"kids,omitempty"`
	}
	forest struct {
		Trees map[string]node `json:"trees"`
		Other *pairOf[inner]  `json:"other"`
	}
	pairOf[T any] struct {
		First T          `json:"first"`
		Next  *pairOf[T] `json:"next"`
	}
	inner struct {
		A int `json:"a"`
	}
	base struct {
		ID      string `json:"id" jsonschema_description:"an id"`
		Shadow  int    `json:"shadow"`
		Ignored string `json:"-"`
	}
	embedding struct {
		Shadow string `json:"shadow"`
		base
		*Exported
	}
	Exported struct {
		Extra bool `json:"extra,omitempty"`
	}
	level  string
	color  int
	shade  int
	wrong  int
	custom struct{ raw string }
	own    struct{}
	unit   struct{}
)

func (level) Enum() []any                      { return []any{"low", "high"} }
func (color) Enum() []any                      { return []any{color(0), color(1)} }
func (c color) MarshalText() ([]byte, error)   { return []byte([]string{"red", "blue"}[c]), nil }
func (c *color) UnmarshalText(b []byte) error  { return oneOf((*int)(c), string(b), "red", "blue") }
func (shade) Enum() []any                      { return []any{"light", "dark"} }
func (s *shade) UnmarshalText(b []byte) error  { return oneOf((*int)(s), string(b), "light", "dark") }
func (wrong) Enum() []any                      { return []any{0, "dark"} }
func (w *wrong) UnmarshalText(b []byte) error  { return oneOf((*int)(w), string(b), "light") }
func (c *custom) UnmarshalJSON(b []byte) error { c.raw = string(b); return nil }
func (*own) JSONSchema() *jsonschema.Schema    { return &jsonschema.Schema{Type: "string", Pattern: "^o"} }
func (o *own) UnmarshalText([]byte) error      { return nil }
func (unit) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Ref: "#/$defs/node", Definitions: jsonschema.Definitions{"node": {Type: "string"}}}
}

func oneOf(n *int, text string, names ...string) error {
	if *n = slices.Index(names, text); *n < 0 {
		return fmt.Errorf("%q is none of %q", text, names)
	}
	return nil
}

// input returns a tool with the input type In.
func input[In any](t *testing.T) (tool.Tool, error) {
	t.Helper()
	return tool.New("probe", "Probes.", func(context.Context, In) (string, error) { return "", nil })
}

// TestSchemas covers the types and tags that schema generators get wrong, each with the whole
// schema.
func TestSchemas(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(*testing.T) (tool.Tool, error)
		want string
	}{
		{"description with comma, quote and newline", input[struct {
			A string `json:"a" jsonschema_description:"one, \"two\",\nthree=3"`
		}], `{"properties":{"a":{"type":"string","description":"one, \"two\",\nthree=3"}},"additionalProperties":false,"type":"object","required":["a"]}`},
		{"description in the jsonschema tag is not cut at a comma", input[struct {
			A int `json:"a" jsonschema:"description=first, then second,minimum=1"`
		}], `{"properties":{"a":{"type":"integer","minimum":1,"description":"first, then second"}},"additionalProperties":false,"type":"object","required":["a"]}`},
		{"a tag that is prose", input[struct {
			A int `json:"a" jsonschema:"the number, in metres"`
		}], `{"properties":{"a":{"type":"integer","description":"the number, in metres"}},"additionalProperties":false,"type":"object","required":["a"]}`},
		{"enum, default, range, pattern, length", input[struct {
			U string   `json:"u" jsonschema:"enum=c,enum=f,default=c"`
			N float64  `json:"n" jsonschema:"minimum=0.5,exclusiveMaximum=9,multipleOf=0.5"`
			P string   `json:"p" jsonschema:"pattern=^[a-z]{1,3}$,minLength=1,maxLength=3"`
			L []string `json:"l" jsonschema:"minItems=1,maxItems=2,enum=x,enum=y"`
		}], `{"properties":{"u":{"type":"string","enum":["c","f"],"default":"c"},"n":{"type":"number","multipleOf":0.5,"exclusiveMaximum":9,"minimum":0.5},"p":{"type":"string","maxLength":3,"minLength":1,"pattern":"^[a-z]{1,3}$"},"l":{"items":{"type":"string","enum":["x","y"]},"type":"array","maxItems":2,"minItems":1}},"additionalProperties":false,"type":"object","required":["u","n","p","l"]}`},
		{"optional", input[struct {
			A string  `json:"a,omitempty"`
			B *int    `json:"b"`
			C float64 `json:"c,omitzero"`
			D *string `json:"d" jsonschema:"required"`
		}], `{"properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"number"},"d":{"type":"string"}},"additionalProperties":false,"type":"object","required":["d"]}`},
		{"embedded structs are flattened, outer fields win", input[embedding],
			`{"properties":{"shadow":{"type":"string"},"id":{"type":"string","description":"an id"},"extra":{"type":"boolean"}},"additionalProperties":false,"type":"object","required":["shadow","id"]}`},
		{"a field that is embedded twice but hidden", input[twiceButHidden],
			`{"properties":{"ID":{"type":"integer"}},"additionalProperties":false,"type":"object","required":["ID"]}`},
		{"nested, slices, maps", input[struct {
			In   inner            `json:"in"`
			List []inner          `json:"list"`
			Map  map[string]inner `json:"map"`
			Any  map[string]any   `json:"any"`
			Ints map[int]bool     `json:"ints"`
			Arr  [2]float32       `json:"arr"`
		}], `{"properties":{"in":{"properties":{"a":{"type":"integer"}},"additionalProperties":false,"type":"object","required":["a"]},"list":{"items":{"properties":{"a":{"type":"integer"}},"additionalProperties":false,"type":"object","required":["a"]},"type":"array"},"map":{"additionalProperties":{"properties":{"a":{"type":"integer"}},"additionalProperties":false,"type":"object","required":["a"]},"type":"object"},"any":{"type":"object"},"ints":{"additionalProperties":{"type":"boolean"},"propertyNames":{"pattern":"^-?[0-9]+$"},"type":"object"},"arr":{"items":{"type":"number"},"type":"array","maxItems":2,"minItems":2}},"additionalProperties":false,"type":"object","required":["in","list","map","any","ints","arr"]}`},
		{"time, duration, bytes, raw, any, number, text", input[struct {
			T   time.Time       `json:"t"`
			D   time.Duration   `json:"d"`
			B   []byte          `json:"b"`
			R   json.RawMessage `json:"r"`
			A   any             `json:"a"`
			N   json.Number     `json:"n"`
			IP  netip.Addr      `json:"ip"`
			Big *big.Int        `json:"big"`
			Q   int             `json:"q,string"`
			U   uint8           `json:"u"`
		}], `{"properties":{"t":{"type":"string","format":"date-time"},"d":{"type":"string","pattern":"^-?(0|([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$","examples":["1m30s"]},"b":{"type":"string","contentEncoding":"base64"},"r":{},"a":{},"n":{"type":"number"},"ip":{"type":"string"},"big":{"type":"integer"},"q":{"type":"string","pattern":"^-?[0-9]+$"},"u":{"type":"integer","maximum":255,"minimum":0}},"additionalProperties":false,"type":"object","required":["t","d","b","r","a","n","ip","q","u"]}`},
		{"types with methods", input[struct {
			L level  `json:"l"`
			C custom `json:"c"`
			O own    `json:"o"`
		}], `{"properties":{"l":{"type":"string","enum":["low","high"]},"c":{},"o":{"type":"string","pattern":"^o"}},"additionalProperties":false,"type":"object","required":["l","c","o"]}`},
		{"constants written as text", input[struct {
			C color `json:"c"`
			S shade `json:"s"`
		}], `{"properties":{"c":{"type":"string","enum":["red","blue"]},"s":{"type":"string","enum":["light","dark"]}},"additionalProperties":false,"type":"object","required":["c","s"]}`},
		{"recursive root", input[node],
			`{"properties":{"name":{"type":"string"},"kids":{"items":{"$ref":"#"},"type":"array"}},"additionalProperties":false,"type":"object","required":["name"]}`},
		{"recursive below, generic with a clean name", input[forest],
			`{"$defs":{"node":{"properties":{"name":{"type":"string"},"kids":{"items":{"$ref":"#/$defs/node"},"type":"array"}},"additionalProperties":false,"type":"object","required":["name"]},"pairOfinner":{"properties":{"first":{"properties":{"a":{"type":"integer"}},"additionalProperties":false,"type":"object","required":["a"]},"next":{"$ref":"#/$defs/pairOfinner"}},"additionalProperties":false,"type":"object","required":["first"]}},"properties":{"trees":{"additionalProperties":{"$ref":"#/$defs/node"},"type":"object"},"other":{"$ref":"#/$defs/pairOfinner"}},"additionalProperties":false,"type":"object","required":["trees"]}`},
		{"a type with a definition, in two fields", input[struct {
			A unit   `json:"a"`
			B []unit `json:"b"`
		}], `{"$defs":{"node":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/node"},"b":{"items":{"$ref":"#/$defs/node"},"type":"array"}},"additionalProperties":false,"type":"object","required":["a","b"]}`},
		{"a definition with the name of a recursive type", input[struct {
			A unit `json:"a"`
			B node `json:"b"`
		}], `{"$defs":{"node":{"type":"string"},"node2":{"properties":{"name":{"type":"string"},"kids":{"items":{"$ref":"#/$defs/node2"},"type":"array"}},"additionalProperties":false,"type":"object","required":["name"]}},"properties":{"a":{"$ref":"#/$defs/node"},"b":{"$ref":"#/$defs/node2"}},"additionalProperties":false,"type":"object","required":["a","b"]}`},
		{"no arguments", input[struct{}], `{"properties":{},"additionalProperties":false,"type":"object"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			tl, err := row.make(t)
			if err != nil {
				t.Fatal(err)
			}
			got := tl.Info().Input
			if string(got) != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			validSchema(t, got)
		})
	}
}

// validSchema checks against the meta-schema of draft 2020-12, which the
// validator carries.
func validSchema(t *testing.T, raw json.RawMessage) {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	meta, err := c.Compile("https://json-schema.org/draft/2020-12/schema")
	if err != nil {
		t.Fatal(err)
	}
	if err := meta.Validate(doc); err != nil {
		t.Errorf("%s\ndoes not fit the meta-schema: %v", raw, err)
	}
}

type (
	cyclicMap  map[string]cyclicMap
	cyclicList []cyclicList
	left       struct{ A int }
	right      struct{ A int }
	ambiguous  struct {
		left
		right
	}
	shared  struct{ ID string }
	sharedA struct{ shared }
	sharedB struct{ shared }
	twice   struct {
		sharedA
		sharedB
	}
	twiceButHidden struct {
		twice
		ID int
	}
)

// TestTypesThatCannotBe has types that New refuses: the error must name the field
// and the type.
func TestTypesThatCannotBe(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(*testing.T) (tool.Tool, error)
		want []string // what the error must name
	}{
		{"enum", input[struct{ Lines []struct{ Shade wrong } }], []string{"Lines[].Shade", "cannot be read from", "let Enum return"}},
		{"chan", input[struct{ Lines []struct{ Price chan int } }], []string{"Lines[].Price", "chan int"}},
		{"func", input[struct{ F func() }], []string{"field F", "func()"}},
		{"complex", input[struct{ C map[string]complex128 }], []string{"C[]", "complex128"}},
		{"interface with methods", input[struct{ E error }], []string{"field E", "error"}},
		{"cyclic map", input[struct{ M cyclicMap }], []string{"field M[]", "cyclicMap"}},
		{"cyclic list", input[struct{ M cyclicList }], []string{"field M[]", "cyclicList"}},
		{"odd keys", input[struct{ M map[float64]int }], []string{"field M", "float64"}},
		{"two fields of one name", input[struct{ X ambiguous }], []string{"left.A", "right.A"}},
		{"one struct embedded twice", input[twice], []string{"shared.ID", "twice"}},
		{"not an object", input[[]string], []string{"[]string", "struct"}},
		{"a keyword that does not exist", input[struct {
			A int `jsonschema:"minimun=3"`
		}], []string{"field A", "minimun", "did you mean minimum?"}},
		{"pattern that does not compile", input[struct {
			A string `jsonschema:"pattern=("`
		}], []string{"field A", "pattern", "missing closing )"}},
		{"pattern of a list's items", input[struct {
			A []string `jsonschema:"pattern=(?!x)"`
		}], []string{"field A", "pattern", "(?!"}},
		{"a keyword of another type", input[struct {
			A string `jsonschema:"minimum=3"`
		}], []string{"field A", "minimum", "string"}},
		{"a default of another type", input[struct {
			A int `jsonschema:"default=many"`
		}], []string{"field A", "default", "int"}},
		{"bounds without a value between them", input[struct {
			A int `jsonschema:"minimum=5,maximum=3"`
		}], []string{"field A", "minimum", "maximum"}},
		{"open bounds", input[struct {
			A float64 `jsonschema:"exclusiveMinimum=3,maximum=3"`
		}], []string{"field A", "exclusiveMinimum"}},
		{"a number of items", input[struct {
			A []string `jsonschema:"minItems=3,maxItems=1"`
		}], []string{"field A", "minItems"}},
		{"multiples of nothing", input[struct {
			A int `jsonschema:"multipleOf=0"`
		}], []string{"field A", "multipleOf"}},
		{"a default out of bounds", input[struct {
			A int `json:",omitempty" jsonschema:"default=9,maximum=3"`
		}], []string{"field A", "default: got 9, want at most 3"}},
		{"a default that is no choice", input[struct {
			A string `json:",omitempty" jsonschema:"default=c,enum=a,enum=b"`
		}], []string{"field A", "default", `"a", "b"`}},
		{"a default of a number in a string", input[struct {
			A int `json:",string,omitempty" jsonschema:"default=9"`
		}], []string{"field A", "default"}},
		{"choices without the pattern", input[struct {
			A []string `jsonschema:"enum=a,enum=b,pattern=^[0-9]+$"`
		}], []string{"field A", "enum", "pattern"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := row.make(t)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range row.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not name %q", err, w)
				}
			}
		})
	}
}

// TestNames has names that New refuses, and the reasons in the error.
func TestNames(t *testing.T) {
	fn := func(context.Context, struct{}) (string, error) { return "", nil }
	for name, want := range map[string]string{
		"":                      "name is empty",
		strings.Repeat("x", 65): "at most 64",
		"a b":                   "' '",
		"a.b":                   `"."`,
		"größe":                 "'ö'",
	} {
		if _, err := tool.New(name, "d", fn); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("name %q: error %v, want one with %s", name, err, want)
		}
	}
	if _, err := tool.New(strings.Repeat("x", 64), "d", fn); err != nil {
		t.Error(err)
	}
}
