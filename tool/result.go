package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/kitbag-go/kitbag/message"
)

// A Result is what a function may return instead of a text or a value: several blocks, images, blocks for the user only,
// a failure.
type Result struct {
	Blocks  []message.Block // for the model: [*message.Text] and [*message.Data]
	ForUser []message.Block // for the user only

	// Structured is the result as a value that encodes to JSON; nil for none.
	// The model reads it if there are no Blocks.
	Structured any

	Failed bool // the call failed; Blocks say why
	Pinned bool // the result must never be cut; see [Chunk]
	Meta   map[string]json.RawMessage
}

// emit yields the result of a function, by its type. A nil result, of type any or error, becomes the text "done": a
// model that gets an empty result repeats the call.
func emit(out any, err error, yield func(Chunk, error) bool) {
	if err != nil {
		yield(Chunk{}, err)
		return
	}
	switch out := out.(type) {
	case string:
		yield(Text(out), nil)
	case *Result:
		if out == nil {
			out = &Result{}
		}
		out.emit(yield)
	case Result:
		out.emit(yield)
	case message.Block:
		yield(Chunk{Block: out}, nil)
	case error:
		yield(Chunk{}, out)
	case nil:
		yield(Text("done"), nil)
	default:
		data, err := encode(out)
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		yield(Chunk{Block: &message.Text{Text: string(data)}, Structured: data}, nil)
	}
}

// emit yields a chunk with the facts about the result, then the blocks. So a consumer that stops early knows whether the
// call failed.
func (r *Result) emit(yield func(Chunk, error) bool) {
	facts := Chunk{Failed: r.Failed, Pinned: r.Pinned, Meta: r.Meta}
	if r.Structured != nil {
		var err error
		if facts.Structured, err = encode(r.Structured); err != nil {
			yield(Chunk{}, err)
			return
		}
		if len(r.Blocks) == 0 {
			facts.Block = &message.Text{Text: string(facts.Structured)}
		}
	}
	if !yield(facts, nil) {
		return
	}
	for i, b := range slices.Concat(r.Blocks, r.ForUser) {
		if !yield(Chunk{Block: b, ForUser: i >= len(r.Blocks)}, nil) {
			return
		}
	}
}

// encode returns the JSON of v, without escapes for HTML, which models would have to decode.
func encode(v any) (json.RawMessage, error) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.buf.Reset()
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	data := bytes.Clone(bytes.TrimSuffix(e.buf.Bytes(), []byte("\n")))
	if len(data) > 64<<10 { // do not keep the memory of a large result
		e.buf = bytes.Buffer{}
	}
	return data, nil
}

// An encoder is pooled, so that its buffer is reused.
type encoder struct {
	*json.Encoder // writes into buf
	buf           bytes.Buffer
}

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.Encoder = json.NewEncoder(&e.buf)
	e.SetEscapeHTML(false)
	return e
}}

// outputTypeOf returns the outputType of t, or nil if values of t are not JSON objects: MCP allows an output schema only
// for objects. The error names a field that JSON cannot express.
func outputTypeOf(t reflect.Type) (*outputType, error) {
	t = deref(t)
	if v, ok := outputTypes.Load(t); ok {
		return v.(*outputType), nil
	}
	output, err := newOutputType(t)
	if err == nil {
		outputTypes.Store(t, output)
	}
	return output, err
}

// newOutputType makes the value that outputTypeOf caches.
func newOutputType(t reflect.Type) (*outputType, error) {
	isBlock := reflect.PointerTo(t).Implements(reflect.TypeFor[message.Block]())
	isError := reflect.PointerTo(t).Implements(reflect.TypeFor[error]())
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map || t == reflect.TypeFor[Result]() || isBlock || isError {
		return nil, nil
	}
	if (&reflector{forResult: true}).leafSchema(t) != nil { // a time or a type with its own JSON method: not known to be an object
		return nil, nil
	}
	s, err := reflectSchema(t, true)
	if err != nil {
		return nil, err
	}
	return &outputType{s}, nil
}
