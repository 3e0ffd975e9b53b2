package mcpclient

import (
	"bytes"
	"cmp"
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

	"github.com/kitbag-go/kitbag/internal/replacefile"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
)

// ErrChanged means that the definition of a tool or skill differs from the one that was allowed. The tool or skill is
// withheld until the user accepts the new definition; see [Pins].
var ErrChanged = errors.New("the definition has changed since it was allowed")

// Pins stores the definitions of tools as they were allowed. It is safe for concurrent use.
//
// A tool is pinned when a rule or the user has allowed its first call, with the definition that the model was shown; or
// when it is first listed, if Options.PinListed says so. The definition is the tool's whole entry; the order of members
// and white space do not matter. A tool whose definition has changed is in [Client.Skipped] instead of [Client.Tools],
// and its calls fail with [ErrChanged].
//
// The server's own text, which is its instructions and the titles and descriptions of its groups, is pinned together with
// the first of its tools, under the name [ServerPin]. While the text differs from the pinned text, [Client.Status] and
// [Client.Groups] return the pinned text.
//
// A skill is pinned in the same way when its text or a file is first read, with the digests of all its files, under the
// name "skill URI".
//
// Pins are a boundary against servers: a server cannot replace a tool that the user trusts. They do not cover
// what a tool does, nor protect against programs that can write the pins.
type Pins interface {
	// Load returns the pins of a server, by the server's tool names.
	Load(server string) (map[string]Pin, error)

	// Update calls change with the pins of a server, which may be empty but not nil, and stores the changed map. An
	// Update waits until every other Update, of this or another program, has ended.
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

// pinOf returns the pin of a tool. A tool without a pin that has the model name of a pinned tool gets that tool's
// definition as the allowed one, since the model name was allowed for that tool.
func pinOf(pins map[string]Pin, name, modelName string, definition json.RawMessage) (p Pin, pinned bool) {
	if p, pinned = pins[name]; pinned {
		return p, true
	}
	for _, other := range slices.Sorted(maps.Keys(pins)) {
		if pins[other].As == modelName {
			return Pin{Definition: pins[other].Definition, Changed: definition, As: modelName}, true
		}
	}
	return Pin{}, false
}

// withCurrent returns the pin with the server's current definition, as Changed if it differs from the allowed one.
func (p Pin) withCurrent(definition json.RawMessage) Pin {
	if p.Changed = definition; bytes.Equal(p.Definition, definition) {
		p.Changed = nil
	}
	return p
}

// Accept returns the pin with the server's latest definition as the allowed one.
func (p Pin) Accept() Pin {
	if p.Changed != nil {
		p.Definition, p.Changed = p.Changed, nil
	}
	return p
}

// Diff returns the change as a unified diff, with control and invisible characters escaped. The diff is empty without a
// change.
func (p Pin) Diff() string {
	if p.Changed == nil {
		return ""
	}
	return string(diff.Diff("allowed", indented(p.Definition), "now", indented(p.Changed)))
}

// indented formats a definition for the diff, with each member on its own line.
func indented(definition json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Indent(&out, definition, "", "  ") != nil {
		return definition
	}
	text, _ := visible.Escape(out.String(), nil)
	return []byte(text + "\n")
}

// errChanged returns the error for a change of what, a tool or skill. The error lists the members that differ.
func errChanged(what string, before, after json.RawMessage) error {
	return fmt.Errorf("%s: %w, in %.300q; the user can compare and accept it with: kitbag mcp pins", what, ErrChanged, differing(before, after))
}

// describeTool names a tool in errors.
func (c *config) describeTool(name string) string {
	return fmt.Sprintf("MCP server %q: tool %q", c.name, name)
}

// differing returns the names of the members that differ.
func differing(before, after json.RawMessage) []string {
	var a, b map[string]json.RawMessage
	_, _ = json.Unmarshal(before, &a), json.Unmarshal(after, &b) // unreadable definitions have no members
	all := map[string]json.RawMessage{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return bytes.Equal(a[n], b[n]) })
}

