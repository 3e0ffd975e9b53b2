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
	drop  bool     // the field must not be given
	meant string   // the field that was probably meant, if drop is set
}

// explain returns, for a model, why arguments do not fit: what is wrong, sorted by path, since the
// library's errors are in the order of a Go map, and an example.
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
	for i, f := range x.violations {
		if i == maxViolations {
			fmt.Fprintf(&b, "- and %d more\n", len(x.violations)-i)
			break
		}
		if text := f.text; i > 0 && text == previous && strings.HasPrefix(text, unknownField) {
			f.text = unknownField // the line before lists the known fields
		} else {
			previous = text
		}
		if f.path != "" {
			f.path += ": "
		}
		fmt.Fprintf(&b, "- %s%s\n", f.path, f.text)
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

// addDrop adds a violation that is fixed by omitting the field.
func (x *explainer) addDrop(loc []string, format string, a ...any) {
	x.add(loc, format, a...)
	x.violations[len(x.violations)-1].drop = true
}

// collect adds the leaves of a tree of errors. The errors above them say nothing more.
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
			x.unknown(loc, name)
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			x.unknown(loc, name)
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
		// The location may be wrong: the library reuses its array.
		x.add(nil, "the field name %q is not allowed%s", visible.Cut(k.Property, maxShown, "…"), nameRule(e))
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

// nameRule describes the pattern for names of fields.
func nameRule(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
		if k, ok := e.ErrorKind.(*kind.Pattern); ok {
			return "; it must match the pattern " + k.Want
		}
	}
	return ""
}

// boundText describes the limit of a value or a size; "" for other keywords.
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

// alternatives adds the violations of a failed anyOf or oneOf. It takes the branch with the fewest violations, among
// those that allow the value's type. If no branch does, it adds the types of all branches.
func (x *explainer) alternatives(e *jsonschema.ValidationError) {
	var meant []*jsonschema.ValidationError
	var want []string
	for _, c := range e.Causes {
		if k, ok := branchType(c); ok && slices.Equal(c.InstanceLocation, e.InstanceLocation) {
			want = append(want, k.Want...)
		} else {
			meant = append(meant, c)
		}
	}
	if len(meant) == 0 {
		slices.Sort(want)
		x.add(e.InstanceLocation, "got %s, want %s", x.show(e.InstanceLocation), article(slices.Compact(want)))
		return
	}
	best := x.violations
	for i, c := range meant {
		branch := explainer{validator: x.validator, args: x.args}
		branch.collect(c)
		if i == 0 || len(x.violations)+len(branch.violations) < len(best) {
			best = slices.Concat(x.violations, branch.violations)
		}
	}
	x.violations = best
}

// branchType returns the type error of a branch if it has no other error.
func branchType(e *jsonschema.ValidationError) (*kind.Type, bool) {
	for len(e.Causes) == 1 {
		e = e.Causes[0]
	}
	k, ok := e.ErrorKind.(*kind.Type)
	return k, ok
}

const unknownField = "no such field"

// unknown adds a field that does not exist.
func (x *explainer) unknown(loc []string, name string) {
	known := x.validator.fieldNames(x.schemaAt(loc))
	at := append(slices.Clone(loc), name)
	switch similar := near.Names(name, known, 1); {
	case len(similar) > 0:
		x.addDrop(at, unknownField+"; did you mean %q?", similar[0])
		x.violations[len(x.violations)-1].meant = similar[0]
	case x.meantField(loc, name) != "":
		// The example does not get its value, since only the type suggests that this field was meant.
		x.addDrop(at, unknownField+"; did you mean %q?", x.meantField(loc, name))
	case len(known) == 0:
		x.addDrop(at, unknownField+"; no field is allowed here")
	default:
		x.addDrop(at, unknownField+"; the fields are %s", strings.Join(known, ", "))
	}
}

// undescribed returns the fields of an object that its schema does not describe but allows. If required fields are
// missing, these may be the missing fields under wrong names.
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
			return nil // too many to be misnamed
		}
	}
	return names
}

// meantField returns the required field that was probably meant by the unknown field called name: the only missing field
// of its type, if it is also the only unknown field of that type.
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

// hint describes a missing field: its types and the beginning of its description.
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
	if v == nil { // the name of a field, which is not a value
		return "something else"
	}
	shown := visible.Cut(string(v.appendJSON(nil)), maxShown, "…")
	switch v.kind {
	case objectValue, arrayValue, stringValue:
		return article([]string{v.kind.String()}) + " " + shown
	}
	return shown
}

// pathOf writes a location as code would: lines[0].n.
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

// choices lists the values that are allowed, with a limit.
func choices(want []any) string {
	shown := make([]string, 0, len(want))
	for i, w := range want {
		if i == maxChoices {
			shown = append(shown, fmt.Sprintf("%d more", len(want)-i))
			break
		}
		data, _ := json.Marshal(w) // it was decoded from JSON
		shown = append(shown, visible.Cut(string(data), maxShown, "…"))
	}
	if len(shown) == 1 {
		return shown[0]
	}
	return "one of " + strings.Join(shown, ", ")
}
