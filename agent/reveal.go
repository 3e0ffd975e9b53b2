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

// revealedTools has the first list of tools that the model was shown, and the later changes, for a model that
// accepts them in the conversation; see [model.Reveal]. Each generation of the conversation has its own.
//
// The State stores only the groups that were open at first, and the name and hash of each later tool: the
// definitions come from the toolkit. If they have changed there, the next request shows a new first list.
type revealedTools struct {
	revealedJSON
	head             []tool.Info // the first list; nil until a State that was loaded is used
	headDigest       string
	changes          []*model.ToolChange // Changes with the definitions
	digest           string              // of the list that the changes lead to
	closedToolTokens int                 // estimated tokens of the tools that were shown but can no longer be called
}

// revealedJSON is the part that the State stores.
type revealedJSON struct {
	Generation int             `json:"generation,omitempty"`
	Scope      json.RawMessage `json:"scope"` // as it was when the first list was made
	First      string          `json:"first"` // the hash of the digest of the first list
	Changes    []changeJSON    `json:"changes,omitempty"`
}

// A changeJSON is a change. At is the index of the message that answers it.
type changeJSON struct {
	At     int         `json:"at"`
	Add    []shownTool `json:"add,omitempty"`
	Remove []string    `json:"remove,omitempty"`
}

// A shownTool is a tool and a hash of its definition.
type shownTool struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

// reveal returns what a model.Revealer reads instead of the tools in req; nil if it reads those.
func (r *run) reveal(req *model.Request) *model.Reveal {
	n := len(r.st.Messages)
	if !r.agent.reveals || n == 0 || len(req.Messages) < n || !slices.Equal(req.Messages[:n], r.st.Messages) {
		return nil
	}
	v := r.st.revealed
	if v == nil || v.Generation != r.st.Generation || !r.restore(v, req) || !v.update(req) {
		v = r.newRevealed(req)
		r.st.revealed = v
	}
	if v.headDigest == req.Digest && len(v.changes) == 0 {
		return nil
	}
	return &model.Reveal{Head: v.head, Digest: v.headDigest, Changes: slices.Clip(v.changes)}
}

// newRevealed returns a revealedTools with the tools of req as the first list.
func (r *run) newRevealed(req *model.Request) *revealedTools {
	scope, err := r.st.Scope.MarshalJSON()
	if err != nil {
		scope = json.RawMessage("{}") // restore will find another hash
	}
	return &revealedTools{revealedJSON: revealedJSON{Generation: r.st.Generation, Scope: scope, First: hash([]byte(req.Digest))},
		head: req.Tools, headDigest: req.Digest, digest: req.Digest}
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:12])
}

// update adds the change to the tools of req. It returns false if a new first list is needed: a definition has
// changed, or the conversation no longer has an answer at the place of a change.
func (v *revealedTools) update(req *model.Request) bool {
	isAnswer := func(at int) bool {
		return at > 0 && at < len(req.Messages) && req.Messages[at].Role == message.RoleAssistant
	}
	n := len(v.changes)
	if n > 0 && !isAnswer(v.changes[n-1].At) { // the request with the last change had no answer
		n--
		v.changes, v.Changes, v.digest = slices.Clip(v.changes[:n]), slices.Clip(v.Changes[:n]), ""
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
		v.changes, v.Changes = append(v.changes, c), append(v.Changes, storedChange(c))
	}
	v.digest = req.Digest
	return true
}

// difference returns the change from the tools that can be called to those in tools, and false if one of them was
// shown with another definition.
func (v *revealedTools) difference(tools []tool.Info) (*model.ToolChange, bool) {
	var shown []tool.Info // in order
	callable := map[string]bool{}
	index := map[string]int{} // in shown
	add := func(infos []tool.Info) {
		for _, t := range infos {
			if _, known := index[t.Name]; !known {
				index[t.Name] = len(shown)
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
		if i, known := index[t.Name]; known && (shown[i].Description != t.Description || !bytes.Equal(shown[i].Input, t.Input)) {
			return nil, false
		}
		if !callable[t.Name] {
			c.Add = append(c.Add, t)
		}
	}
	v.closedToolTokens = 0
	for i, t := range shown {
		if wanted[t.Name] {
			continue
		}
		v.closedToolTokens += window.Tools(shown[i : i+1])
		if callable[t.Name] {
			c.Remove = append(c.Remove, t.Name)
		}
	}
	return c, true
}

func definitionHash(t *tool.Info) string {
	data, err := json.Marshal([]string{t.Name, t.Description, string(t.Input)})
	if err != nil {
		return "" // strings always encode
	}
	return hash(data)
}

// closedToolTokens estimates the tokens of tools in a request that can no longer be called.
func (r *run) closedToolTokens() int {
	if v := r.st.revealed; r.agent.reveals && v != nil && v.Generation == r.st.Generation {
		return v.closedToolTokens
	}
	return 0
}

// restore sets the definitions in v, which has only names and hashes if the State was loaded. It looks them up in
// the toolkit, and returns false if they are not those that were shown.
func (r *run) restore(v *revealedTools, req *model.Request) bool {
	if v.head != nil {
		return true
	}
	var scope toolkit.Scope
	if scope.UnmarshalJSON(v.Scope) != nil {
		return false
	}
	view, err := r.cfg.Toolkit.View(r.ctx, &scope)
	if err != nil {
		return false
	}
	first := new(model.Request)
	r.addTools(first, view)
	if hash([]byte(first.Digest)) != v.First {
		return false
	}
	known := map[shownTool]tool.Info{}
	learn := func(t tool.Info) { known[shownTool{t.Name, definitionHash(&t)}] = t }
	for _, t := range req.Tools {
		learn(t)
	}
	for _, t := range first.Tools {
		learn(t)
	}
	registered, listed := r.cfg.Toolkit.Registered()
	for _, t := range append(registered, listed...) {
		learn(t.Info())
	}
	changes := make([]*model.ToolChange, 0, len(v.Changes))
	for _, c := range v.Changes {
		change := &model.ToolChange{At: c.At, Remove: c.Remove}
		for _, shown := range c.Add {
			t, ok := known[shown]
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

func storedChange(c *model.ToolChange) changeJSON {
	out := changeJSON{At: c.At, Remove: c.Remove}
	for i := range c.Add {
		out.Add = append(out.Add, shownTool{c.Add[i].Name, definitionHash(&c.Add[i])})
	}
	return out
}

func (v *revealedTools) toJSON() *revealedJSON {
	if v == nil {
		return nil
	}
	return &v.revealedJSON
}

func (in *revealedJSON) revealed() *revealedTools {
	if in == nil {
		return nil
	}
	return &revealedTools{revealedJSON: *in}
}