// A serverText is the text of a server that models read, except its tools.
type serverText struct {
	Instructions string               `json:"instructions,omitempty"`
	Groups       map[string]groupText `json:"groups,omitempty"` // by the server's names of the groups

	partial bool // the groups could not be listed
}

type groupText struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
}

// textOf returns the text of a server, without invisible characters. They were already removed from the instructions.
func textOf(instructions string, groups []json.RawMessage) *serverText {
	text := &serverText{Instructions: instructions, Groups: map[string]groupText{}}
	for _, raw := range groups {
		if r, ok := decodeGroup(raw); ok {
			text.Groups[r.Name] = groupText{visible.Text(r.Title), visible.Text(r.Description)}
		}
	}
	return text
}

// definition returns the canonical JSON of the text, to be pinned; nil if the text is not completely known.
func (t *serverText) definition() json.RawMessage {
	if t == nil || t.partial {
		return nil
	}
	data, _ := json.Marshal(t) // strings can be encoded
	return strictjson.Canonical(data)
}

// pinText updates the pin of the server's text, and reports whether the pin has changed. Without pinned tools the text is
// not pinned; a definition of nil, for an unknown text, changes nothing.
func pinText(pins map[string]Pin, definition json.RawMessage) (changed bool) {
	if definition == nil || len(pins) == 0 {
		return false
	}
	p, pinned := pins[ServerPin]
	if !pinned {
		p.Definition = definition
	}
	pins[ServerPin] = p.withCurrent(definition)
	return !pinned || !bytes.Equal(p.Changed, pins[ServerPin].Changed)
}

// applyTextPin returns the text to use: the pinned text, or the server's current text if none is pinned. A changed text is
// noted in the snapshot.
func (c *catalogue) applyTextPin(s *snapshot, pins map[string]Pin, current *serverText) *serverText {
	p, pinned := pins[ServerPin]
	if !pinned {
		return current
	}
	if p.Changed != nil {
		s.textWithheld = true
		reason := fmt.Errorf("MCP server %q: its text has changed since it was allowed, in %.300q; the user can compare and accept it with: kitbag mcp pins",
			c.cfg.name, differing(p.Definition, p.Changed))
		s.skipped = append(s.skipped, Skipped{"*", reason.Error()})
		if last := c.snap.Load(); last == nil || !last.textWithheld { // warn only once
			slog.Warn("the changed text of an MCP server is withheld", "reason", reason)
		}
	}
	text := &serverText{}
	_ = json.Unmarshal(p.Definition, text) // unreadable text stays empty
	return text
}

// applyPins moves changed tools of the snapshot to withheld, and pins tools that Options.PinListed accepts. If the pins
// cannot be read or stored, all tools are withheld. The result is the text of the server to use; nil for none.
func (c *catalogue) applyPins(s *snapshot, text *serverText) *serverText {
	if c.cfg.Pins == nil {
		return text
	}
	pins, err := c.cfg.Pins.Load(c.cfg.name)
	if pins == nil {
		pins = map[string]Pin{}
	}
	if err == nil && c.updatePins(maps.Clone(pins), s.remotes, text) { // most lists need no Pins.Update
		err = c.cfg.Pins.Update(c.cfg.name, func(stored map[string]Pin) {
			c.updatePins(stored, s.remotes, text)
			pins = maps.Clone(stored)
		})
	}
	s.remotes = slices.DeleteFunc(s.remotes, func(t *remoteTool) bool {
		reason := err
		if p, pinned := pins[t.remoteName]; err == nil && pinned && !bytes.Equal(p.Definition, t.definition) {
			reason = errChanged(c.cfg.describeTool(t.remoteName), p.Definition, t.definition)
		}
		if reason == nil {
			return false
		}
		s.skipped = append(s.skipped, Skipped{clip(t.remoteName, maxNameBytes), reason.Error()})
		s.withheld = append(s.withheld, t)
		if last := c.snap.Load(); last == nil || findTool(last.withheld, t.remoteName) == nil { // warn only once
			slog.Warn("an MCP tool is withheld", "reason", reason)
		}
		return true
	})
	if err != nil {
		return nil
	}
	return c.applyTextPin(s, pins, text)
}

