// Package config reads the groups and settings of a toolkit from JSON, so that
// an operator can change them without rebuilding the program:
//
//	{
//	  "groups":    [{"name": "database", "description": "Orders and customers.", "tools": ["query"]}],
//	  "tools":     [{"name": "query", "state": "analysis", "available_in_states": ["undefined"]}],
//	  "exclusive": [["database", "archive"]],
//	  "initial_groups": ["database"],
//	  "max_tools": 40
//	}
//
// [Apply] applies such a file to a configuration whose tools and sources were registered in Go. The file places
// and limits tools; it cannot create any. Errors name the line and the key.
//
// To reload, let the toolkit's Update replace the configuration. If the new
// file is invalid, the old configuration stays in use:
//
//	err := tk.Update(func(cfg *toolkit.Config) error {
//		next, err := config.Apply(base, data)
//		if err == nil {
//			*cfg = next
//		}
//		return err
//	})
package config

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/toolkit"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed schema.json
var schemaJSON []byte

// Schema returns the JSON Schema of the file.
func Schema() json.RawMessage { return bytes.Clone(schemaJSON) }

var compiledSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaJSON))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("schema.json")
})

// An Error is a mistake in a file.
type Error struct {
	Line int    // counted from 1
	Key  string // such as tools[0].group; empty for the whole file
	Text string
}

func (e *Error) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Text)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Key, e.Text)
}

type file struct {
	Groups    []group    `json:"groups"`
	Tools     []setting  `json:"tools"`
	Exclusive [][]string `json:"exclusive"`
	Initial   []string   `json:"initial_groups"`
	MaxTools  *int       `json:"max_tools"`
	MaxGroups *int       `json:"max_groups"`
	MaxBytes  *int       `json:"max_bytes"`
}

type group struct {
	Name         string   `json:"name"`
	Title        string   `json:"title"`
	Description  string   `json:"description"`
	Instructions string   `json:"instructions"`
	Parents      []string `json:"parents"`
	Tools        []string `json:"tools"`
}

type setting struct {
	Name  string   `json:"name"`
	Group []string `json:"group"`
	State string   `json:"state"` // the phase after a successful call

	// Two spellings of one key: TrustGraph's documents and its code differ.
	Available  []string `json:"available_in_states"`
	Applicable []string `json:"applicable-states"`
}

// Apply returns base with the file applied. A group of the file is added, or replaces the texts and parents of the
// group with the same name in base. Tools that groups of the file name are only in these groups. An entry of "tools"
// replaces the groups, if it names any, and the phases in the Setting of its tool. Other keys replace the
// corresponding fields. The error joins the mistakes in the file, each an [*Error]; [toolkit.New] finds further ones.
func Apply(base toolkit.Config, data []byte) (toolkit.Config, error) {
	root, err := parse(data)
	if err != nil {
		return base, err
	}
	if err := validate(root, data); err != nil {
		return base, err
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return base, &Error{Line: 1, Text: err.Error()}
	}
	a := applier{cfg: base, root: root}
	a.groups(f.Groups)
	a.settings(f.Tools)
	a.otherKeys(f)
	return a.cfg, join(a.errs)
}

// join joins errors in the order of their lines.
func join(errs []*Error) error {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Key, b.Key), strings.Compare(a.Text, b.Text))
	})
	out := make([]error, len(errs))
	for i, e := range errs {
		out[i] = e
	}
	return errors.Join(out...)
}

