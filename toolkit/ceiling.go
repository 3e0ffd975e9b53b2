package toolkit

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A Ceiling is the set of groups that the caller grants. It has three distinct states: unset (the zero Ceiling),
// empty, and a list. In JSON they are null, [] and ["a", "b"].
//
// A model can only choose among granted groups. Others are hidden from it: no list and no error names them.
type Ceiling struct {
	set   bool
	names []string
}

// Only returns the ceiling that grants the named groups, and nothing else. The
// name "*" grants everything. Only() grants nothing. Unknown names are ignored.
func Only(names ...string) Ceiling { return Ceiling{set: true, names: slices.Clone(names)} }

// IsZero reports whether the ceiling is unset.
func (c Ceiling) IsZero() bool { return !c.set }

// Names returns the granted names, and whether the ceiling is set.
func (c Ceiling) Names() ([]string, bool) { return slices.Clone(c.names), c.set }

// String returns the ceiling's JSON.
func (c Ceiling) String() string {
	if !c.set {
		return "null"
	}
	data, err := json.Marshal(append([]string{}, c.names...))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// MarshalJSON writes null, [] or a list.
func (c Ceiling) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Ceiling) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return fmt.Errorf("a ceiling must be null or a list of group names: %w", err)
	}
	*c = Ceiling{set: names != nil, names: names}
	return nil
}

// grants reports whether the ceiling, which must be set, covers one of the labels.
func (c Ceiling) grants(labels []string) bool {
	for _, n := range c.names {
		if n == "*" || slices.Contains(labels, n) {
			return true
		}
	}
	return false
}
