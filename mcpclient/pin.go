package mcpclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
)

// ErrChanged means that a tool has changed since it was allowed: the server has changed its definition, or the
// model was shown another one. The tool is withheld until the user accepts the new definition; see [Pins].
var ErrChanged = errors.New("the tool has changed since it was allowed")

// Pins stores the definitions of tools as they were allowed. It is safe for concurrent use.
//
// A tool is pinned with the definition that the model was shown when it is first called, because then a rule or
// the user has allowed the call; or when it is first listed, if Options.PinListed says so. The definition is
// the tool's whole entry; the order of members and white space do not matter. A tool whose definition has
// changed is in [Client.Skipped] instead of [Client.Tools], and its calls fail with [ErrChanged].
//
// The server itself is pinned together with the first of its tools, under the name [ServerPin]: its
// instructions, and the titles and descriptions of its groups. While they differ, [Client.Status] and
// [Client.Groups] return the pinned ones.
//
// Pins are a boundary against servers: a server cannot replace a tool that the user trusts. They do not cover
// what a tool does, nor protect against programs that can write the pins.
type Pins interface {
	// Load returns the pins of a server, by the server's tool names.
	Load(server string) (map[string]Pin, error)

	// Update calls change with the pins of a server, and stores the map as change leaves it. No other Update, of
	// this or another program, may run meanwhile.
	Update(server string, change func(pins map[string]Pin)) error
}

// ServerPin is the name of the server's own pin. No tool has this name.
const ServerPin = ""

// A Pin is the stored state of a tool. Both definitions are canonical JSON: sorted members, no white space.
type Pin struct {
	Definition json.RawMessage `json:"definition"`        // the allowed definition
	Changed    json.RawMessage `json:"changed,omitempty"` // the server's latest definition, if it differs
	As         string          `json:"as,omitempty"`      // the name for rules and the model
}

// pinOf returns the pin of a tool. A tool that has taken the name of another pinned tool gets
// the pin of that one, since the allowed name meant the other tool.
func pinOf(pins map[string]Pin, t *remoteTool) (p Pin, pinned bool) {
	if p, pinned = pins[t.remote]; pinned {
		return p, true
	}
	for _, other := range slices.Sorted(maps.Keys(pins)) {
		if pins[other].As == t.info.Name {
			return Pin{Definition: pins[other].Definition, Changed: t.definition, As: t.info.Name}, true
		}
	}
	return Pin{}, false
}

// Accept returns the pin with the server's latest definition as the allowed one.
func (p Pin) Accept() Pin {
	if p.Changed != nil {
		p.Definition, p.Changed = p.Changed, nil
	}
	return p
}

// Diff returns the change as a unified diff, with control and invisible characters escaped. It
// is empty without a change.
func (p Pin) Diff() string {
	if p.Changed == nil {
		return ""
	}
	return string(diff.Diff("allowed", lines(p.Definition), "now", lines(p.Changed)))
}

// lines formats a definition for the diff.
func lines(definition json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Indent(&out, definition, "", "  ") != nil {
		return definition
	}
	text, _ := visible.Escape(out.String(), nil)
	return []byte(text + "\n")
}

// errChanged names the members of the definitions that differ; tool is empty for the server's own text.
func errChanged(server, tool string, before, after json.RawMessage) error {
	var a, b map[string]json.RawMessage
	_, _ = json.Unmarshal(before, &a), json.Unmarshal(after, &b) // unreadable definitions have no members
	all := map[string]json.RawMessage{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return bytes.Equal(a[n], b[n]) })
	if tool == ServerPin {
		return fmt.Errorf("MCP server %q: its text has changed since it was allowed, in %.300q; the user can compare and accept it with: kitbag mcp pins", server, names)
	}
	return fmt.Errorf("MCP server %q: tool %q: %w, in %.300q; the user can compare and accept it with: kitbag mcp pins", server, tool, ErrChanged, names)
}

