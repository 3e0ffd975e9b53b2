package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync/atomic"
)

// Options say more about a tool that New makes. With zero Options a tool may change anything and runs alone.
type Options struct {
	Title    string // for display; empty for none
	ReadOnly bool   // changes nothing, with any arguments
	Parallel bool   // may run in parallel with other calls of the same answer
	Control  bool   // only steers the agent itself; see [permission.Call]

	Idempotent bool // may be repeated after a crash; see [IdempotentChecker] and [Call.Key]

	// Match and Suggest are for permission rules with a pattern. With a zero Match the tool accepts no such rules.
	Match   Matcher
	Suggest Suggester
}

// New makes a tool of a function. In must be a struct, whose JSON Schema becomes the tool's input schema; the
// package doc says how. Out is a string, which the model reads as it is, a [*Result], an error, or any value that
// encodes to JSON. At most one Options may be given.
//
// The function may be called from several goroutines at a time: without [Options.Parallel] only by several agents. An
// error that it returns is what the model reads.
//
// New fails on a nil function, on a name that model APIs refuse and on a type that JSON
// cannot express; the error then names the field.
func New[In, Out any](name, description string, fn func(context.Context, In) (Out, error), opts ...Options) (Tool, error) {
	if fn == nil {
		return nil, fmt.Errorf("tool %q: the function is nil", name)
	}
	f, o, err := newFunction(name, description, reflect.TypeFor[In](), opts)
	if err != nil {
		return nil, err
	}
	if f.output, err = outputTypeOf(reflect.TypeFor[Out]()); err != nil {
		return nil, fmt.Errorf("tool %q: result: %w", name, err)
	}
	f.body = plainBody[In, Out](fn)
	return f.withPatterns(o)
}

// NewStream is like New for a function that returns its result in pieces. The sequence is ranged once, on its own
// goroutine, and should end soon after yield returned false or the context ended. It yields an error last, if at all.
func NewStream[In any](name, description string, fn func(context.Context, In) iter.Seq2[Chunk, error], opts ...Options) (Tool, error) {
	if fn == nil {
		return nil, fmt.Errorf("tool %q: the function is nil", name)
	}
	f, o, err := newFunction(name, description, reflect.TypeFor[In](), opts)
	if err != nil {
		return nil, err
	}
	f.body = streamBody[In](fn)
	return f.withPatterns(o)
}

// External makes a tool without a function: the program that runs the agent gets the call and supplies the result. In and
// the errors are as for New. Tool.Call fails.
func External[In any](name, description string, opts ...Options) (Tool, error) {
	f, o, err := newFunction(name, description, reflect.TypeFor[In](), opts)
	if err != nil {
		return nil, err
	}
	f.body, f.external = externalBody{}, true
	return f.withPatterns(o)
}

// Must returns t, or panics if err is not nil: for package variables.
func Must(t Tool, err error) Tool {
	if err != nil {
		panic(err)
	}
	return t
}

// A function is a tool made of Go code. It is small, since a program may have a set of such tools for each of thousands
// of conversations: the schemas are cached by type, and each call of Info assembles the Info.
type function struct {
	name, description, title string

	readOnly, parallel, control, external, idempotent bool

	body   body
	output *outputType // nil if results are not JSON objects

	// The docs of a package may be registered after its tools are made, if the tools are package variables. So the first
	// use replaces the input type that New made. Info must not change later, so the new input type is kept.
	initialInput *inputType
	frozenInput  atomic.Pointer[inputType]
}

// A body calls the Go function of a tool: it decodes the validated arguments and yields the result. It does not recover
// from panics.
type body interface {
	call(ctx context.Context, f *function, input json.RawMessage, yield func(Chunk, error) bool)
}

// plainBody is the body of a tool of [New].
type plainBody[In, Out any] func(context.Context, In) (Out, error)

func (fn plainBody[In, Out]) call(ctx context.Context, f *function, input json.RawMessage, yield func(Chunk, error) bool) {
	var in In
	if err := f.decode(input, &in); err != nil {
		yield(Chunk{}, err)
		return
	}
	out, err := fn(ctx, in)
	emit(out, err, yield)
}

