package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync"
)

// Options say more about a tool that New makes. The zero Options are those of
// a tool that may change anything and runs alone.
type Options struct {
	Title    string // for people; empty for none
	ReadOnly bool   // changes nothing, whatever its arguments
	Parallel bool   // may run beside other calls of the same answer
	Control  bool   // only steers the agent itself; see [permission.Call]

	Idempotent bool // may be made again after a crash; see [IdempotentChecker] and [IdempotencyKey]
}

// New makes a tool of a function. In must be a struct, whose JSON Schema
// becomes the tool's input schema; the package doc says how. Out is a string,
// which the model reads as it is, a [*Result], an error, or any value that
// encodes to JSON. At most one Options may be given.
//
// It fails on a name that model APIs refuse and on a type that JSON cannot
// express.
func New[In, Out any](name, description string, fn func(context.Context, In) (Out, error), opts ...Options) (Tool, error) {
	if fn == nil {
		return nil, fmt.Errorf("tool %q: the function is nil", name)
	}
	f, err := newFunction(name, description, reflect.TypeFor[In](), opts)
	if err != nil {
		return nil, err
	}
	if f.info.Output, err = outputSchema(reflect.TypeFor[Out]()); err != nil {
		return nil, fmt.Errorf("tool %q: result: %w", name, err)
	}
	f.call = func(ctx context.Context, input json.RawMessage, yield func(Chunk, error) bool) {
		var in In
		if err := f.decode(input, &in); err != nil {
			yield(Chunk{}, err)
			return
		}
		out, err := fn(ctx, in)
		emit(out, err, yield)
	}
	return f, nil
}

// NewStream is like New for a function that returns its result in pieces.
func NewStream[In any](name, description string, fn func(context.Context, In) iter.Seq2[Chunk, error], opts ...Options) (Tool, error) {
	if fn == nil {
		return nil, fmt.Errorf("tool %q: the function is nil", name)
	}
	f, err := newFunction(name, description, reflect.TypeFor[In](), opts)
	if err != nil {
		return nil, err
	}
	f.call = func(ctx context.Context, input json.RawMessage, yield func(Chunk, error) bool) {
		var in In
		if err := f.decode(input, &in); err != nil {
			yield(Chunk{}, err)
			return
		}
		fn(ctx, in)(yield)
	}
	f.streams = true
	return f, nil
}

// External makes a tool without a function: whoever runs the agent is handed
// the call and supplies the result. In is as for New.
func External[In any](name, description string, opts ...Options) (Tool, error) {
	f, err := newFunction(name, description, reflect.TypeFor[In](), opts)
	if err != nil {
		return nil, err
	}
	f.info.External = true
	f.call = func(_ context.Context, _ json.RawMessage, yield func(Chunk, error) bool) {
		yield(Chunk{}, fmt.Errorf("%s is run by the host, which supplied no result", name))
	}
	return f, nil
}

// Must returns t, or panics if err is not nil.
func Must(t Tool, err error) Tool {
	if err != nil {
		panic(err)
	}
	return t
}

// A function is a tool made of Go code.
type function struct {
	info    Info
	again   bool // the calls are idempotent
	streams bool // call yields chunks before it returns
	call    func(ctx context.Context, input json.RawMessage, yield func(Chunk, error) bool)

	// The descriptions of a package may be registered after its tools are made,
	// when those are package variables, so what uses them is settled late.
	settle sync.Once
	in     *inputType
	of     *methodOf // nil if it is none
}

// A methodOf says where the description of a tool that is a method is registered.
type methodOf struct {
	owner reflect.Type
	name  string
}

func newFunction(name, description string, in reflect.Type, opts []Options) (*function, error) {
	if err := checkAPIName(name); err != nil {
		return nil, err
	}
	var o Options
	switch len(opts) {
	case 0:
	case 1:
		o = opts[0]
	default:
		return nil, fmt.Errorf("tool %q: %d Options given; put them into one", name, len(opts))
	}
	f := &function{again: o.Idempotent, info: Info{
		Name: name, Title: o.Title, Description: description,
		ReadOnly: o.ReadOnly, Parallel: o.Parallel, Control: o.Control,
	}}
	var err error
	if f.in, err = inputTypeOf(in); err != nil {
		return nil, fmt.Errorf("tool %q: arguments: %w", name, err)
	}
	return f, nil
}

func (f *function) Info() Info {
	f.settle.Do(func() {
		if in, err := inputTypeOf(f.in.typ); err == nil {
			f.in = in
		}
		f.info.Input = f.in.schema
		if f.of != nil {
			f.info.Description = docs.text(f.of.owner, f.of.name)
		}
	})
	return f.info
}

// CheckIdempotent says what Options did.
func (f *function) CheckIdempotent(json.RawMessage) bool { return f.again }

type callKey struct{}

// IdempotencyKey returns the key that a function passes to a service, so that a
// call that is made again after a crash has its effect once. It is the same each
// time a call is made, differs between any two calls, and is empty if the tool is
// not [Options.Idempotent] or nobody can tell, as outside of an agent.
func IdempotencyKey(ctx context.Context) string {
	key, _ := ctx.Value(callKey{}).(string)
	return key
}

func (f *function) Call(ctx context.Context, call Call) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) { f.run(ctx, call, yield) }
}

func (f *function) run(ctx context.Context, call Call, yield func(Chunk, error) bool) {
	if call.Key != "" {
		ctx = context.WithValue(ctx, callKey{}, call.Key)
	}
	f.call(ctx, call.Input, yield)
}

// decode fills p, and words what encoding/json says for a model.
func (f *function) decode(input json.RawMessage, p any) error {
	f.Info()
	err := f.in.decode(input, p)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("arguments: %s: a %s does not fit %v", e.Field, e.Value, e.Type)
	}
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

const maxName = 64

// checkAPIName refuses names that a model API would refuse.
func checkAPIName(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if strings.Contains(name, ".") {
		return fmt.Errorf(`tool %q: model APIs refuse "." in a name; use "_"`, name)
	}
	return nil
}

// checkName holds the rule of MCP for the names of tools.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a tool needs a name")
	case len(name) > maxName:
		return fmt.Errorf("tool %q: the name has %d characters; at most %d are allowed", name, len(name), maxName)
	}
	for _, c := range name {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.') {
			return fmt.Errorf(`tool %q: %q is not allowed in a name; use letters, digits, "_" and "-"`, name, c)
		}
	}
	return nil
}

// Check returns an error if a tool so described cannot be offered to a model:
// its name is not legal, or its schema cannot be used. Use it on tools that
// come from elsewhere; those of [New] pass.
func (i Info) Check() error {
	if err := checkName(i.Name); err != nil {
		return err
	}
	v := validators.get(i.Input)
	if err := v.usable(); err != nil {
		return fmt.Errorf("tool %q: %w", i.Name, err)
	}
	if t := v.types(v.schema); len(t) > 0 && !allows(t, &value{kind: objectValue}) {
		return fmt.Errorf("tool %q: the schema is of %s; arguments are an object", i.Name, article(t))
	}
	return nil
}
