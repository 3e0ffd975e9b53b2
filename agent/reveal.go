package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A revealed is what the model was shown of tools, where it can be told of changes at the end of the
// conversation; see [model.Reveal]. It is of one generation of the conversation, and begins anew with each.
//
// The State stores of the first list which groups were open, and of a later tool a name and a hash: the
// definitions come from the toolkit. If they are not the same there, it begins anew.
type revealed struct {
	generation  int
	scope       json.RawMessage // as it was when the first list was made
	first       string          // the hash of the digest of the first list
	head        []tool.Info     // the first list; nil until a State that was loaded is used
	headDigest  string
	changes     []*model.ToolChange
	stored      []changeJSON // the same, as they are stored
	digest      string       // of the list that the changes lead to
	closedSpace int          // estimated tokens of the tools that were shown and may not be called
}

type revealedJSON struct {
	Generation int             `json:"generation,omitempty"`
	Scope      json.RawMessage `json:"scope"`
	First      string          `json:"first"`
	Changes    []changeJSON    `json:"changes,omitempty"`
}

// A changeJSON is a change of which the answer to it is the message at index At.
type changeJSON struct {
	At     int       `json:"at"`
	Add    []shownAs `json:"add,omitempty"`
	Remove []string  `json:"remove,omitempty"`
}

// A shownAs is a tool and a hash of its definition.
type shownAs struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

// reveal says of the tools in req what a model.Revealer reads in their place, nil if that is the same.
func (r *run) reveal(req *model.Request) *model.Reveal {
	n := len(r.st.Messages)
	if !r.a.reveals || n == 0 || len(req.Messages) < n || !slices.Equal(req.Messages[:n], r.st.Messages) {
		return nil
	}
	v := r.st.revealed
	if v == nil || v.generation != r.st.Generation || !r.restore(v, req) || !v.update(req) {
		v = r.newRevealed(req)
		r.st.revealed = v
	}
	if v.headDigest == req.Digest && len(v.changes) == 0 {
		return nil
	}
	return &model.Reveal{Head: v.head, Digest: v.headDigest, Changes: slices.Clip(v.changes)}
}

// newRevealed begins with the tools of req.
func (r *run) newRevealed(req *model.Request) *revealed {
	scope, err := r.st.Scope.MarshalJSON()
	if err != nil {
		scope = json.RawMessage("{}") // of which the hash is another
	}
	return &revealed{generation: r.st.Generation, scope: scope, first: hash([]byte(req.Digest)),
		head: req.Tools, headDigest: req.Digest, digest: req.Digest}
}

// hash returns a short hash, in hexadecimal digits.
func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:12])
}

// update brings v up to the tools of req. It returns false if it has to begin anew: a definition has changed, or
// the messages are not those that the changes were told between.
func (v *revealed) update(req *model.Request) bool {
	isAnswer := func(at int) bool {
		return at > 0 && at < len(req.Messages) && req.Messages[at].Role == message.RoleAssistant
	}
	n := len(v.changes)
	if n > 0 && !isAnswer(v.changes[n-1].At) { // its request had no answer
		n--
		v.changes, v.stored, v.digest = slices.Clip(v.changes[:n]), slices.Clip(v.stored[:n]), ""
	}
	at := 0
	for _, c := range v.changes {
		if !isAnswer(c.At) || c.At < at {
			return false
		}
		at = c.At
	}
	if v.digest == req.Digest {
		return true
	}
	c, ok := v.difference(req.Tools)
	if !ok {
		return false
	}
	if c.Add != nil || c.Remove != nil {
		c.At = len(req.Messages)
		v.changes, v.stored = append(v.changes, c), append(v.stored, storedChange(c))
	}
	v.digest = req.Digest
	return true
}

