package toolkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/tool"
)

// checkGroup checks what is to be said of a group by itself. Names are free text
// otherwise: with reset_tools they are names of JSON members, and a control that
// makes names of tools of them has those checked.
func (c *catalogue) checkGroup(g *Group) error {
	switch {
	case g.Name == "":
		return errors.New("a group has no name")
	case g.Name == basicLabel && c.rules.defaultLabel == "":
		return fmt.Errorf("group %q: the name is taken by the group that is always open; use Config.Basic", g.Name)
	case g.Description == "" && !c.cfg.LabelsOnly && !c.rules.pathNames:
		return fmt.Errorf("group %q: has no description; the model chooses by it", g.Name)
	}
	if _, ok := c.index[g.Name]; ok {
		return fmt.Errorf("group %q: there are two of that name", g.Name)
	}
	return c.rules.checkGroup(g)
}

// checkTool checks what a model and the control tools rely on. Names may have what
// MCP allows; that models allow less is dealt with where they are called.
func checkTool(i tool.Info) error {
	if i.Name == "" {
		return errors.New("it has no name")
	}
	if n := len(i.Name); n > 128 {
		return fmt.Errorf("its name has %d characters; at most 128 are allowed", n)
	}
	for _, r := range i.Name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-./", r)) {
			return fmt.Errorf("its name has the character %q; letters, digits and _-./ are allowed", r)
		}
	}
	if len(i.Input) == 0 {
		return nil
	}
	return objects.check(i.Input)
}

// objects are the schemas that were found to be of objects. Catalogues are built
// again whenever a source lists something else, and many have the same tools: to read
// the schemas would be most of the work.
var objects = schemaSet{seed: maphash.MakeSeed(), known: map[uint64]bool{}}

// A schemaSet knows schemas by a hash. Its seed is this process's own, so that nobody
// can make a schema that passes for another.
type schemaSet struct {
	seed  maphash.Seed
	mu    sync.RWMutex
	known map[uint64]bool
}

// maxSchemas is how many a schemaSet holds before it forgets them.
const maxSchemas = 10_000

func (s *schemaSet) check(schema json.RawMessage) error {
	hash := maphash.Bytes(s.seed, schema)
	s.mu.RLock()
	known := s.known[hash]
	s.mu.RUnlock()
	if known {
		return nil
	}
	if err := checkObject(schema); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxSchemas {
		clear(s.known)
	}
	s.known[hash] = true
	return nil
}

// checkObject reads a schema as far as to tell an object from something else; that it
// is sound is checked with the first call.
func checkObject(schema json.RawMessage) error {
	var s struct {
		Type any `json:"type"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(schema), []byte("{")) {
		return errors.New("its input schema is not a JSON object")
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return fmt.Errorf("its input schema is not valid JSON: %w", err)
	}
	if s.Type != nil && s.Type != "object" {
		return fmt.Errorf("its input schema has the type %v; a tool takes an object", s.Type)
	}
	return nil
}

// checkInitial checks the groups that a new scope starts with by the rules of
// opening them one after another. Hooks are refused rather than skipped: a group
// whose OnActivate sets something up would be open without it.
func (c *catalogue) checkInitial() error {
	var open []int
	for _, name := range c.cfg.Initial {
		i, ok := c.index[name]
		if !ok {
			return fmt.Errorf("initial group %q: does not exist", name)
		}
		g := c.groups[i]
		if g.OnActivate != nil {
			return fmt.Errorf("initial group %q: has an OnActivate hook, which would not run; enable the group instead", name)
		}
		for _, p := range g.gates {
			if !slices.Contains(open, p) {
				return fmt.Errorf("initial group %q: its parent %q is not open before it", name, c.groups[p].Name)
			}
		}
		for _, set := range g.exclusive {
			for _, o := range set {
				if slices.Contains(open, o) {
					return fmt.Errorf("initial group %q: excludes %q", name, c.groups[o].Name)
				}
			}
		}
		if !slices.Contains(open, i) {
			open = append(open, i)
		}
	}
	if c.rules.looseQuota {
		return nil
	}
	if e := c.overQuota(c.measure(open), measure{}); e != nil {
		return fmt.Errorf("initial groups: %s", e.excess())
	}
	return nil
}
