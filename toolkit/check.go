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

// checkGroup checks a group by itself. A name may have any characters: reset_tools replaces those that model APIs
// refuse, and checkTool checks the names of control tools that [PerGroup] names after groups.
func (c *catalogue) checkGroup(g *Group) error {
	switch {
	case g.Name == "":
		return errors.New("a group has no name; give it one")
	case g.Name == defaultBasicLabel && c.rules.defaultLabel == "": // with a defaultLabel, the basic group has that label
		return fmt.Errorf("group %q: the name is reserved for the group that is always open; rename it, or use Config.Basic", g.Name)
	case g.Description == "" && !c.cfg.LabelsOnly && !c.rules.pathNames: // tmcp's groups need none
		return fmt.Errorf("group %q has no description; add one, so that the model knows when to open the group", g.Name)
	case c.hasGroup(g.Name):
		return fmt.Errorf("two groups have the name %q; rename one", g.Name)
	case c.rules.pathNames && slices.Contains(strings.Split(g.Name, "."), ""):
		return fmt.Errorf("group %q: a part of the name, which is a path, is empty", g.Name)
	}
	return nil
}

func (c *catalogue) hasGroup(name string) bool {
	_, ok := c.index[name]
	return ok
}

// checkTool checks a tool's name by MCP's rules, and that the input schema describes an object. Model clients replace
// characters of the name that their API rejects.
func checkTool(i tool.Info) error {
	if i.Name == "" {
		return errors.New("the name is empty")
	}
	if n := len(i.Name); n > 128 {
		return fmt.Errorf("the name has %d characters; at most 128 are allowed", n)
	}
	for _, r := range i.Name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-./", r)) {
			return fmt.Errorf("the name has the character %q; letters, digits and _-./ are allowed", r)
		}
	}
	if len(i.Input) == 0 {
		return nil
	}
	return checkedSchemas.check(i.Input)
}

// checkedSchemas has the schemas that passed checkObject. Catalogues are rebuilt whenever a
// source's list changes, and checking the same schemas again would be most of the work.
var checkedSchemas = schemaSet{seed: maphash.MakeSeed(), known: map[uint64]bool{}}

// A schemaSet is a set of schemas by their hashes. The seed is random, so that no server
// can make a schema that collides with a checked one.
type schemaSet struct {
	seed  maphash.Seed
	mu    sync.RWMutex
	known map[uint64]bool
}

// maxSchemas is the size at which a schemaSet is cleared.
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

// checkObject checks that a schema describes an object. The rest is validated before the tool's first call.
func checkObject(schema json.RawMessage) error {
	var s struct {
		Type any `json:"type"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(schema), []byte("{")) {
		return errors.New("the input schema is not a JSON object")
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return fmt.Errorf("the input schema is not valid JSON: %w", err)
	}
	if s.Type != nil && s.Type != "object" {
		return fmt.Errorf("the input schema has the type %v; it must be an object", s.Type)
	}
	return nil
}

// checkInitial checks the initial groups as if they were opened in order. It rejects a group
// with an OnActivate hook, which would not have run.
func (c *catalogue) checkInitial() error {
	var open []int
	for _, name := range c.cfg.Initial {
		i, ok := c.index[name]
		if !ok {
			return fmt.Errorf("initial group %q does not exist; add it, or correct Config.Initial", name)
		}
		g := c.groups[i]
		if g.OnActivate != nil {
			return fmt.Errorf("initial group %q has an OnActivate hook, which would not run; call Enable instead", name)
		}
		for _, p := range g.requiredParents {
			if !slices.Contains(open, p) {
				return fmt.Errorf("initial group %q: put its parent %q before it in Config.Initial", name, c.groups[p].Name)
			}
		}
		if at := slices.IndexFunc(open, func(o int) bool { return c.excludes(i, o) }); at >= 0 {
			return fmt.Errorf("initial groups %q and %q exclude each other; remove one", c.groups[open[at]].Name, name)
		}
		if !slices.Contains(open, i) {
			open = append(open, i)
		}
	}
	if c.rules.looseQuota {
		return nil
	}
	if e := c.overQuota(c.usageOf(open), usage{}); e != nil {
		return fmt.Errorf("initial groups: %s", e.excess())
	}
	return nil
}
