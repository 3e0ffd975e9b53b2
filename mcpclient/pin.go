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

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/lockedfile"
)

// ErrChanged says that a tool is not the one that was allowed: the server has changed its
// definition since, or says something else than it told the model. It is held back until
// a person accepts the new definition; see [Pins].
var ErrChanged = errors.New("the tool is not the one that was allowed")

// Pins keeps the definitions of the tools that were allowed, as they were then. It is safe
// for concurrent use.
//
// A tool is pinned when it is first called, with the definition that the model was shown,
// since whoever calls has been allowed to; and when it is first listed, if Options.PinListed
// says so. A definition is all that the server says of a tool. While it is another one, the
// tool is not in [Client.Tools] but in [Client.Skipped], and its calls fail with
// [ErrChanged]. The order of members, of tools, and white space do not count.
//
// With the first of its tools the server itself is pinned, under the name [ServerPin]: its
// instructions, and the titles and descriptions of its groups, which models read too. While
// it says something else, [Client.Status] and [Client.Groups] return what was pinned.
//
// Pins are a boundary for servers: none can make another tool of one that a person trusts.
// They are none for what a tool does, of which the server says what it likes, nor for
// programs that can write where the pins are.
type Pins interface {
	// Load returns the pins of a server, by its own names of the tools, as they are then.
	Load(server string) (map[string]Pin, error)

	// Update has change put in, replace and delete pins of a server, and keeps what it
	// leaves. No other Update, of another program either, comes in between.
	Update(server string, change func(pins map[string]Pin)) error
}

// ServerPin is the name under which [Pins] have the server itself. No tool is called so.
const ServerPin = ""

// A Pin is what is kept of a tool. Both definitions are canonical JSON: the members are
// sorted, and there is no white space.
type Pin struct {
	Definition json.RawMessage `json:"definition"`        // that was allowed
	Changed    json.RawMessage `json:"changed,omitempty"` // that the server gave last, if it is another one
	As         string          `json:"as,omitempty"`      // what rules and the model called it
}

// pinOf returns the pin of a tool. One that has got the name by which rules know another tool
// is held to what that was: whoever allowed the name has not seen this one.
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

// Accept returns the pin for the definition that the server gave last.
func (p Pin) Accept() Pin {
	if p.Changed != nil {
		p.Definition, p.Changed = p.Changed, nil
	}
	return p
}

// Diff returns what the server has changed as a unified diff, with control and invisible
// characters escaped; empty is nothing.
func (p Pin) Diff() string {
	if p.Changed == nil {
		return ""
	}
	return string(diff.Diff("allowed", lines(p.Definition), "now", lines(p.Changed)))
}

// lines writes a definition so that people can compare it with another one.
func lines(definition json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Indent(&out, definition, "", "  ") != nil {
		return definition
	}
	text, _ := visible.Escape(out.String(), nil)
	return []byte(text + "\n")
}

// errChanged names the members of the definitions that differ; tool is empty for the server's.
func errChanged(server, tool string, was, is json.RawMessage) error {
	var a, b map[string]json.RawMessage
	_, _ = json.Unmarshal(was, &a), json.Unmarshal(is, &b) // what cannot be read differs as a whole
	all := map[string]json.RawMessage{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return bytes.Equal(a[n], b[n]) })
	if tool == ServerPin {
		return fmt.Errorf("MCP server %q: its text is not the one that was allowed, in %.300q; a person can compare and accept it with: kitbag mcp pins", server, names)
	}
	return fmt.Errorf("MCP server %q: tool %q: %w, in %.300q; a person can compare and accept it with: kitbag mcp pins", server, tool, ErrChanged, names)
}

// A serverText is what a model reads of a server besides its tools.
type serverText struct {
	Instructions string               `json:"instructions,omitempty"`
	Groups       map[string]groupText `json:"groups,omitempty"` // by the server's own names

	partial bool // the groups could not be listed
}

type groupText struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
}