// A serverText is what a model reads of a server, except its tools.
type serverText struct {
	Instructions string               `json:"instructions,omitempty"`
	Groups       map[string]groupText `json:"groups,omitempty"` // by the server's own names

	partial bool // the groups could not be listed
}

type groupText struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
}

// textOf returns the text of a server, without invisible characters.
func textOf(instructions string, groups []json.RawMessage) *serverText {
	text := &serverText{Instructions: instructions, Groups: map[string]groupText{}}
	for _, raw := range groups {
		if r, ok := decodeGroup(raw); ok {
			text.Groups[r.Name] = groupText{visible.Text(r.Title), visible.Text(r.Description)}
		}
	}
	return text
}

// definition returns the text in the form in which it is pinned, or nil if not all of it is known.
func (t *serverText) definition() json.RawMessage {
	if t == nil || t.partial {
		return nil
	}
	data, err := json.Marshal(t)
	if err != nil {
		return nil
	}
	return strictjson.Canonical(data)
}

// pinText updates the server's pin. The text is first pinned together with the first tool.
func pinText(pins map[string]Pin, now json.RawMessage) (changed bool) {
	p, pinned := pins[ServerPin]
	switch {
	case now == nil || !pinned && len(pins) == 0:
		return false
	case !pinned:
		p.Definition = now
	case bytes.Equal(p.Definition, now):
		p.Changed = nil
	default:
		p.Changed = now
	}
	changed = !pinned || !bytes.Equal(p.Changed, pins[ServerPin].Changed)
	pins[ServerPin] = p
	return changed
}

// applyTextPin returns the allowed text, which replaces the server's current text.
func (c *catalogue) applyTextPin(s *snapshot, pins map[string]Pin, now *serverText) *serverText {
	p, pinned := pins[ServerPin]
	if !pinned {
		return now
	}
	if p.Changed != nil {
		s.textWithheld = true
		why := errChanged(c.cfg.name, "", p.Definition, p.Changed)
		s.skipped = append(s.skipped, Skipped{"*", why.Error()})
		if last := c.snap.Load(); last == nil || !last.textWithheld {
			slog.Warn("the changed text of an MCP server is withheld", "reason", why)
		}
	}
	text := &serverText{}
	_ = json.Unmarshal(p.Definition, text) // unreadable text stays empty
	return text
}

// applyPins removes changed tools from a list, and pins those of Options.PinListed. If the pins cannot be read
// or stored, no tool is used. It returns the text of the server that may be used.
func (c *catalogue) applyPins(s *snapshot, text *serverText) *serverText {
	if c.cfg.Pins == nil {
		return text
	}
	definition := text.definition()
	pins, err := c.cfg.Pins.Load(c.cfg.name)
	change := func(pins map[string]Pin) bool {
		some := false
		for _, t := range s.remotes {
			p, pinned := pinOf(pins, t)
			switch {
			case !pinned && c.cfg.PinListed != nil && c.cfg.PinListed(t.info.Name):
				p = Pin{Definition: t.definition, As: t.info.Name}
			case !pinned:
				continue
			case bytes.Equal(p.Definition, t.definition):
				p.Changed = nil
			default:
				p.Changed = t.definition
			}
			some = some || !pinned || !bytes.Equal(p.Changed, pins[t.remote].Changed)
			pins[t.remote] = p
		}
		return pinText(pins, definition) || some
	}
	if pins == nil {
		pins = map[string]Pin{}
	}
	if err == nil && change(maps.Clone(pins)) {
		err = c.cfg.Pins.Update(c.cfg.name, func(now map[string]Pin) { change(now); pins = maps.Clone(now) })
	}
	s.remotes = slices.DeleteFunc(s.remotes, func(t *remoteTool) bool {
		why := err
		if p, pinned := pins[t.remote]; err == nil && pinned && !bytes.Equal(p.Definition, t.definition) {
			why = errChanged(c.cfg.name, t.remote, p.Definition, t.definition)
		}
		if why != nil {
			s.skipped = append(s.skipped, Skipped{clip(t.remote, maxNameBytes), why.Error()})
			s.withheld = append(s.withheld, t)
			if last := c.snap.Load(); last == nil || !slices.ContainsFunc(last.withheld, func(o *remoteTool) bool { return o.remote == t.remote }) {
				slog.Warn("an MCP tool is withheld", "reason", why)
			}
		}
		return why != nil
	})
	if err != nil {
		return nil
	}
	return c.applyTextPin(s, pins, text)
}

