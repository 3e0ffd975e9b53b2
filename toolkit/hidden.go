package toolkit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/near"
	"github.com/kitbag-go/kitbag/tool"
)

// A HiddenError says why there is no tool for a call. Its text is for the
// model. With presets that hide what is closed it is the same for a hidden tool and for one
// that does not exist; the fields are for the host.
type HiddenError struct {
	Tool    string
	Known   bool     // there is such a tool, and the ceiling grants it
	Groups  []string // granted groups that have it, sorted; empty if groups are not what hides it
	Parents []string // what to open before the first of Groups, in order
	Phase   string   // if the phase hides it: the present phase
	Nearest []string // visible tools of similar names, if it is not known
	Active  []string // the open groups that the ceiling grants, in order of activation

	text string
}

func (e *HiddenError) Error() string { return e.text }

// Resolve finds the tool for a call: the tool and the arguments with which it
// is to be called. Both are the call's own, except for a control tool that
// calls others on the model's behalf. The error is a [*HiddenError], or says
// what is wrong with the arguments of such a call; its text is for the model.
// With [Discover] it may list sources that nobody has searched yet, for as long
// as ctx lasts.
func (v *View) Resolve(ctx context.Context, name string, input json.RawMessage) (tool.Tool, json.RawMessage, error) {
	for _, t := range v.control() {
		if t.Info().Name != name {
			continue
		}
		if f, ok := t.(forwarder); ok {
			return f.forward(ctx, v, input)
		}
		return t, input, nil
	}
	b := v.body
	if e, ok := b.c.find(name, b.r); ok {
		return e.tool, input, nil
	}
	return nil, nil, b.hidden(name)
}

// A forwarder is a control tool that calls others.
type forwarder interface {
	forward(ctx context.Context, v *View, input json.RawMessage) (tool.Tool, json.RawMessage, error)
}

// Late reports whether calls of the tool change what is open. They run after
// the other calls of the same answer, and show in the next View.
func (v *View) Late(name string) bool {
	for _, t := range v.control() {
		if t.Info().Name == name {
			_, forwards := t.(forwarder)
			return !forwards && !t.Info().ReadOnly
		}
	}
	return false
}

// hidden makes the error for a name that nothing visible has. What is above the
// ceiling is treated as if it did not exist, whatever the policy.
func (b *body) hidden(name string) *HiddenError {
	e := &HiddenError{Tool: name, Active: b.c.activeNames(b.r)}
	for _, en := range b.c.named(name) {
		if b.c.granted(en, b.r) {
			e.Known = true
			b.explain(e, en)
		}
	}
	if !e.Known || b.c.rules.opaque {
		e.Nearest = b.nearest(name)
		e.text = fmt.Sprintf("there is no tool %q", name)
		if len(e.Nearest) > 0 {
			e.text += "; did you mean " + strings.Join(e.Nearest, " or ") + "?"
		}
		return e
	}
	e.text = b.advise(e)
	return e
}

// activeNames returns the open groups that the ceiling grants.
func (c *catalogue) activeNames(r *resolved) []string {
	return c.names(slices.DeleteFunc(slices.Clone(r.order), func(g int) bool { return !c.grantsGroup(g, r.ceiling) }))
}

// explain says which gates are closed for a tool.
func (b *body) explain(e *HiddenError, en *entry) {
	c := b.c
	if !c.inPhase(en, b.r) {
		e.Phase = b.r.phase
	}
	if c.member(en, b.r) {
		return
	}
	for _, g := range en.groups {
		if c.grantsGroup(g, b.r.ceiling) && !slices.Contains(e.Groups, c.groups[g].Name) {
			e.Groups = append(e.Groups, c.groups[g].Name)
		}
	}
	slices.Sort(e.Groups)
	if len(e.Groups) > 0 {
		missing := c.missing(c.index[e.Groups[0]], b.r.order)
		e.Parents = c.names(slices.DeleteFunc(missing, func(i int) bool { return !c.grantsGroup(i, b.r.ceiling) }))
	}
}

// advise words the error so that following it works: parents first, and together
// with what is open now, which a control that takes the full state would close.
func (b *body) advise(e *HiddenError) string {
	if _, ok := b.c.control.(discover); ok && len(e.Groups) > 0 {
		return fmt.Sprintf(`tool %q is not in your list; call it with %s: {"name":%s,"arguments":{…}}`, e.Tool, callTool, mustJSON(e.Tool))
	}
	text := fmt.Sprintf("tool %q is not available", e.Tool)
	switch {
	case len(e.Groups) == 1:
		text += fmt.Sprintf(": its group %q is not open", e.Groups[0])
	case len(e.Groups) > 1:
		text += fmt.Sprintf(": none of its groups %s is open", strings.Join(e.Groups, ", "))
	case e.Phase != "":
		text += fmt.Sprintf(" in the present phase, %q", e.Phase)
	default:
		text += " at the moment"
	}
	if len(e.Groups) == 0 {
		return text
	}
	if hint := b.c.control.Hint(e.Active, append(slices.Clone(e.Parents), e.Groups[0])); hint != "" {
		text += "; " + hint + " first"
	}
	return text
}

// nearest returns up to three visible tools whose names resemble the one given,
// the most alike first.
func (b *body) nearest(name string) []string {
	var names []string
	for _, i := range b.infos {
		names = append(names, i.Name)
	}
	return near.Names(name, names, 3)
}
