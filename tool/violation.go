package tool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/kitbag-go/kitbag/internal/near"
	"github.com/kitbag-go/kitbag/internal/visible"
)

// Limits of an error for a model: the first violations are enough to send a better call.
const (
	maxViolations = 10
	maxExample    = 200 // bytes
	maxShown      = 60  // bytes of a value, name or description
	maxChoices    = 20
)

// A violation is one thing that is wrong with arguments.
type violation struct {
	path  string // as in code: lines[0].n; empty for the arguments as a whole
	text  string
	loc   []string // the path as names and indexes
	drop  bool     // the field at loc must not be given
	meant string   // if drop is set: the field that was probably meant, or empty
}

// explain tells a model why arguments do not fit: the violations and an example. The violations are sorted by path, since
// the library returns them in the order of a Go map.
func (v *validator) explain(name string, args *value, err *jsonschema.ValidationError) string {
	x := explainer{validator: v, args: args}
	x.collect(err)
	slices.SortStableFunc(x.violations, func(a, b violation) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.text, b.text))
	})
	x.violations = slices.CompactFunc(x.violations, func(a, b violation) bool { return a.path == b.path && a.text == b.text })

	var b strings.Builder
	previous := ""
	fmt.Fprintf(&b, "The arguments of %s do not fit its schema:\n", name)
	for i, wrong := range x.violations {
		if i == maxViolations {
			fmt.Fprintf(&b, "- and %d more\n", len(x.violations)-i)
			break
		}
		if wrong.text == previous && strings.HasPrefix(previous, unknownField) {
			wrong.text = unknownField // an earlier line lists the known fields
		} else {
			previous = wrong.text
		}
		if wrong.path != "" {
			wrong.path += ": "
		}
		fmt.Fprintf(&b, "- %s%s\n", wrong.path, wrong.text)
	}
	if e := cmp.Or(v.corrected(args, &x), v.requiredExample()); e != "" {
		fmt.Fprintf(&b, "A valid example: %s\n", e)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// An explainer turns the validator's tree of errors into a list of violations.
type explainer struct {
	validator  *validator
	args       *value
	violations []violation
}

func (x *explainer) add(loc []string, format string, a ...any) {
	x.violations = append(x.violations, violation{path: pathOf(x.args, loc), text: fmt.Sprintf(format, a...), loc: slices.Clone(loc)})
}

// addDrop adds a violation that is fixed by omitting the field at loc, and returns it.
func (x *explainer) addDrop(loc []string, format string, a ...any) *violation {
	x.add(loc, format, a...)
	added := &x.violations[len(x.violations)-1]
	added.drop = true
	return added
}

// collect adds the leaves of a tree of errors. Only the leaves say what is wrong.
func (x *explainer) collect(e *jsonschema.ValidationError) {
	loc := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf:
		x.alternatives(e)
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			x.add(loc, "fits more than one of the allowed forms; it must fit exactly one")
			return
		}
		x.alternatives(e)
	case *kind.Required:
		for _, name := range k.Missing {
			x.add(append(slices.Clone(loc), name), "missing%s", x.hint(loc, name))
		}
		for _, name := range x.undescribed(loc) {
			x.addUnknown(loc, name)
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			x.addUnknown(loc, name)
		}
	case *kind.Type:
		x.add(loc, "got %s, want %s", x.show(loc), article(k.Want))
	case *kind.Enum:
		x.add(loc, "got %s, want %s", x.show(loc), choices(k.Want))
	case *kind.Const:
		x.add(loc, "got %s, want %s", x.show(loc), choices([]any{k.Want}))
	case *kind.Pattern:
		if k.Want == durationPattern {
			x.add(loc, "got %s, want a duration with its units, such as \"1m30s\" or \"500ms\"", x.showDuration(loc))
			return
		}
		x.add(loc, "got %s, want text that matches the pattern %s", x.show(loc), k.Want)
	case *kind.Format:
		sample := formatSamples[k.Want]
		if sample != "" {
			sample = ", such as " + sample
		}
		x.add(loc, "got %s, want the format %s%s", x.show(loc), k.Want, sample)
	case *kind.ContentEncoding:
		x.add(loc, "got %s, want text encoded as %s", x.show(loc), k.Want)
	case *kind.Not:
		x.add(loc, "got %s, which the schema excludes", x.show(loc))
	case *kind.FalseSchema: // a field whose schema is false
		x.addDrop(loc, "must not be given")
	case *kind.PropertyNames:
		// Without loc, which may be wrong here: the library reuses the slice.
		x.add(nil, "the field name %q is not allowed%s", visible.Cut(k.Property, maxShown, "…"), nameRule(e))
	case *kind.RefCycle:
		x.add(loc, "cannot be checked, because the tool's schema refers to itself without an end; do not call this tool again")
	default:
		if bound := boundText(e.ErrorKind); bound != "" {
			x.add(loc, "got %s, want %s", x.show(loc), bound)
		} else if len(e.Causes) == 0 {
			x.add(loc, "does not fit the schema (%s)", strings.Join(e.ErrorKind.KeywordPath(), "/"))
		}
		for _, c := range e.Causes {
			x.collect(c)
		}
	}
}

