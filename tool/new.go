package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/invopop/jsonschema"
	"github.com/kitbag-go/kitbag/message"
)

// Options say more about a tool that New makes. The zero Options are those of
// a tool that may change anything and runs alone.
type Options struct {
	Title    string // for people; empty for none
	ReadOnly bool   // changes nothing, whatever its arguments
	Parallel bool   // may run beside other calls of the same answer
	Control  bool   // only steers the agent itself; see [permission.Call]
}

// New makes a tool of a function. In must be a struct, whose JSON Schema
// becomes the tool's input schema. Out is a string, which the model reads as it
// is, or any value that encodes to JSON. At most one Options may be given.
func New[In, Out any](name, description string, fn func(context.Context, In) (Out, error), opts ...Options) (Tool, error) {
	return NewStream(name, description, func(ctx context.Context, in In) iter.Seq2[Chunk, error] {
		return func(yield func(Chunk, error) bool) {
			out, err := fn(ctx, in)
			if err != nil {
				yield(Chunk{}, err)
				return
			}
			yield(resultChunk(out))
		}
	}, opts...)
}

// NewStream is like New for a function that returns its result in pieces.
func NewStream[In any](name, description string, fn func(context.Context, In) iter.Seq2[Chunk, error], opts ...Options) (Tool, error) {
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: true}
	s := r.Reflect(new(In))
	s.Version = ""
	schema, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", name, err)
	}
	t := &function[In]{info: Info{Name: name, Description: description, Input: schema}, fn: fn}
	switch len(opts) {
	case 0:
	case 1:
		o := opts[0]
		t.info.Title, t.info.ReadOnly, t.info.Parallel, t.info.Control = o.Title, o.ReadOnly, o.Parallel, o.Control
	default:
		return nil, fmt.Errorf("tool %q: %d Options given; put them into one", name, len(opts))
	}
	return t, nil
}

// Must returns t, or panics if err is not nil.
func Must(t Tool, err error) Tool {
	if err != nil {
		panic(err)
	}
	return t
}

type function[In any] struct {
	info Info
	fn   func(context.Context, In) iter.Seq2[Chunk, error]
}

func (f *function[In]) Info() Info { return f.info }

func (f *function[In]) Call(ctx context.Context, call Call) iter.Seq2[Chunk, error] {
	var in In
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return func(yield func(Chunk, error) bool) { yield(Chunk{}, fmt.Errorf("arguments: %w", err)) }
	}
	return f.fn(ctx, in)
}

func resultChunk(out any) (Chunk, error) {
	if s, ok := out.(string); ok {
		return Text(s), nil
	}
	data, err := json.Marshal(out)
	if err != nil {
		return Chunk{}, fmt.Errorf("encode the result: %w", err)
	}
	return Chunk{Block: &message.Text{Text: string(data)}, Structured: data}, nil
}
