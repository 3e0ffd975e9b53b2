package tool

import (
	"slices"
	"strings"
)

// The limits of the search for hints in schemas that combine others: a schema may combine without end.
const (
	maxSchemaDepth = 4  // of schemas inside each other
	maxBranches    = 10 // of each anyOf, oneOf or allOf
)

// The methods below find in a schema what helps to word an error, to build an example or to guess a meaning.
// They need not be exact: only the validator decides whether arguments are valid.

// types returns the JSON types that a schema allows; none if it does not say, or if a
// branch of it does not. "integer" and "number" are both in it.
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
	for _, keyword := range []string{"anyOf", "oneOf"} {
		list := s.get(keyword)
		if list == nil {
			continue
		}
		for _, branch := range list.items[:min(len(list.items), maxBranches)] {
			types := v.typesWithin(branch, depth+1)
			if types == nil { // this branch allows any
				return nil
			}
			for _, t := range types {
				add(t)
			}
		}
	}
	// All of these apply, so the first that names types is enough.
	if list := s.get("allOf"); list != nil && all == nil {
		for _, branch := range list.items[:min(len(list.items), maxBranches)] {
			if all = v.typesWithin(branch, depth+1); all != nil {
				return all
			}
		}
	}
	if all == nil && s.get("properties") != nil {
		add("object")
	}
	return all
}

// choices returns the values that a text must be one of, or nil: those of the schema, of one
// that must hold as well, or of the only alternative that allows a text, as where an enum
// is optional.
func (v *validator) choices(s *value, depth int) *value {
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
		var found *value
		for _, branch := range list.items {
			types := v.types(branch)
			switch {
			case types != nil && !slices.Contains(types, "string"), types == nil && keyword == "allOf":
			case found != nil:
				return nil
			default:
				found = branch
			}
		}
		if found != nil {
			return v.choices(found, depth+1)
		}
	}
	return nil
}

// property returns the schema of a field, or nil. A field that is not named has that of
// additionalProperties, if there is one.
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

// search applies look to a schema and to those that are combined in it, depth first, and returns the first result.
// If branches differ, the first one wins, which is good enough for a hint.
func (v *validator) search(s *value, depth int, look func(*value) *value) *value {
	s = v.resolve(s)
	if s == nil || depth > maxSchemaDepth {
		return nil
	}
	if p := look(s); p != nil {
		return p
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		if list := s.get(keyword); list != nil {
			for _, branch := range list.items[:min(len(list.items), maxBranches)] {
				if p := v.search(branch, depth+1, look); p != nil {
					return p
				}
			}
		}
	}
	return nil
}

// fieldNames returns the fields that a schema names, in its order.
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

// resolve follows local references ("#/$defs/a", a JSON Pointer of RFC 6901) from a
// schema inside v.schema, to the first that is not a reference. It returns nil if they
// lead nowhere, to another document or in a circle; $anchor is not supported.
func (v *validator) resolve(s *value) *value {
	for range 20 { // a chain of references, or a loop
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
				// In one pass: ~01 is "~1" and not a slash (RFC 6901, section 4).
				s = s.child(strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
			}
		}
		if s == nil {
			return nil
		}
	}
	return nil
}