// textOf returns the text of a server, without what people would not see.
func textOf(instructions string, groups []json.RawMessage) *serverText {
	text := &serverText{Instructions: instructions, Groups: map[string]groupText{}}
	for _, raw := range groups {
		if r, ok := decodeGroup(raw); ok {
			text.Groups[r.Name] = groupText{visible.Text(r.Title), visible.Text(r.Description)}
		}
	}
	return text
}

// definition returns the text as it is pinned; nil if not all of it is known.
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

// pinText updates the server's pin. Without one, the text is pinned with the first tool.
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

// holdText returns the text that was allowed, in place of the text that the server has now.
func (c *Client) holdText(s *snapshot, pins map[string]Pin, now *serverText) *serverText {
	p, pinned := pins[ServerPin]
	if !pinned {
		return now
	}
	if p.Changed != nil {
		s.textHeld = true
		why := errChanged(c.cfg.name, "", p.Definition, p.Changed)
		s.skipped = append(s.skipped, Skipped{"*", why.Error()})
		if last := c.snap.Load(); last == nil || !last.textHeld {
			slog.Warn("the text of an MCP server is held back", "reason", why)
		}
	}
	text := &serverText{}
	_ = json.Unmarshal(p.Definition, text) // without what cannot be read
	return text
}

// hold takes the tools out of a list that are not what was allowed, and pins those that
// are to be pinned at once. If the pins cannot be read or kept, no tool is used. It returns
// the text of the server that may be used.
func (c *Client) hold(s *snapshot, text *serverText) *serverText {
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
			s.held = append(s.held, t)
			if last := c.snap.Load(); last == nil || !slices.ContainsFunc(last.held, func(o *remoteTool) bool { return o.remote == t.remote }) {
				slog.Warn("an MCP tool is held back", "reason", why)
			}
		}
		return why != nil
	})
	if err != nil {
		return nil
	}
	return c.holdText(s, pins, text)
}

// allowed is called for a call, which is allowed if it comes here. It pins the tool as the
// model was shown it, or fails if that, or what the server says now, is not what is pinned.
func (c *Client) allowed(t *remoteTool) error {
	if c.cfg.Pins == nil {
		return nil
	}
	known, _ := c.pinned.Load(t.remote)
	was, _ := known.(json.RawMessage)
	if !bytes.Equal(was, t.definition) { // else a person may have accepted it meanwhile
		err := c.cfg.Pins.Update(c.cfg.name, func(pins map[string]Pin) {
			p, pinned := pinOf(pins, t)
			if !pinned {
				p = Pin{Definition: t.definition, As: t.info.Name}
			}
			pins[t.remote] = p
			was = p.Definition
			if _, pinned := pins[ServerPin]; !pinned {
				pinText(pins, t.text)
			}
		})
		if err != nil {
			return fmt.Errorf("MCP server %q: tool %q cannot be pinned, and is not called: %w", c.cfg.name, t.remote, err)
		}
		c.pinned.Store(t.remote, was)
	}
	is := t.definition
	if now := c.snap.Load().find(t); now != nil {
		is = now.definition
	}
	for _, d := range []json.RawMessage{t.definition, is} {
		if !bytes.Equal(was, d) {
			c.changed(listOfTools) // which holds it back
			return errChanged(c.cfg.name, t.remote, was, d)
		}
	}
	return nil
}

// find returns the tool as it was listed last; nil if it was not.
func (s *snapshot) find(t *remoteTool) *remoteTool {
	if s == nil {
		return nil
	}
	for _, list := range [][]*remoteTool{s.remotes, s.held} {
		if i := slices.IndexFunc(list, func(o *remoteTool) bool { return o.remote == t.remote }); i >= 0 {
			return list[i]
		}
	}
	return nil
}

// A PinFile is [Pins] in the file of that name, which several programs may use. It is
// replaced as a whole, so that no half of it is ever read, under the lock of another file
// beside it, whose name ends in ".lock".
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
		return nil, fmt.Errorf("the pins in %s cannot be read: %w; put the file right, or remove it and every tool is pinned anew", f, err)
	}
	for _, pins := range servers {
		for tool, p := range pins { // which is indented in the file
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
