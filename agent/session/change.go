package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// A change is the difference between two JSON objects. Its size is proportional to the difference.
//
// Applying a change restores the value of every member byte for byte, because a State may be sealed. A nested object
// whose members are not sorted is replaced as a whole: MarshalJSON would sort them.
type change struct {
	Set    map[string]json.RawMessage `json:"set,omitempty"`    // the new values of members
	Unset  []string                   `json:"unset,omitempty"`  // the names of removed members
	Splice map[string]splice          `json:"splice,omitempty"` // the changes of arrays
	Nested map[string]*change         `json:"in,omitempty"`     // the changes of nested objects
}

// A splice replaces Drop items of an array, from index At on, with Put.
type splice struct {
	At   int               `json:"at"`
	Drop int               `json:"drop,omitempty"`
	Put  []json.RawMessage `json:"put,omitempty"`
}

func (c *change) empty() bool {
	return len(c.Set)+len(c.Unset)+len(c.Splice)+len(c.Nested) == 0
}

// A node is a JSON value that is parsed only as deep as needed.
type node struct {
	raw     json.RawMessage   // nil after a member or item was changed
	members map[string]*node  // of an object; nil until it is parsed
	items   []json.RawMessage // of an array; nil until it is parsed
}

// MarshalJSON writes members in sorted order.
func (n *node) MarshalJSON() ([]byte, error) {
	switch {
	case n.raw != nil:
		return n.raw, nil
	case n.members != nil:
		return json.Marshal(n.members)
	}
	return json.Marshal(n.items)
}

func (n *node) startsWith(bracket byte) bool { return len(n.raw) > 0 && n.raw[0] == bracket }

// parseMembers parses n as an object, but not the values of its members: most of them are equal before and after a
// step, and diff then compares only their bytes.
func (n *node) parseMembers() error {
	if n.members != nil {
		return nil
	}
	var raws map[string]json.RawMessage
	if err := json.Unmarshal(n.raw, &raws); err != nil {
		return err
	}
	n.members = make(map[string]*node, len(raws))
	for name, raw := range raws {
		n.members[name] = &node{raw: raw}
	}
	return nil
}

// parseItems parses n as an array, but not its items.
func (n *node) parseItems() error {
	if n.items != nil {
		return nil
	}
	n.items = []json.RawMessage{}
	return json.Unmarshal(n.raw, &n.items)
}

// isSorted reports whether n is an object that MarshalJSON would write unchanged. The JSON of a struct is not, unless
// its fields are in alphabetical order.
func (n *node) isSorted() bool {
	if !n.startsWith('{') || n.parseMembers() != nil {
		return false
	}
	sorted, err := json.Marshal(n.members)
	return err == nil && bytes.Equal(sorted, n.raw)
}

// diff returns the change that makes the object old into new. The members of both must not have been changed since
// they were parsed, because diff compares their raw JSON.
func diff(old, new *node) (*change, error) {
	if err := old.parseMembers(); err != nil {
		return nil, err
	}
	if err := new.parseMembers(); err != nil {
		return nil, err
	}
	c := &change{Set: map[string]json.RawMessage{}, Splice: map[string]splice{}, Nested: map[string]*change{}}
	// In sorted order, so that equal changes have equal JSON.
	for _, name := range slices.Sorted(maps.Keys(old.members)) {
		if new.members[name] == nil {
			c.Unset = append(c.Unset, name)
		}
	}
	for name, newMember := range new.members {
		oldMember := old.members[name]
		var err error
		switch {
		case oldMember == nil:
			c.Set[name] = newMember.raw
		case bytes.Equal(oldMember.raw, newMember.raw): // unchanged
		case oldMember.isSorted() && newMember.isSorted():
			c.Nested[name], err = diff(oldMember, newMember)
		case oldMember.startsWith('[') && newMember.startsWith('['):
			c.Splice[name], err = diffItems(oldMember, newMember)
		default:
			c.Set[name] = newMember.raw
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

// diffItems returns a splice of what is between the common beginning and the common end of two arrays. It is minimal
// for the changes that occur: arrays grow at the end, lose their beginning, or have one item replaced.
func diffItems(old, new *node) (splice, error) {
	if err := old.parseItems(); err != nil {
		return splice{}, err
	}
	if err := new.parseItems(); err != nil {
		return splice{}, err
	}
	a, b := old.items, new.items
	at := 0
	for at < min(len(a), len(b)) && bytes.Equal(a[at], b[at]) {
		at++
	}
	a, b = a[at:], b[at:]
	for len(a) > 0 && len(b) > 0 && bytes.Equal(a[len(a)-1], b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return splice{At: at, Drop: len(a), Put: b}, nil
}

// apply applies c to the object n. A change that does not match n is an error: a record was lost or altered, although
// the checksums are right.
func (n *node) apply(c *change) error {
	if err := n.parseMembers(); err != nil {
		return err
	}
	n.raw = nil
	for _, name := range c.Unset {
		delete(n.members, name)
	}
	for name, raw := range c.Set {
		n.members[name] = &node{raw: raw}
	}
	for name, s := range c.Splice {
		m := n.members[name]
		if m == nil {
			return fmt.Errorf("the member %q, which the change modifies, does not exist", name)
		}
		if err := m.spliceItems(s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, nested := range c.Nested {
		m := n.members[name]
		if m == nil || nested == nil {
			return fmt.Errorf("the member %q, which the change modifies, does not exist", name)
		}
		if err := m.apply(nested); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (n *node) spliceItems(s splice) error {
	if err := n.parseItems(); err != nil {
		return err
	}
	if s.At < 0 || s.Drop < 0 || s.At > len(n.items) || s.Drop > len(n.items)-s.At {
		return fmt.Errorf("the change replaces %d items from index %d on, but the array has %d", s.Drop, s.At, len(n.items))
	}
	n.raw = nil
	n.items = slices.Replace(n.items, s.At, s.At+s.Drop, s.Put...)
	return nil
}
