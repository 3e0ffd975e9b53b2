// Package docs registers the doc comments of Go types as descriptions for the model, so that nothing parses source at
// run time. In a package with tools, the line
//
//	//go:generate go run github.com/kitbag-go/kitbag/cmd/kitbag@latest schema gen
//
// writes a file that registers the doc comments of the package's types and methods.
// [github.com/kitbag-go/kitbag/tool.Methods] describes its tools with them. With @latest, or the @
// of a version, the command is not added to the go.mod of the package.
package docs

import (
	"reflect"
	"strings"
	"sync"
)

// A Package contains the doc comments of a package. A description in a struct tag takes precedence.
type Package struct {
	Path string // import path

	// Text maps "Type", "Type.Field" and "Type.Method" to their doc comments.
	Text map[string]string

	// Enums maps the name of a type to the type's constants.
	Enums map[string][]any
}

var (
	mu         sync.RWMutex          // guards the registry below
	texts      = map[string]string{} // by "path.Type" or "path.Type.Member"
	enums      = map[string][]any{}  // by "path.Type"
	generation int                   // see Generation
)

// Register registers the descriptions of a package, from an init function: they must be
// known before Info is first called on a tool that uses them. A later registration of a
// name replaces an earlier one. The texts and values are kept and must not be changed.
func Register(p Package) {
	mu.Lock()
	defer mu.Unlock()
	for name, text := range p.Text {
		texts[p.Path+"."+name] = text
	}
	for name, values := range p.Enums {
		enums[p.Path+"."+name] = values
	}
	generation++
}

// Generation returns how often Register was called. A schema made at an earlier generation is out of date.
func Generation() int {
	mu.RLock()
	defer mu.RUnlock()
	return generation
}

// Text returns the description of a type or, if member is not empty, of its field or
// method; empty if none is registered.
func Text(t reflect.Type, member string) string {
	key := typeKey(t)
	if key == "" {
		return ""
	}
	if member != "" {
		key += "." + member
	}
	mu.RLock()
	defer mu.RUnlock()
	return texts[key]
}

// Enum returns the constants of a named type; nil if none are registered.
func Enum(t reflect.Type) []any {
	mu.RLock()
	defer mu.RUnlock()
	if len(enums) == 0 { // most programs register none, and typeKey allocates
		return nil
	}
	return enums[typeKey(t)]
}

// typeKey names a type as the source does, without type arguments; empty for a type without a name, such as a list.
func typeKey(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	if name == "" {
		return ""
	}
	return t.PkgPath() + "." + name
}
