package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/kitbag-go/kitbag/tool"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

type order struct {
	Customer string   `json:"customer" jsonschema_description:"the customer's number"`
	Item     string   `json:"item"`
	Count    int      `json:"count" jsonschema:"minimum=1"`
	Price    float64  `json:"price,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	Express  bool     `json:"express,omitempty"`
	Address  struct {
		Street string `json:"street"`
		City   string `json:"city"`
	} `json:"address"`
}

// orderJSON has 200 bytes.
const orderJSON = `{"customer":"C-20391","item":"a box of pencils, soft","count":12,"price":19.9,"tags":["office","gift"],"express":true,"address":{"street":"12 Long Street, second floor","city":"Port Stanley"}, "x":0 }`

var orderInput = json.RawMessage(bytes.Replace([]byte(orderJSON), []byte(`, "x":0 `), []byte(`          `), 1))

func orderTool() tool.Tool {
	return tool.Must(tool.New("order", "Orders.", func(_ context.Context, in order) (string, error) { return in.Item, nil }))
}

func callOrder(tb testing.TB, t tool.Tool) {
	args, err := tool.Arguments(t, orderInput)
	if err != nil {
		tb.Fatal(err)
	}
	for c, err := range tool.Run(context.Background(), t, tool.Call{ID: "1", Name: "order", Input: args.JSON}) {
		if err != nil || c.Failed {
			tb.Fatal(c, err)
		}
	}
}

// BenchmarkCall is compared with BenchmarkCallParts, which has only the
// decoding and the validation of the arguments.
func BenchmarkCall(b *testing.B) {
	t := orderTool()
	b.ReportAllocs()
	for b.Loop() {
		callOrder(b, t)
	}
}

func compiled(tb testing.TB, schema json.RawMessage) *validator.Schema {
	doc, err := validator.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		tb.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("mem:///x", doc); err != nil {
		tb.Fatal(err)
	}
	s, err := c.Compile("mem:///x")
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func BenchmarkCallParts(b *testing.B) {
	s := compiled(b, orderTool().Info().Input)
	b.ReportAllocs()
	for b.Loop() {
		var in order
		if err := json.Unmarshal(orderInput, &in); err != nil {
			b.Fatal(err)
		}
		v, err := validator.UnmarshalJSON(bytes.NewReader(orderInput))
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNew makes a tool of a known type, and BenchmarkFirstNew of a new one. They are compared with
// BenchmarkNewParts, which reflects the type with the library alone and compiles the schema.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		orderTool().Info()
	}
}

func BenchmarkFirstNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if err := tool.FirstUse(reflect.TypeFor[order]()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewParts(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		s := (&jsonschema.Reflector{Anonymous: true, DoNotReference: true}).Reflect(order{})
		raw, err := json.Marshal(s)
		if err != nil {
			b.Fatal(err)
		}
		compiled(b, raw)
	}
}

// BenchmarkArguments checks arguments that need no repair. It is compared
// with BenchmarkJSONValid.
func BenchmarkArguments(b *testing.B) {
	t := orderTool()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tool.Arguments(t, orderInput); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJSONValid(b *testing.B) {
	for b.Loop() {
		if !json.Valid(orderInput) {
			b.Fatal("not valid")
		}
	}
}

// BenchmarkValid checks arguments that need no repair, with a schema of one keyword. It is compared
// with BenchmarkValidParts.
func BenchmarkValid(b *testing.B) {
	t := bare{`{"type":"object","minProperties":1}`}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tool.Arguments(t, orderInput); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidParts(b *testing.B) {
	s := compiled(b, json.RawMessage(`{"type":"object","minProperties":1}`))
	b.ReportAllocs()
	for b.Loop() {
		if !json.Valid(orderInput) {
			b.Fatal("not valid")
		}
		v, err := validator.UnmarshalJSON(bytes.NewReader(orderInput))
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			b.Fatal(err)
		}
	}
}
