package tool

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// unwrapper is implemented by a tool around another one.
type unwrapper interface{ Unwrap() Tool }

// maxWraps is how many tools a chain may have. A tool that unwraps to itself would have no end, and tools
// need not be comparable.
const maxWraps = 100

// A capability is an interface of one method that callers look up with [As].
type capability struct {
	iface reflect.Type
	// method returns the method of that name. The name is a constant: for one that is computed the linker keeps
	// all exported methods of the program.
	method func(reflect.Type) (reflect.Method, bool)
}

var capabilities = []capability{
	{reflect.TypeFor[unwrapper](), func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("Unwrap") }},
	{reflect.TypeFor[Judge](), func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("Judge") }},
	{reflect.TypeFor[Previewer](), func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("Preview") }},
	{reflect.TypeFor[Backgrounder](), func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("Background") }},
	{reflect.TypeFor[IdempotentChecker](), func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("CheckIdempotent") }},
	{reflect.TypeFor[Reminder](), func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("Remind") }},
}

// CheckCapabilities returns an error if t, or a tool inside it, has a method with the name of a capability's but
// another signature, or has the method on the pointer only: it would never be called. It also returns an error for a
// tool that embeds a Tool with a [Judge] and has neither an Unwrap method nor a Judge: its calls would not be
// judged. The same is true of a tool embedded as an unexported interface, whatever it has. A tool in a named field is not
// checked: a wrapper with such a field must have Unwrap.
// [github.com/kitbag-go/kitbag/toolkit.New] checks all tools.
func CheckCapabilities(t Tool) error {
	outer := t
	for range maxWraps {
		if t == nil {
			return nil
		}
		if err := checkMethods(reflect.TypeOf(t)); err != nil {
			return err
		}
		u, ok := t.(unwrapper)
		if !ok {
			return checkHidden(t, 1)
		}
		t = u.Unwrap()
	}
	return fmt.Errorf("%T unwraps to more than %d tools; its Unwrap must return the tool inside it, not itself", outer, maxWraps)
}

// checkHidden returns an error if t, which has no Unwrap, hides the Judge of a tool that it embeds.
func checkHidden(t Tool, depth int) error {
	if depth > maxWraps {
		return fmt.Errorf("%T embeds itself", t)
	}
	if _, ok := t.(Judge); ok {
		return nil
	}
	field := embedded(reflect.ValueOf(t))
	if field.IsValid() && !field.CanInterface() {
		return fmt.Errorf("%T embeds a tool as the unexported interface %v, whose Judge cannot be found; give it a method Unwrap() tool.Tool that returns the embedded tool", t, field.Type())
	}
	if field.IsValid() {
		inner := field.Interface().(Tool)
		if _, judged := As[Judge](inner); judged || checkHidden(inner, depth+1) != nil {
			return fmt.Errorf("%T hides the Judge of the tool that it embeds; give it a method Unwrap() tool.Tool that returns the embedded tool", t)
		}
	}
	return nil
}

// embedded returns the field in which a struct embeds a tool as an interface, at any depth; invalid if there is none.
func embedded(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	for i := range v.NumField() {
		f := v.Field(i)
		if !v.Type().Field(i).Anonymous {
			continue
		}
		if f.Kind() != reflect.Interface {
			if inner := embedded(f); inner.IsValid() {
				return inner
			}
		} else if !f.IsNil() && f.Elem().Type().Implements(reflect.TypeFor[Tool]()) {
			return f
		}
	}
	return reflect.Value{}
}

var checkedMethods sync.Map // reflect.Type → error or nil

func checkMethods(t reflect.Type) error {
	if known, ok := checkedMethods.Load(t); ok {
		err, _ := known.(error)
		return err
	}
	var err error
	for _, c := range capabilities {
		if err = checkMethod(t, c); err != nil {
			break
		}
	}
	checkedMethods.Store(t, err)
	return err
}

// checkMethod returns an error if t has the capability's method, but not so that [As] finds it.
func checkMethod(t reflect.Type, c capability) error {
	want, _ := c.method(c.iface)
	have, ok := c.method(t)
	switch {
	case ok && !t.Implements(c.iface):
		return fmt.Errorf("%v has the method %s%s, which is not called; the capability is %s%s",
			t, want.Name, signature(have.Type, 1), want.Name, signature(want.Type, 0))
	case !ok && t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(c.iface):
		return fmt.Errorf("%v has the method %s on its pointer, which is not called; give a pointer", t, want.Name)
	}
	return nil
}

// signature formats the type of a function as in a declaration, without the first skip parameters.
func signature(f reflect.Type, skip int) string {
	var in []string
	for i := skip; i < f.NumIn(); i++ {
		in = append(in, f.In(i).String())
	}
	out := results(f)
	if f.NumOut() == 1 {
		out = strings.Trim(out, "()")
	}
	return strings.TrimSpace("(" + strings.Join(in, ", ") + ") " + strings.TrimPrefix(out, "()"))
}
