package anthropic

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// refusals records the features that a server has refused. A refused request is sent again without the feature, and
// later requests leave it out.
type refusals struct {
	inlineTools  atomic.Bool         // tools that are added in the conversation
	forcedChoice atomic.Bool         // a choice that a tool must be called; the current models decide themselves
	thinkingOff  atomic.Bool         // thinking that is turned off for a request, although the configuration turns it on
	lost         provider.MessageSet // messages whose thinking it does not accept
}

// learn records which feature of a failed request the server has refused, and reports whether the request can be
// sent again without it.
func (r *refusals) learn(b *body, msgs []*message.Message, err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Status != http.StatusBadRequest {
		return false
	}
	words := strings.ToLower(e.Message)
	has := func(any ...string) bool {
		return slices.ContainsFunc(any, func(s string) bool { return strings.Contains(words, s) })
	}
	switch {
	case b.inlineTools && has("tool_addition", "tool_removal", "tool_definition", "inline-tools", "role 'system'", `role "system"`, "message role"):
		return r.inlineTools.CompareAndSwap(false, true)
	case b.forcedChoice && has("tool_choice"):
		return r.forcedChoice.CompareAndSwap(false, true)
	case b.thinkingOff && has("thinking") && has("disabled"):
		return r.thinkingOff.CompareAndSwap(false, true)
	case has("thinking") && has("signature", "cannot be modified", "bound to a different"):
		return r.lose(msgs)
	}
	return false
}

// lose marks the answers in msgs, so that they are sent without their thinking from now on. It returns false if all
// of them were marked already.
func (r *refusals) lose(msgs []*message.Message) bool {
	lost := false
	for _, m := range msgs {
		if m.Role == message.RoleAssistant && slices.ContainsFunc(m.Blocks, func(b message.Block) bool { _, ok := b.(*message.Thinking); return ok }) {
			lost = r.lost.Add(m) || lost
		}
	}
	return lost
}
