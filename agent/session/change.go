package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// A change is the difference between two JSON objects: members that were set or removed, arrays of which a part was
// replaced, and the changes of nested objects. Its size is proportional to the difference. It restores the value of
// every member byte for byte, because a State may be sealed. So only an object with sorted members, like those of a
// Go map, is compared member by member; any other is set as a whole.
type change struct {
	Set    map[string]json.RawMessage `json:"set,omitempty"`
	Unset  []string                   `json:"unset,omitempty"`
	Splice map[string]splice          `json:"splice,omitempty"`
	In     map[string]*change         `json:"in,omitempty"`
}

// A splice replaces the Drop elements from At on.
type splice struct {
	At   int               `json:"at"`
	Drop int               `json:"drop,omitempty"`
	Put  []json.RawMessage `json:"put,omitempty"`
}

func (c *change) empty() bool {
	return len(c.Set)+len(c.Unset)+len(c.Splice)+len(c.In) == 0
}

// A node is a JSON value that is parsed only as deep as needed. raw is nil after a member or element was changed.
type node struct {
	raw     json.RawMessage
	members map[string]*node
	items   []json.RawMessage
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

// parseMembers parses n as an object, but not the values of its members: most of a State does not change in a
// step, and equal bytes need not be parsed.
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

// isSorted reports whether n is an object that MarshalJSON would write unchanged. The members of a struct are in
// the order of its fields; applying a change to them would sort them.
func (n *node) isSorted() bool {
	if !n.startsWith('{') || n.parseMembers() != nil {
		return false
	}
	again, err := json.Marshal(n.members)
	return err == nil && bytes.Equal(again, n.raw)
}

// diff returns the change that makes old, an object, into new. Neither has been changed since it was parsed.
func diff(old, new *node) (*change, error) {
	if err := old.parseMembers(); err != nil {
		return nil, err
	}
	if err := new.parseMembers(); err != nil {
		return nil, err
	}
	c := &change{Set: map[string]json.RawMessage{}, Splice: map[string]splice{}, In: map[string]*change{}}
	// Sorted, so that equal States make equal records.
	for _, name := range slices.Sorted(maps.Keys(old.members)) {
		if new.members[name] == nil {
			c.Unset = append(c.Unset, name)
		}
	}
	for name, to := range new.members {
		from := old.members[name]
		var err error
		switch {
		case from == nil:
			c.Set[name] = to.raw
		case bytes.Equal(from.raw, to.raw):
		case from.isSorted() && to.isSorted():
			c.In[name], err = diff(from, to)
		case from.startsWith('[') && to.startsWith('['):
			c.Splice[name], err = diffItems(from, to)
		default:
			c.Set[name] = to.raw
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

// diffItems returns the splice between the common beginning and the common end of two arrays. It is minimal
// for the changes that occur: arrays grow at the end, lose their beginning, or one element is replaced.
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

// apply changes n, an object. A change that does not match is an error: a record was lost or altered, even if all
// checksums are right.
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
			return fmt.Errorf("it changes the member %q, which does not exist", name)
		}
		if err := m.splice(s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, in := range c.In {
		m := n.members[name]
		if m == nil || in == nil {
			return fmt.Errorf("it changes the member %q, which does not exist", name)
		}
		if err := m.apply(in); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (n *node) splice(s splice) error {
	if err := n.parseItems(); err != nil {
		return err
	}
	if s.At < 0 || s.Drop < 0 || s.At > len(n.items) || s.Drop > len(n.items)-s.At {
		return fmt.Errorf("it replaces %d items from index %d on, but the array has %d", s.Drop, s.At, len(n.items))
	}
	n.raw = nil
	if s.At+s.Drop == len(n.items) { // nearly always: reuse the capacity
		n.items = append(n.items[:s.At], s.Put...)
		return nil
	}
	tail := n.items[s.At+s.Drop:]
	n.items = append(append(n.items[:s.At:s.At], s.Put...), tail...)
	return nil
}
