package toolkit

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A Ceiling is the set of groups that the host grants. It has three distinct states: unset (the zero Ceiling),
// empty, and a list. In JSON these are null, [] and ["a", "b"].
//
// A model can only choose among granted groups: no list and no error names another group.
type Ceiling struct {
	isSet bool
	names []string
}

// Only returns the ceiling that grants the named groups, and nothing else. The name "basic" grants the basic group, and "*"
// grants everything. Only() grants nothing. Unknown names are ignored.
func Only(names ...string) Ceiling { return Ceiling{isSet: true, names: slices.Clone(names)} }

// IsZero reports whether the ceiling is unset.
func (c Ceiling) IsZero() bool { return !c.isSet }

// Names returns the granted names, and whether the ceiling is set.
func (c Ceiling) Names() ([]string, bool) { return slices.Clone(c.names), c.isSet }

// String returns the ceiling's JSON.
func (c Ceiling) String() string {
	if !c.isSet {
		return "null"
	}
	return string(mustJSON(append([]string{}, c.names...))) // [] if names is nil
}

// MarshalJSON writes null, [] or a list.
func (c Ceiling) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Ceiling) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return fmt.Errorf("a ceiling must be null or a list of group names: %w", err)
	}
	*c = Ceiling{isSet: names != nil, names: names}
	return nil
}

// grants reports whether the ceiling, which must be set, grants one of the labels.
func (c Ceiling) grants(labels []string) bool {
	return slices.ContainsFunc(c.names, func(n string) bool { return n == "*" || slices.Contains(labels, n) })
}
