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

// revealedTools has the first list of tools that the model was shown in a generation of the conversation (the head), and
// the later changes, for a [model.Revealer]; see [model.Reveal].
type revealedTools struct {
	stored           revealedJSON
	head             []tool.Info // nil after the State was loaded, until restore
	headDigest       string
	changes          []*model.ToolChange // stored.Changes, with the definitions of the tools
	digest           string              // of the tools after all changes; "" if unknown
	closedToolTokens int                 // estimated tokens of the tools that were shown but can no longer be called
}

// revealedJSON is what the State stores of the revealedTools. It has no definitions of tools: they come from the toolkit.
type revealedJSON struct {
	Generation int             `json:"generation,omitempty"` // as in the State
	Scope      json.RawMessage `json:"scope"`                // the groups that were open when the head was made
	HeadHash   string          `json:"first"`                // the hash of headDigest, which may be long
	Changes    []changeJSON    `json:"changes,omitempty"`
}

// A changeJSON is a stored [model.ToolChange].
type changeJSON struct {
	At     int         `json:"at"` // index of the answer to the first request with the change
	Add    []shownTool `json:"add,omitempty"`
	Remove []string    `json:"remove,omitempty"`
}

// A shownTool identifies a definition of a tool.
type shownTool struct {
	Name string `json:"name"`
	Hash string `json:"hash"` // from definitionHash
}

// reveal returns the Reveal of req: nil if the model is no Revealer, if no tools have changed, or if req does not begin
// with the messages of the conversation, to which the changes refer.
func (r *run) reveal(req *model.Request) *model.Reveal {
	n := len(r.st.Messages)
	if !r.agent.reveals || n == 0 || len(req.Messages) < n || !slices.Equal(req.Messages[:n], r.st.Messages) {
		return nil
	}
	v := r.st.revealed
	if v == nil || v.stored.Generation != r.st.Generation || !r.restore(v, req) || !v.update(req) {
		v = r.newRevealed(req)
		r.st.revealed = v
	}
	if v.headDigest == req.Digest && len(v.changes) == 0 {
		return nil
	}
	return &model.Reveal{Head: v.head, Digest: v.headDigest, Changes: slices.Clip(v.changes)}
}

// newRevealed returns a revealedTools with the tools of req as the head.
func (r *run) newRevealed(req *model.Request) *revealedTools {
	scope, err := r.st.Scope.MarshalJSON()
	if err != nil {
		scope = json.RawMessage("{}") // restore then fails, unless no groups were open
	}
	return &revealedTools{stored: revealedJSON{Generation: r.st.Generation, Scope: scope, HeadHash: hash([]byte(req.Digest))},
		head: req.Tools, headDigest: req.Digest, digest: req.Digest}
}

// hash returns the first 96 bits of the SHA-256 hash, enough to tell texts of a conversation apart.
func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:12])
}

// update appends the change that leads to the tools of req. It returns false if a new head is needed: a definition has
// changed, or a message that a stored change refers to is no longer an answer.
func (v *revealedTools) update(req *model.Request) bool {
	isAnswer := func(at int) bool { // at may be any number in a State that someone has changed
		return at > 0 && at < len(req.Messages) && req.Messages[at].Role == message.RoleAssistant
	}
	if n := len(v.changes) - 1; n >= 0 && !isAnswer(v.changes[n].At) { // the request with the last change had no answer
		v.changes, v.stored.Changes, v.digest = slices.Clip(v.changes[:n]), slices.Clip(v.stored.Changes[:n]), ""
	}
	previous := 0
	for _, c := range v.changes {
		if !isAnswer(c.At) || c.At < previous {
			return false
		}
		previous = c.At
	}
	if v.digest == req.Digest {
		return true
	}
	c, closedToolTokens, ok := v.changeTo(req.Tools)
	if !ok {
		return false
	}
	if c.Add != nil || c.Remove != nil {
		c.At = len(req.Messages)
		v.changes, v.stored.Changes = append(v.changes, c), append(v.stored.Changes, changeToJSON(c))
	}
	v.digest, v.closedToolTokens = req.Digest, closedToolTokens
	return true
}

// changeTo returns the change from the tools that can be called to tools, and the estimated tokens of the shown tools that
// can then not be called. ok is false if one of tools was shown with another definition.
func (v *revealedTools) changeTo(tools []tool.Info) (c *model.ToolChange, closedToolTokens int, ok bool) {
	var shown []tool.Info // every tool that was ever shown, in order
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
	c = new(model.ToolChange)
	wanted := make(map[string]bool, len(tools))
	for _, t := range tools {
		wanted[t.Name] = true
		if i, known := index[t.Name]; known && (shown[i].Description != t.Description || !bytes.Equal(shown[i].Input, t.Input)) {
			return nil, 0, false
		}
		if !callable[t.Name] {
			c.Add = append(c.Add, t)
		}
	}
	for i, t := range shown {
		if wanted[t.Name] {
			continue
		}
		closedToolTokens += window.Tools(shown[i : i+1])
		if callable[t.Name] {
			c.Remove = append(c.Remove, t.Name)
		}
	}
	return c, closedToolTokens, true
}

func definitionHash(t *tool.Info) string {
	data, err := json.Marshal([]string{t.Name, t.Description, string(t.Input)})
	if err != nil {
		return "" // strings always encode
	}
	return hash(data)
}

// closedToolTokens estimates the tokens of the tools in a request that can no longer be called.
func (r *run) closedToolTokens() int {
	if v := r.st.revealed; r.agent.reveals && v != nil && v.stored.Generation == r.st.Generation {
		return v.closedToolTokens
	}
	return 0
}

// restore looks up the definitions for a v that was loaded with the State. It returns false if the toolkit no longer has
// the definitions that the model was shown.
func (r *run) restore(v *revealedTools, req *model.Request) bool {
	if v.head != nil {
		return true
	}
	var scope toolkit.Scope
	if scope.UnmarshalJSON(v.stored.Scope) != nil {
		return false
	}
	view, err := r.cfg.Toolkit.View(r.ctx, &scope)
	if err != nil {
		return false
	}
	first := new(model.Request) // the first request, as far as its tools
	r.addTools(first, view)
	if hash([]byte(first.Digest)) != v.stored.HeadHash {
		return false
	}
	infos := slices.Concat(req.Tools, first.Tools)
	registered, listed := r.cfg.Toolkit.Registered()
	for _, t := range append(registered, listed...) {
		infos = append(infos, t.Info())
	}
	known := map[shownTool]tool.Info{}
	for _, t := range infos {
		known[shownTool{t.Name, definitionHash(&t)}] = t
	}
	changes := make([]*model.ToolChange, 0, len(v.stored.Changes))
	for _, c := range v.stored.Changes {
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

func changeToJSON(c *model.ToolChange) changeJSON {
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
	return &v.stored
}

func (in *revealedJSON) revealed() *revealedTools {
	if in == nil {
		return nil
	}
	return &revealedTools{stored: *in}
}
