package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/kitbag-go/kitbag/tool/docs"
)

var (
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
	streamType  = reflect.TypeFor[iter.Seq2[Chunk, error]]()
)

// Methods makes a tool of each exported method of v that has the form of a function for [New] or [NewStream],
//
//	func(context.Context, In) (Out, error)
//	func(context.Context, In) iter.Seq2[Chunk, error]
//
// with In a struct. A tool has the name of its method in snake case, and the description that is registered in package
// [github.com/kitbag-go/kitbag/tool/docs]. The tools are sorted by the methods' names. options maps names of methods to
// the Options of their tools and may be nil.
//
// Methods fails if no method has that form, if a method has these parameters but other results, if two methods get the
// same tool name, and where New fails.
func Methods(v any, options map[string]Options) ([]Tool, error) {
	rv := reflect.ValueOf(v)
	if !rv.IsValid() {
		return nil, fmt.Errorf("tool.Methods: the value is nil")
	}
	var tools []Tool
	methodOf := map[string]string{} // by the tool's name
	// reflect sorts methods by name.
	for i := range rv.NumMethod() {
		m := rv.Type().Method(i)
		t, err := methodTool(rv, m, options[m.Name])
		if err != nil {
			return nil, fmt.Errorf("tool.Methods(%v): %s: %w", rv.Type(), m.Name, err)
		}
		if t == nil {
			continue
		}
		name := snakeCase(m.Name) // not t.Info().Name: Info freezes the schema, and docs may be registered later
		if other, taken := methodOf[name]; taken {
			return nil, fmt.Errorf("tool.Methods(%v): %s and %s are both called %s; rename one", rv.Type(), other, m.Name, name)
		}
		methodOf[name] = m.Name
		tools = append(tools, t)
	}
	if len(tools) == 0 {
		return nil, fmt.Errorf("tool.Methods(%v): no method has the form func(context.Context, In) (Out, error); if its methods have pointer receivers, pass a pointer", rv.Type())
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if !slices.Contains(slices.Collect(maps.Values(methodOf)), name) {
			return nil, fmt.Errorf("tool.Methods(%v): Options for %q, which is not a method that makes a tool", rv.Type(), name)
		}
	}
	return tools, nil
}

// methodTool makes the tool of a method, or nil if the method has other parameters than a tool, such as
// Close(context.Context) error. With a tool's parameters other results are probably a mistake, and an error.
func methodTool(recv reflect.Value, m reflect.Method, o Options) (Tool, error) {
	mt := recv.Method(m.Index).Type()
	if mt.NumIn() != 2 || mt.IsVariadic() || mt.In(0) != contextType || deref(mt.In(1)).Kind() != reflect.Struct {
		return nil, nil
	}
	isStream := mt.NumOut() == 1 && mt.Out(0).ConvertibleTo(streamType)
	if !isStream && (mt.NumOut() != 2 || mt.Out(1) != errorType) {
		return nil, fmt.Errorf("it returns %s; a tool returns (Out, error) or iter.Seq2[tool.Chunk, error]", results(mt))
	}
	f, _, err := newFunction(snakeCase(m.Name), "", mt.In(1), []Options{o})
	if err != nil {
		return nil, err
	}
	if !isStream {
		if f.output, err = outputTypeOf(mt.Out(0)); err != nil {
			return nil, fmt.Errorf("result: %w", err)
		}
	}
	owner := deref(recv.Type())
	f.body = &methodBody{
		fn: recv.Method(m.Index), isStream: isStream,
		description: sync.OnceValue(func() string { return docs.Text(owner, m.Name) }),
	}
	return f.withPatterns(o)
}

// A methodBody is the body of a tool of [Methods]. The types of the method's argument and result are known at run time
// only, so the method is called by reflection.
type methodBody struct {
	fn          reflect.Value
	isStream    bool          // fn returns an iter.Seq2[Chunk, error]
	description func() string // the text registered when description is first called
}

func (m *methodBody) call(ctx context.Context, f *function, input json.RawMessage, yield func(Chunk, error) bool) {
	in := reflect.New(m.fn.Type().In(1)) // a pointer to a pointer, if the argument is a pointer; decode fills both
	if err := f.decode(input, in.Interface()); err != nil {
		yield(Chunk{}, err)
		return
	}
	out := m.fn.Call([]reflect.Value{reflect.ValueOf(ctx), in.Elem()})
	if m.isStream {
		out[0].Convert(streamType).Interface().(iter.Seq2[Chunk, error])(yield)
		return
	}
	err, _ := out[1].Interface().(error)
	emit(out[0].Interface(), err, yield)
}

// deref returns t without its pointers: int for **int.
func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// results formats the results of a function type as in a declaration.
func results(t reflect.Type) string {
	var list []string
	for i := range t.NumOut() {
		list = append(list, t.Out(i).String())
	}
	return "(" + strings.Join(list, ", ") + ")"
}

// snakeCase turns GetHTTPPage into get_http_page.
func snakeCase(s string) string {
	var b strings.Builder
	runes := []rune(s)
	for i, c := range runes {
		if unicode.IsUpper(c) && i > 0 {
			afterLower := !unicode.IsUpper(runes[i-1]) && runes[i-1] != '_'
			wordStarts := unicode.IsUpper(runes[i-1]) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if afterLower || wordStarts {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