// checkPin is called before a call, which was allowed. It pins the tool as the model was shown it, and fails if
// that definition, or the server's current one, is not the pinned one.
func (c *catalogue) checkPin(t *remoteTool) error {
	if c.cfg.Pins == nil {
		return nil
	}
	known, _ := c.knownPins.Load(t.remote)
	pinnedDef, _ := known.(json.RawMessage)
	if !bytes.Equal(pinnedDef, t.definition) { // the user may have accepted it meanwhile
		err := c.cfg.Pins.Update(c.cfg.name, func(pins map[string]Pin) {
			p, pinned := pinOf(pins, t)
			if !pinned {
				p = Pin{Definition: t.definition, As: t.info.Name}
			}
			pins[t.remote] = p
			pinnedDef = p.Definition
			if _, pinned := pins[ServerPin]; !pinned {
				pinText(pins, t.text)
			}
		})
		if err != nil {
			return fmt.Errorf("MCP server %q: tool %q cannot be pinned, and is not called: %w", c.cfg.name, t.remote, err)
		}
		c.knownPins.Store(t.remote, pinnedDef)
	}
	is := t.definition
	if now := c.snap.Load().find(t); now != nil {
		is = now.definition
	}
	for _, d := range []json.RawMessage{t.definition, is} {
		if !bytes.Equal(pinnedDef, d) {
			c.listChanged(listOfTools) // relist, which withholds the tool
			return errChanged(c.cfg.name, t.remote, pinnedDef, d)
		}
	}
	return nil
}

// find returns the tool as it was last listed, or nil.
func (s *snapshot) find(t *remoteTool) *remoteTool {
	if s == nil {
		return nil
	}
	for _, list := range [][]*remoteTool{s.remotes, s.withheld} {
		if i := slices.IndexFunc(list, func(o *remoteTool) bool { return o.remote == t.remote }); i >= 0 {
			return list[i]
		}
	}
	return nil
}

// A PinFile is [Pins] in a file, which several programs may use at once. The file is replaced atomically, under
// a lock on the file of that name with ".lock" appended.
type PinFile string

// Load implements [Pins].
func (f PinFile) Load(server string) (map[string]Pin, error) {
	all, err := f.All()
	return all[server], err
}

// All returns the pins of all servers.
func (f PinFile) All() (servers map[string]map[string]Pin, err error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = strictjson.Members(data)
	}
	if err == nil {
		err = json.Unmarshal(data, &servers)
	}
	if err != nil {
		return nil, fmt.Errorf("the pins in %s cannot be read: %w; correct the file, or remove it to pin every tool again", f, err)
	}
	for _, pins := range servers {
		for tool, p := range pins { // the file is indented
			pins[tool] = Pin{strictjson.Canonical(p.Definition), strictjson.Canonical(p.Changed), p.As}
		}
	}
	return servers, nil
}

// Update implements [Pins].
func (f PinFile) Update(server string, change func(map[string]Pin)) error {
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
		return err
	}
	unlock, err := lockedfile.MutexAt(string(f) + ".lock").Lock()
	if err != nil {
		return err
	}
	defer unlock()
	all, err := f.All()
	if err != nil {
		return err
	}
	pins := all[server]
	if pins == nil {
		pins = map[string]Pin{}
	}
	change(pins)
	if all == nil {
		all = map[string]map[string]Pin{}
	}
	if all[server] = pins; len(pins) == 0 {
		delete(all, server)
	}
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return writePrivate(string(f), append(data, '\n'))
}
