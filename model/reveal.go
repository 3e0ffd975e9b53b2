package model

import (
	"bytes"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// A Revealer is a model that can be told of tools in the course of a conversation. The list of tools is at
// the head of a request, before the conversation: a change of it makes the provider's prompt cache useless
// for all that follows. A Revealer reads [Request.Reveal] in place of [Request.Tools], so that the head
// stays as it was and a change is at the end.
//
// Without this interface, or if Reveals returns false, a model is sent Tools, and Reveal need not be made.
type Revealer interface {
	// Reveals reports whether the model reads Request.Reveal. It always returns the same.
	Reveals() bool
}

// A Reveal says the same as [Request.Tools], as a list that does not change and the changes to it. Whoever
// makes requests keeps it with the conversation. What must hold:
//
//   - Head with the changes made in their order is Tools, in any order: what the model may call it was shown,
//     and of what it was shown and may not call it was told, as far as the provider lets a tool be taken back.
//   - Head and Digest are the same in all requests, and changes are only appended, as long as the messages
//     before them are the same. A change whose request had no answer may be moved to the end, merged with
//     others or left out.
//   - A change is before an answer, or at the end, so that it separates no call from its result.
//   - A name has one definition. To change a definition, to shorten the conversation, and to remove a message
//     before a change, begin anew: with Tools as the head, and no changes.
//
// A conversation that is continued in another process has the same Reveal if its tools are the same, and begins
// anew if they are not. One that was begun with a model that is not a Revealer begins with the tools that are
// callable when a Revealer first answers it.
//
// A model of whose shown tools some cannot be taken back may call one that is not in Tools. The call fails as
// any call of a tool that the model may not call.
type Reveal struct {
	Head    []tool.Info
	Digest  string        // of Head, as [Request.Digest] is of Tools
	Changes []*ToolChange // by At; the same pointers in a later request of the conversation
}

// A ToolChange is told to the model once it has read Request.Messages[:At].
type ToolChange struct {
	At     int         // len(Messages) if the answer to this request is the first that knows of it
	Add    []tool.Info // may be called from now on
	Remove []string    // the names of tools that may no longer be called
}

// Revealed returns Reveal, for a [Revealer]. If there is none, or if it does not say the same as Tools, it
// returns one with Tools as the head, which is right but not cached.
func (r *Request) Revealed() *Reveal {
	if r.Reveal != nil && r.Reveal.fits(r) {
		return r.Reveal
	}
	return &Reveal{Head: r.Tools, Digest: r.Digest}
}

// fits reports whether what the doc of Reveal requires of one request holds.
func (v *Reveal) fits(r *Request) bool {
	shown := make(map[string]*tool.Info, len(v.Head)) // the definitions by name
	callable := make(map[string]bool, len(v.Head))
	add := func(infos []tool.Info) bool {
		for i := range infos {
			name := infos[i].Name
			if callable[name] || shown[name] != nil && !sameTool(shown[name], &infos[i]) {
				return false
			}
			shown[name], callable[name] = &infos[i], true
		}
		return true
	}
	if !add(v.Head) {
		return false
	}
	at := 0
	for _, c := range v.Changes {
		if c.At < at || !changeable(r.Messages, c.At) {
			return false
		}
		at = c.At
		for _, name := range c.Remove {
			if !callable[name] {
				return false
			}
			delete(callable, name)
		}
		if !add(c.Add) {
			return false
		}
	}
	if len(callable) != len(r.Tools) {
		return false
	}
	for i := range r.Tools {
		if name := r.Tools[i].Name; !callable[name] || !sameTool(shown[name], &r.Tools[i]) {
			return false
		}
	}
	return true
}

// changeable reports whether a change may be at index at: before an answer, or at the end. One that is
// before all messages belongs to the head.
func changeable(messages []*message.Message, at int) bool {
	return at > 0 && (at == len(messages) || at < len(messages) && messages[at].Role == message.RoleAssistant)
}

// sameTool reports whether a model would be told the same of both.
func sameTool(a, b *tool.Info) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Input, b.Input)
}