// validate checks the file against the schema. It reports the innermost errors, which say what is wrong with which key.
func validate(root *node, data []byte) error {
	s, err := compiledSchema()
	if err != nil {
		return fmt.Errorf("compile the schema of the configuration, which is part of this program: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return &Error{Line: 1, Text: err.Error()}
	}
	ve, ok := errors.AsType[*jsonschema.ValidationError](s.Validate(doc))
	if !ok {
		return nil
	}
	var errs []*Error
	var walk func(*jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		for _, cause := range v.Causes {
			walk(cause)
		}
		if len(v.Causes) == 0 {
			errs = append(errs, root.errorAt(v.InstanceLocation, v.DetailedOutput().Error.String()))
		}
	}
	walk(ve)
	return join(errs)
}

// An applier applies a file to a configuration.
type applier struct {
	cfg  toolkit.Config
	root *node
	errs []*Error
}

// fail records an error for the value at a path of keys and positions.
func (a *applier) fail(text string, path ...any) {
	var keys []string
	for _, p := range path {
		keys = append(keys, fmt.Sprint(p))
	}
	a.errs = append(a.errs, a.root.errorAt(keys, text))
}

func (a *applier) groups(groups []group) {
	a.cfg.Groups = slices.Clone(a.cfg.Groups)
	groupsOf := map[string][]string{} // by tool
	for i, g := range groups {
		if slices.ContainsFunc(groups[:i], func(o group) bool { return o.Name == g.Name }) {
			a.fail("duplicate group name; merge the two", "groups", i, "name")
			continue
		}
		at := slices.IndexFunc(a.cfg.Groups, func(o toolkit.Group) bool { return o.Name == g.Name })
		if at < 0 {
			a.cfg.Groups = append(a.cfg.Groups, toolkit.Group{Name: g.Name})
			at = len(a.cfg.Groups) - 1
		}
		t := &a.cfg.Groups[at]
		t.Title, t.Description, t.Instructions, t.Parents = g.Title, g.Description, g.Instructions, g.Parents
		for _, name := range g.Tools {
			groupsOf[name] = append(groupsOf[name], g.Name)
		}
	}
	for i, g := range groups {
		for j, p := range g.Parents {
			a.checkGroup(p, "groups", i, "parents", j)
		}
		for j, name := range g.Tools {
			a.checkTool(name, "groups", i, "tools", j)
			a.setting(name).Groups = groupsOf[name]
		}
	}
}

func (a *applier) settings(tools []setting) {
	labelsOnly := a.cfg.LabelsOnly || a.cfg.Preset.LabelsOnly()
	for i, t := range tools {
		sameTool := func(o setting) bool { return o.Name == t.Name }
		a.checkTool(t.Name, "tools", i, "name")
		if slices.ContainsFunc(tools[:i], sameTool) && !a.cfg.Preset.Replaces() {
			a.fail("duplicate tool name; merge the two", "tools", i, "name")
		}
		s := a.setting(t.Name)
		if slices.ContainsFunc(tools[i+1:], sameTool) {
			s = new(toolkit.Setting) // a later setting of the tool replaces this one completely, so discard it
		}
		if t.Group != nil {
			s.Groups = t.Group
		}
		for j, g := range t.Group {
			if !labelsOnly { // a label needs no group
				a.checkGroup(g, "tools", i, "group", j)
			}
		}
		s.Next, s.Phases = t.State, t.Available
		switch {
		case t.Available == nil:
			s.Phases = t.Applicable
		case t.Applicable != nil && !slices.Equal(t.Available, t.Applicable):
			a.fail("differs from available_in_states, which is another spelling of the same key; remove one", "tools", i, "applicable-states")
		}
	}
}

// setting returns the setting for a tool, for the caller to change. It adds the setting if there is none.
func (a *applier) setting(name string) *toolkit.Setting {
	a.cfg.Settings = slices.Clone(a.cfg.Settings)
	i := slices.IndexFunc(a.cfg.Settings, func(s toolkit.Setting) bool { return s.Tool == name })
	if i < 0 {
		a.cfg.Settings = append(a.cfg.Settings, toolkit.Setting{Tool: name})
		i = len(a.cfg.Settings) - 1
	}
	return &a.cfg.Settings[i]
}

func (a *applier) otherKeys(f file) {
	for i, set := range f.Exclusive {
		for j, name := range set {
			a.checkGroup(name, "exclusive", i, j)
		}
	}
	for i, name := range f.Initial {
		a.checkGroup(name, "initial_groups", i)
	}
	if f.Exclusive != nil {
		a.cfg.Exclusive = f.Exclusive
	}
	if f.Initial != nil {
		a.cfg.Initial = f.Initial
	}
	for _, quota := range []struct{ to, from *int }{{&a.cfg.MaxTools, f.MaxTools}, {&a.cfg.MaxGroups, f.MaxGroups}, {&a.cfg.MaxBytes, f.MaxBytes}} {
		if quota.from != nil {
			*quota.to = *quota.from
		}
	}
}

// checkGroup records an error if the group does not exist.
func (a *applier) checkGroup(name string, path ...any) {
	if !slices.ContainsFunc(a.cfg.Groups, func(g toolkit.Group) bool { return g.Name == name }) {
		a.fail(fmt.Sprintf("unknown group %q; add it to groups", name), path...)
	}
}

// checkTool records an error if the tool is not registered, unless there are sources, which may list the tool later.
func (a *applier) checkTool(name string, path ...any) {
	var names []string
	for _, g := range append([]toolkit.Group{a.cfg.Basic}, a.cfg.Groups...) {
		if len(g.Sources) > 0 {
			return
		}
		for _, t := range g.Tools {
			names = append(names, t.Info().Name)
		}
	}
	if !slices.Contains(names, name) {
		a.fail(fmt.Sprintf("unknown tool %q; the tools are %s", name, strings.Join(names, ", ")), path...)
	}
}