// nameRule describes the pattern that a field's name broke, or returns "" if no pattern was broken.
func nameRule(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
		if k, ok := e.ErrorKind.(*kind.Pattern); ok {
			return "; it must match the pattern " + k.Want
		}
	}
	return ""
}

// boundText describes the limit of a value or a size, or returns "" if another keyword was violated.
func boundText(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Minimum:
		return "at least " + decimal(k.Want)
	case *kind.Maximum:
		return "at most " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "more than " + decimal(k.Want)
	case *kind.ExclusiveMaximum:
		return "less than " + decimal(k.Want)
	case *kind.MultipleOf:
		return "a multiple of " + decimal(k.Want)
	case *kind.MinLength:
		return "at least " + counted(k.Want, "character")
	case *kind.MaxLength:
		return fmt.Sprintf("at most %s, not %d", counted(k.Want, "character"), k.Got)
	case *kind.MinItems:
		return "at least " + counted(k.Want, "item")
	case *kind.MaxItems:
		return fmt.Sprintf("at most %s, not %d", counted(k.Want, "item"), k.Got)
	case *kind.MinProperties:
		return "at least " + counted(k.Want, "field")
	case *kind.MaxProperties:
		return fmt.Sprintf("at most %s, not %d", counted(k.Want, "field"), k.Got)
	case *kind.UniqueItems:
		return fmt.Sprintf("no item twice (items %d and %d are equal)", k.Duplicates[0], k.Duplicates[1])
	}
	return ""
}