// streamBody is the body of a tool of [NewStream].
type streamBody[In any] func(context.Context, In) iter.Seq2[Chunk, error]

func (fn streamBody[In]) call(ctx context.Context, f *function, input json.RawMessage, yield func(Chunk, error) bool) {
	var in In
	if err := f.decode(input, &in); err != nil {
		yield(Chunk{}, err)
		return
	}
	fn(ctx, in)(yield)
}

// externalBody is the body of a tool of [External].
type externalBody struct{}

func (externalBody) call(_ context.Context, f *function, _ json.RawMessage, yield func(Chunk, error) bool) {
	yield(Chunk{}, fmt.Errorf("%s is run by the host, which supplied no result", f.name))
}

// newFunction returns a function without a body, and the only Options of opts, or zero Options if opts is empty.
func newFunction(name, description string, in reflect.Type, opts []Options) (f *function, o Options, err error) {
	if len(opts) > 1 {
		return nil, o, fmt.Errorf("tool %q: %d Options given; put them into one", name, len(opts))
	}
	if len(opts) == 1 {
		o = opts[0]
	}
	if err := checkAPIName(name); err != nil {
		return nil, o, err
	}
	input, err := inputTypeOf(in)
	if err != nil {
		return nil, o, fmt.Errorf("tool %q: arguments: %w", name, err)
	}
	return &function{
		name: name, description: description, title: o.Title, initialInput: input,
		readOnly: o.ReadOnly, parallel: o.Parallel, control: o.Control, idempotent: o.Idempotent,
	}, o, nil
}

// Info returns the tool's Info. All callers share the bytes of the schemas.
func (f *function) Info() Info {
	i := Info{
		Name: f.name, Title: f.title, Description: f.description, Input: f.input().schema,
		ReadOnly: f.readOnly, Parallel: f.parallel, External: f.external, Control: f.control,
	}
	if f.output != nil {
		i.Output = f.output.schema
	}
	if m, ok := f.body.(*methodBody); ok {
		i.Description = m.description()
	}
	return i
}

// input returns the input type that the first call of input froze.
func (f *function) input() *inputType {
	if in := f.frozenInput.Load(); in != nil {
		return in
	}
	in, err := inputTypeOf(f.initialInput.typ)
	if err != nil { // enum values registered since New do not fit the type
		in = f.initialInput
	}
	f.frozenInput.CompareAndSwap(nil, in)
	return f.frozenInput.Load()
}

// CheckIdempotent returns [Options.Idempotent]; see [IdempotentChecker].
func (f *function) CheckIdempotent(json.RawMessage) bool { return f.idempotent }

// Call implements [Tool].
func (f *function) Call(ctx context.Context, call Call) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		f.body.call(context.WithValue(ctx, callKey{}, &call), f, call.Input, yield)
	}
}

// decode decodes the arguments into p, and rewrites errors of encoding/json for a model.
func (f *function) decode(input json.RawMessage, p any) error {
	err := f.input().decode(input, p)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("arguments: %s: a %s does not fit %v", e.Field, e.Value, e.Type)
	}
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

// maxName is the limit of OpenAI and others, in bytes. MCP allows 128 characters.
const maxName = 64

// checkAPIName refuses names that a model API would refuse. Dots are allowed in the names of MCP
// tools only, where package model/openai replaces them.
func checkAPIName(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if strings.Contains(name, ".") {
		return fmt.Errorf(`tool %q: model APIs refuse "." in a name; use "_"`, name)
	}
	return nil
}

// checkName checks MCP's rule for the names of tools, with maxName as the limit.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("the tool's name is empty")
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

// Check returns an error if the tool cannot be offered to a model, because its name or its
// schema is invalid. Use it on tools from servers; those of [New] pass.
func (i Info) Check() error {
	if err := checkName(i.Name); err != nil {
		return err
	}
	v := validators.get(i.Input)
	if v.err != nil {
		return fmt.Errorf("tool %q: %w", i.Name, v.err)
	}
	if t := v.types(v.schema); len(t) > 0 && !allows(t, &value{kind: objectValue}) {
		return fmt.Errorf("tool %q: the schema allows only %s; it must allow an object", i.Name, article(t))
	}
	return nil
}
