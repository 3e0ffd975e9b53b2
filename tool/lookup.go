package tool

import (
	"iter"
	"slices"
	"strings"
)

// The methods below help to word an error, to build an example or to guess what a model meant. They need not be
// exact: only the validator decides whether arguments are valid. Without limits, schemas that refer to each other would
// take exponential time.
const (
	maxSchemaDepth = 4  // of schemas inside each other
	maxBranches    = 10 // of each anyOf, oneOf or allOf
)

// types returns the JSON types that a schema allows, "integer" included; nil if the schema, or an alternative in it,
// allows all types.
func (v *validator) types(s *value) []string { return v.typesWithin(s, 0) }

func (v *validator) typesWithin(s *value, depth int) []string {
	s = v.resolve(s)
	if s == nil || s.kind != objectValue || depth > maxSchemaDepth {
		return nil
	}
	var all []string
	add := func(t string) {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	switch t := s.get("type"); {
	case t == nil:
	case t.kind == stringValue:
		return []string{t.text()}
	case t.kind == arrayValue:
		for _, item := range t.items {
			add(item.text())
		}
		return all
	}
	if enum := s.get("enum"); enum != nil {
		for _, item := range enum.items {
			add(item.kind.String())
		}
		return all
	}
	if only := s.get("const"); only != nil {
		return []string{only.kind.String()}
	}
	for branch := range s.branches("anyOf", "oneOf") {
		types := v.typesWithin(branch, depth+1)
		if types == nil { // this branch allows all types
			return nil
		}
		for _, t := range types {
			add(t)
		}
	}
	if all == nil { // all branches of allOf apply, so the first that names types is enough
		for branch := range s.branches("allOf") {
			if all = v.typesWithin(branch, depth+1); all != nil {
				return all
			}
		}
	}
	if all == nil && s.get("properties") != nil { // without a type other values are valid too, but hardly meant
		add("object")
	}
	return all
}

// textEnum returns the enum that applies to a text: the schema's own enum, else the enum of the only branch of allOf,
// anyOf or oneOf that a text may fit, else nil.
func (v *validator) textEnum(s *value, depth int) *value {
	s = v.resolve(s)
	if s == nil || depth > maxSchemaDepth {
		return nil
	}
	if enum := s.get("enum"); enum != nil {
		return enum
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list := s.get(keyword)
		if list == nil || len(list.items) > maxBranches {
			continue
		}
		fitting := slices.DeleteFunc(slices.Clone(list.items), func(branch *value) bool {
			types := v.types(branch)
			if types == nil { // a branch of allOf without types only restricts the others
				return keyword == "allOf"
			}
			return !slices.Contains(types, "string")
		})
		if len(fitting) == 1 {
			return v.textEnum(fitting[0], depth+1)
		} else if len(fitting) > 1 {
			return nil
		}
	}
	return nil
}

// property returns the schema of a field, or nil. For a field that the schema does not name this is
// additionalProperties.
func (v *validator) property(s *value, name string) *value {
	return v.search(s, 0, func(s *value) *value {
		if p := s.get("properties").get(name); p != nil {
			return p
		}
		if p := s.get("additionalProperties"); p != nil && p.kind == objectValue {
			return p
		}
		return nil
	})
}

// itemSchema returns the schema of the items of an array, or nil.
func (v *validator) itemSchema(s *value) *value {
	return v.search(s, 0, func(s *value) *value {
		if p := s.get("items"); p != nil && p.kind == objectValue {
			return p
		}
		return nil
	})
}

// search applies look to a schema and its branches, depth first, and returns the first result. If branches differ,
// the first one wins, which is good enough for a hint.
func (v *validator) search(s *value, depth int, look func(*value) *value) *value {
	s = v.resolve(s)
	if s == nil || depth > maxSchemaDepth {
		return nil
	}
	if p := look(s); p != nil {
		return p
	}
	for branch := range s.branches("allOf", "anyOf", "oneOf") {
		if p := v.search(branch, depth+1, look); p != nil {
			return p
		}
	}
	return nil
}

// branches yields the schemas in the lists under keywords of s, up to maxBranches of each list.
func (s *value) branches(keywords ...string) iter.Seq[*value] {
	return func(yield func(*value) bool) {
		for _, k := range keywords {
			if list := s.get(k); list != nil {
				for _, branch := range list.items[:min(len(list.items), maxBranches)] {
					if !yield(branch) {
						return
					}
				}
			}
		}
	}
}

// fieldNames returns the fields that a schema names, in the order of the schema.
func (v *validator) fieldNames(s *value) []string {
	props := v.search(s, 0, func(s *value) *value { return s.get("properties") })
	if props == nil {
		return nil
	}
	names := make([]string, len(props.members))
	for i, m := range props.members {
		names[i] = m.name
	}
	return names
}

// resolve follows local references ("#/$defs/a", a JSON Pointer of RFC 6901) to the first schema that is not a
// reference. It returns nil for references to nothing, to another document or in a circle; $anchor is not supported.
func (v *validator) resolve(s *value) *value {
	for range 20 { // references may form a loop; real chains are shorter
		ref := s.get("$ref")
		if ref == nil || ref.kind != stringValue {
			return s
		}
		path, ok := strings.CutPrefix(ref.text(), "#")
		if !ok || path != "" && path[0] != '/' {
			return nil
		}
		s = v.schema
		for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if part != "" {
				// A Replacer makes one pass: ~01 is "~1" and not a slash (RFC 6901, section 4).
				s = s.child(strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
			}
		}
		if s == nil {
			return nil
		}
	}
	return nil
}