func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// decimal formats a fraction as a decimal number.
func decimal(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// alternatives adds the violations of a failed anyOf or oneOf. Of the branches that allow the value's type it takes the
// branch with the fewest violations. If no branch allows the type, it adds the types of all branches.
func (x *explainer) alternatives(e *jsonschema.ValidationError) {
	var candidates []*jsonschema.ValidationError // the errors of the branches that allow the type
	var want []string                            // the types that the other branches allow
	for _, branch := range e.Causes {
		if k, ok := typeError(branch); ok && slices.Equal(branch.InstanceLocation, e.InstanceLocation) {
			want = append(want, k.Want...)
		} else {
			candidates = append(candidates, branch)
		}
	}
	if len(candidates) == 0 {
		slices.Sort(want)
		x.add(e.InstanceLocation, "got %s, want %s", x.show(e.InstanceLocation), article(slices.Compact(want)))
		return
	}
	var best []violation
	for i, candidate := range candidates {
		branch := explainer{validator: x.validator, args: x.args}
		branch.collect(candidate)
		if i == 0 || len(branch.violations) < len(best) {
			best = branch.violations
		}
	}
	x.violations = append(x.violations, best...)
}

// typeError returns the type error in the tree e, if e has no other leaf.
func typeError(e *jsonschema.ValidationError) (*kind.Type, bool) {
	for len(e.Causes) == 1 {
		e = e.Causes[0]
	}
	k, ok := e.ErrorKind.(*kind.Type)
	return k, ok
}

const unknownField = "no such field"

// addUnknown adds a violation for the field called name of the object at loc, which its schema does not have.
func (x *explainer) addUnknown(loc []string, name string) {
	known := x.validator.fieldNames(x.schemaAt(loc))
	similar, sameType := near.Names(name, known, 1), x.meantField(loc, name)
	loc = append(slices.Clone(loc), name)
	switch {
	case len(similar) > 0:
		x.addDrop(loc, unknownField+"; did you mean %q?", similar[0]).meant = similar[0]
	case sameType != "":
		// meant stays empty, as only the type suggests this field: the example must not get the value that was given.
		x.addDrop(loc, unknownField+"; did you mean %q?", sameType)
	case len(known) == 0:
		x.addDrop(loc, unknownField+"; no field is allowed here")
	default:
		x.addDrop(loc, unknownField+"; the fields are %s", strings.Join(known, ", "))
	}
}

// undescribed returns the fields of the object at loc that its schema allows but does not describe. If required fields
// are missing, the undescribed fields may be the missing fields under wrong names.
func (x *explainer) undescribed(loc []string) (names []string) {
	s, object := x.validator.resolve(x.schemaAt(loc)), x.args.at(loc)
	if s.get("properties") == nil || object == nil {
		return nil
	}
	for _, keyword := range []string{"additionalProperties", "patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "if"} {
		if s.get(keyword) != nil {
			return nil // another keyword may refuse or describe fields
		}
	}
	for _, m := range object.members {
		if s.get("properties").get(m.name) == nil {
			names = append(names, m.name)
		}
		if len(names) > maxChoices {
			return nil // an object with free keys
		}
	}
	return names
}

// meantField returns the required field that was probably meant by the unknown field called name, or "": the only missing
// field whose type fits the given value, if the type fits the value of no other unknown field.
func (x *explainer) meantField(loc []string, name string) string {
	s, object := x.validator.resolve(x.schemaAt(loc)), x.args.at(loc)
	required := s.get("required")
	if required == nil || object == nil || object.get(name) == nil {
		return ""
	}
	fits := func(field string, given *value) bool {
		return allows(x.validator.types(x.validator.property(s, field)), given)
	}
	var missing []string
	for _, r := range required.items {
		if field := r.text(); object.get(field) == nil && fits(field, object.get(name)) {
			missing = append(missing, field)
		}
	}
	if len(missing) != 1 {
		return ""
	}
	for _, m := range object.members {
		if m.name != name && x.validator.property(s, m.name) == nil && fits(missing[0], m.value) {
			return ""
		}
	}
	return missing[0]
}

// hint describes the missing field called name: the types, and the beginning of the description.
func (x *explainer) hint(loc []string, name string) string {
	s := x.validator.property(x.schemaAt(loc), name)
	if s == nil {
		return ""
	}
	var parts []string
	if t := x.validator.types(s); len(t) > 0 {
		parts = append(parts, strings.Join(t, " or "))
	}
	if d := s.get("description"); d != nil && d.kind == stringValue {
		parts = append(parts, visible.Cut(d.text(), maxShown, "…"))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// schemaAt returns the schema of the value at loc, or nil.
func (x *explainer) schemaAt(loc []string) *value {
	s := x.validator.schema
	for _, part := range loc {
		if p := x.validator.property(s, part); p != nil {
			s = p
		} else {
			s = x.validator.itemSchema(s)
		}
	}
	return s
}

// showDuration shows the value at loc, which is not a duration. If its text is a number, the model probably sent a
// number, which the coercer changed to a text.
func (x *explainer) showDuration(loc []string) string {
	if v := x.args.at(loc); v != nil && v.kind == stringValue {
		if n, err := parseValue([]byte(v.text())); err == nil && n.kind == numberValue {
			return "the number " + visible.Cut(v.text(), maxShown, "…")
		}
	}
	return x.show(loc)
}

func (x *explainer) show(loc []string) string {
	v := x.args.at(loc)
	if v == nil { // loc leads to the name of a field, not to a value
		return "something else"
	}
	shown := visible.Cut(string(v.appendJSON(nil)), maxShown, "…")
	switch v.kind {
	case objectValue, arrayValue, stringValue:
		return article([]string{v.kind.String()}) + " " + shown
	}
	return shown
}

// pathOf formats the location loc in v as code would: lines[0].n.
func pathOf(v *value, loc []string) string {
	var b strings.Builder
	for _, part := range loc {
		switch {
		case v != nil && v.kind == arrayValue:
			fmt.Fprintf(&b, "[%s]", part)
		case strings.ContainsAny(part, " .[]:\"\n\t") || part == "":
			fmt.Fprintf(&b, "[%q]", visible.Cut(part, maxShown, "…"))
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(visible.Cut(part, maxShown, "…"))
		}
		v = v.child(part)
	}
	return b.String()
}

// article returns types with their articles: a string or an integer.
func article(types []string) string {
	named := make([]string, len(types))
	for i, t := range types {
		switch t {
		case "null":
			named[i] = t
		case "array", "object", "integer":
			named[i] = "an " + t
		default:
			named[i] = "a " + t
		}
	}
	return strings.Join(named, " or ")
}

// choices lists the values in want, at most maxChoices of them.
func choices(want []any) string {
	shown := make([]string, 0, len(want))
	for i, w := range want {
		if i == maxChoices {
			shown = append(shown, fmt.Sprintf("%d more", len(want)-i))
			break
		}
		data, _ := json.Marshal(w) // w was decoded from JSON
		shown = append(shown, visible.Cut(string(data), maxShown, "…"))
	}
	if len(shown) == 1 {
		return shown[0]
	}
	return "one of " + strings.Join(shown, ", ")
}
