package model

import (
	"bytes"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// A Revealer is a model to which new tools can be announced in the course of a conversation. The list of
// tools is at the start of a request, before the conversation: changing it invalidates the provider's prompt
// cache for everything after it. A Revealer reads [Request.Reveal] instead of [Request.Tools], so that the
// start stays the same and changes come at the end.
//
// A model without this interface, or whose Reveals returns false, is sent Tools and needs no Reveal.
type Revealer interface {
	// Reveals reports whether the model reads Request.Reveal. The result never changes.
	Reveals() bool
}

// A Reveal has the same tools as [Request.Tools], as a list that stays the same and the changes to it. The caller keeps
// it with the conversation. These rules apply:
//
//   - Head with all changes applied is Tools, in any order.
//   - Head and Digest are the same in all requests, and changes are only appended, as long as the messages
//     before them are the same. A change whose request had no answer may be moved to the end, merged with
//     others or left out.
//   - A change is before an answer or at the end, so that it separates no call from its result.
//   - A name has one definition. To change a definition, to shorten the conversation, or to remove a message
//     before a change, start again with Tools as the head and no changes.
//
// A conversation that continues in another process has the same Reveal if its tools are the same, and starts
// again otherwise. A conversation that started with a model that is not a Revealer gets a Reveal with the
// current tools as the head when a Revealer first answers it.
//
// A provider may not support removing a tool, so that the model may still call one that is not in Tools. Such
// a call fails like any call of an unavailable tool.
type Reveal struct {
	Head    []tool.Info
	Digest  string        // of Head, as [Request.Digest] is of Tools
	Changes []*ToolChange // by At; the same pointers in a later request of the conversation
}

// A ToolChange is announced to the model after Request.Messages[:At].
type ToolChange struct {
	At     int         // len(Messages) if this request is the first with the change
	Add    []tool.Info // may be called from now on
	Remove []string    // the names of tools that may no longer be called
}

// Revealed returns r.Reveal, for a [Revealer]. If r.Reveal is nil or not equivalent to Tools, the result is a Reveal
// with Tools as the head, which is correct but not cached.
func (r *Request) Revealed() *Reveal {
	if r.Reveal != nil && r.Reveal.fits(r) {
		return r.Reveal
	}
	return &Reveal{Head: r.Tools, Digest: r.Digest}
}

// fits reports whether v satisfies the rules of Reveal that concern a single request.
func (v *Reveal) fits(r *Request) bool {
	defined := make(map[string]*tool.Info, len(v.Head)) // by name, including removed tools
	callable := make(map[string]bool, len(v.Head))
	add := func(infos []tool.Info) bool {
		for i := range infos {
			name := infos[i].Name
			if callable[name] || defined[name] != nil && !sameTool(defined[name], &infos[i]) {
				return false
			}
			defined[name], callable[name] = &infos[i], true
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
		if name := r.Tools[i].Name; !callable[name] || !sameTool(defined[name], &r.Tools[i]) {
			return false
		}
		delete(callable, r.Tools[i].Name) // Tools may have a name twice
	}
	return true
}

// changeable reports whether a change may be at index at: before an answer, or at the end. A change
// before all messages belongs to the head.
func changeable(messages []*message.Message, at int) bool {
	return at > 0 && (at == len(messages) || at < len(messages) && messages[at] != nil && messages[at].Role == message.RoleAssistant)
}

// sameTool reports whether a model sees the same definition of a and b.
func sameTool(a, b *tool.Info) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Input, b.Input)
}