// updatePins updates the pins for a list, and reports whether they have changed.
func (c *catalogue) updatePins(pins map[string]Pin, listed []*remoteTool, text *serverText) (changed bool) {
	for _, t := range listed {
		p, pinned := pinOf(pins, t.remoteName, t.info.Name, t.definition)
		if !pinned {
			if c.cfg.PinListed == nil || !c.cfg.PinListed(t.info.Name) {
				continue
			}
			p = Pin{Definition: t.definition, As: t.info.Name}
		}
		p = p.withCurrent(t.definition)
		changed = changed || !pinned || !bytes.Equal(p.Changed, pins[t.remoteName].Changed)
		pins[t.remoteName] = p
	}
	return pinText(pins, text.definition()) || changed
}

// checkPin is called before a call that was allowed. It pins the definition that the model was shown, and fails if that
// definition or the server's current definition differs from the pinned definition.
func (c *catalogue) checkPin(t *remoteTool) error {
	if c.cfg.Pins == nil {
		return nil
	}
	pinned, err := c.pin(t.remoteName, t.info.Name, t.definition, t.textDefinition)
	if err != nil {
		return err
	}
	current := t.definition
	if s := c.snap.Load(); s != nil {
		if listed := cmp.Or(findTool(s.remotes, t.remoteName), findTool(s.withheld, t.remoteName)); listed != nil {
			current = listed.definition
		}
	}
	for _, d := range []json.RawMessage{t.definition, current} {
		if !bytes.Equal(pinned, d) {
			c.scheduleUpdate(listOfTools) // the next list withholds the tool
			return errChanged(c.cfg.describeTool(t.remoteName), pinned, d)
		}
	}
	return nil
}

// pin pins a tool or skill under its name, unless it has a pin, and returns the pinned definition. If the server's text has
// no pin, text is pinned too.
func (c *catalogue) pin(name, modelName string, definition, text json.RawMessage) (allowed json.RawMessage, err error) {
	known, _ := c.knownPins.Load(name)
	if allowed, _ = known.(json.RawMessage); bytes.Equal(allowed, definition) {
		return allowed, nil
	}
	err = c.cfg.Pins.Update(c.cfg.name, func(pins map[string]Pin) { // even for a known pin: the user may have accepted the change
		p, pinned := pinOf(pins, name, modelName, definition)
		if !pinned {
			p = Pin{Definition: definition, As: modelName}
		}
		pins[name] = p
		allowed = p.Definition
		if _, textPinned := pins[ServerPin]; !textPinned {
			pinText(pins, text)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s cannot be pinned, and is not used: %w", c.cfg.describeTool(name), err)
	}
	c.knownPins.Store(name, allowed)
	return allowed, nil
}

// findTool returns the tool with the server's name, or nil.
func findTool(tools []*remoteTool, remoteName string) *remoteTool {
	if i := slices.IndexFunc(tools, func(t *remoteTool) bool { return t.remoteName == remoteName }); i >= 0 {
		return tools[i]
	}
	return nil
}

// A PinFile stores [Pins] in a file, which several programs may use at once. The file is replaced atomically, under a
// lock on the file of the same name with ".lock" appended.
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
		for tool, p := range pins { // Update has indented the definitions
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
	if all == nil {
		all = map[string]map[string]Pin{}
	}
	if all[server] == nil {
		all[server] = map[string]Pin{}
	}
	if change(all[server]); len(all[server]) == 0 {
		delete(all, server)
	}
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return replacefile.Write(string(f), append(data, '\n'), 0o600)
}
