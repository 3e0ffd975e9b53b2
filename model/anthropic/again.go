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
	forcedChoice atomic.Bool         // a choice that requires a call of a tool
	thinkingOff  atomic.Bool         // thinking that is turned off for a request, although the configuration turns it on
	thinking     provider.MessageSet // the thinking of these messages
}

// learn records which feature of a failed request the server has refused, and reports whether the request can be
// sent again without it.
func (r *refusals) learn(b *body, msgs []*message.Message, err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Status != http.StatusBadRequest {
		return false
	}
	text := strings.ToLower(e.Message)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case b.inlineTools && has("tool_addition", "tool_removal", "tool_definition", "inline-tools", "role 'system'", `role "system"`, "message role"):
		return r.inlineTools.CompareAndSwap(false, true)
	case b.forcedChoice && has("tool_choice"):
		return r.forcedChoice.CompareAndSwap(false, true)
	case b.thinkingOff && has("thinking") && has("disabled"):
		return r.thinkingOff.CompareAndSwap(false, true)
	case has("thinking") && has("signature", "cannot be modified", "bound to a different"):
		return r.dropThinking(msgs)
	}
	return false
}

// dropThinking marks the answers in msgs, so that they are sent without their thinking from now on. It returns false if
// every answer was marked already.
func (r *refusals) dropThinking(msgs []*message.Message) bool {
	changed := false
	for _, m := range msgs {
		if m.Role == message.RoleAssistant && slices.ContainsFunc(m.Blocks, func(b message.Block) bool { _, ok := b.(*message.Thinking); return ok }) {
			changed = r.thinking.Add(m) || changed
		}
	}
	return changed
}
