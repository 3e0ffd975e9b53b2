package tool

import (
	"reflect"
	"strings"
	"sync"
)

// Docs are what the source of a package says about its types, for the schemas
// of its tools. `kitbag schema gen` writes a file that registers them with
// [Describe], so that doc comments reach the model and nothing parses source
// at run time. A description in a struct tag goes before.
type Docs struct {
	Package string // import path

	// Text maps "Type", "Type.Field" and "Type.Method" to what their doc
	// comments say.
	Text map[string]string

	// Enums maps a named type to the constants that are declared of it.
	Enums map[string][]any
}

// Describe registers the descriptions of a package, from an init function: they
// must be known before Info is first called on a tool that uses them. What is
// registered later for the same name replaces what was there. It is safe for
// concurrent use and keeps d's texts and values, which must not be changed.
func Describe(d Docs) { docs.add(d) }

// docs holds what was registered.
var docs registry

type registry struct {
	mu         sync.RWMutex
	texts      map[string]string // by package, type and member
	enums      map[string][]any
	generation int // counts the calls of add, so that schemas made before one are made again
}

func (r *registry) add(d Docs) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.texts == nil {
		r.texts, r.enums = map[string]string{}, map[string][]any{}
	}
	for name, text := range d.Text {
		r.texts[d.Package+"."+name] = text
	}
	for name, values := range d.Enums {
		r.enums[d.Package+"."+name] = values
	}
	r.generation++
}

// text returns what is said of a type or, if a member is named, of its field or method;
// empty if nothing is.
func (r *registry) text(t reflect.Type, member string) string {
	key := docKey(t)
	if key == "" {
		return ""
	}
	if member != "" {
		key += "." + member
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.texts[key]
}

// enum returns the constants of a named type, nil if none were registered. Most programs
// have none, and the name of a type is put together anew each time it is asked for.
func (r *registry) enum(t reflect.Type) []any {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.enums) == 0 {
		return nil
	}
	return r.enums[docKey(t)]
}

func (r *registry) current() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.generation
}

// docKey names a type as the source does: without type arguments. A type without a name,
// such as a list, has no key.
func docKey(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	if name == "" {
		return ""
	}
	return t.PkgPath() + "." + name
}