// difference returns what changes the tools that may be called to those in tools, and false if one of them was
// shown with another definition.
func (v *revealed) difference(tools []tool.Info) (*model.ToolChange, bool) {
	var shown []tool.Info // in the order in which they were
	callable := map[string]bool{}
	at := map[string]int{}
	add := func(infos []tool.Info) {
		for _, t := range infos {
			if _, known := at[t.Name]; !known {
				at[t.Name] = len(shown)
				shown = append(shown, t)
			}
			callable[t.Name] = true
		}
	}
	add(v.head)
	for _, c := range v.changes {
		for _, name := range c.Remove {
			delete(callable, name)
		}
		add(c.Add)
	}
	c := new(model.ToolChange)
	wanted := make(map[string]bool, len(tools))
	for _, t := range tools {
		wanted[t.Name] = true
		if i, known := at[t.Name]; known && !sameDefinition(&shown[i], &t) {
			return nil, false
		}
		if !callable[t.Name] {
			c.Add = append(c.Add, t)
		}
	}
	v.closedSpace = 0
	for i, t := range shown {
		if wanted[t.Name] {
			continue
		}
		v.closedSpace += window.Tools(shown[i : i+1])
		if callable[t.Name] {
			c.Remove = append(c.Remove, t.Name)
		}
	}
	return c, true
}

// sameDefinition reports whether the model reads the same of both.
func sameDefinition(a, b *tool.Info) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Input, b.Input)
}

// definitionHash is a hash of what the model reads of a tool.
func definitionHash(t *tool.Info) string {
	data, err := json.Marshal([]string{t.Name, t.Description, string(t.Input)})
	if err != nil {
		return "" // strings always encode
	}
	return hash(data)
}

// closedSpace estimates what a request holds of tools that may not be called any more.
func (r *run) closedSpace() int {
	if v := r.st.revealed; r.a.reveals && v != nil && v.generation == r.st.Generation {
		return v.closedSpace
	}
	return 0
}

// restore makes v, if it was loaded, of the definitions that the toolkit has. It returns false if they are
// not those that were shown.
func (r *run) restore(v *revealed, req *model.Request) bool {
	if v.head != nil {
		return true
	}
	var scope toolkit.Scope
	if scope.UnmarshalJSON(v.scope) != nil {
		return false
	}
	view, err := r.cfg.Toolkit.View(r.ctx, &scope)
	if err != nil {
		return false
	}
	first := new(model.Request)
	r.addTools(first, view)
	if hash([]byte(first.Digest)) != v.first {
		return false
	}
	known := map[shownAs]tool.Info{}
	learn := func(t tool.Info) { known[shownAs{t.Name, definitionHash(&t)}] = t }
	for _, t := range req.Tools {
		learn(t)
	}
	for _, t := range first.Tools {
		learn(t)
	}
	own, listed := r.cfg.Toolkit.Registered()
	for _, t := range append(own, listed...) {
		learn(t.Info())
	}
	changes := make([]*model.ToolChange, 0, len(v.stored))
	for _, c := range v.stored {
		change := &model.ToolChange{At: c.At, Remove: c.Remove}
		for _, name := range c.Add {
			t, ok := known[name]
			if !ok {
				return false
			}
			change.Add = append(change.Add, t)
		}
		changes = append(changes, change)
	}
	v.head, v.headDigest, v.changes, v.digest = first.Tools, first.Digest, changes, ""
	return true
}

// storedChange returns c as it is stored.
func storedChange(c *model.ToolChange) changeJSON {
	out := changeJSON{At: c.At, Remove: c.Remove}
	for i := range c.Add {
		out.Add = append(out.Add, shownAs{c.Add[i].Name, definitionHash(&c.Add[i])})
	}
	return out
}

// toJSON returns what the State stores, nil for nothing.
func (v *revealed) toJSON() *revealedJSON {
	if v == nil {
		return nil
	}
	return &revealedJSON{v.generation, v.scope, v.first, v.stored}
}

func (in *revealedJSON) revealed() *revealed {
	if in == nil {
		return nil
	}
	return &revealed{generation: in.Generation, scope: in.Scope, first: in.First, stored: in.Changes}
}
