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

// refusals records the features that a server has refused. A refused request is sent again without
// the feature, and later requests do not use it.
type refusals struct {
	inlineTools     atomic.Bool         // tools that are added in the conversation
	forcedChoice    atomic.Bool         // a tool_choice that requires a call of a tool
	thinkingOff     atomic.Bool         // thinking off for a request, against the configuration
	withoutThinking provider.MessageSet // answers whose thinking was refused
}

// The words by which a server's message is recognized.
var (
	lateToolsWords = []string{"tool_addition", "tool_removal", "tool_definition", "inline-tools",
		"role 'system'", `role "system"`, "message role"}
	lostThinkingWords = []string{"signature", "cannot be modified", "bound to a different"}
)

// learn records the feature of a failed request that the server has refused, and reports whether to
// send the request again without the feature. Errors have no code for a feature, so learn searches
// their text.
func (r *refusals) learn(b *body, msgs []*message.Message, err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Status != http.StatusBadRequest {
		return false
	}
	text := strings.ToLower(e.Message)
	hasAny := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case b.inlineTools && hasAny(lateToolsWords...):
		r.inlineTools.Store(true)
	case b.forcedChoice && hasAny("tool_choice"):
		r.forcedChoice.Store(true)
	case b.thinkingOff && hasAny("thinking") && hasAny("disabled"):
		r.thinkingOff.Store(true)
	case b.keptThinking && hasAny("thinking") && hasAny(lostThinkingWords...):
		for _, m := range msgs {
			if m.Role == message.RoleAssistant {
				r.withoutThinking.Add(m)
			}
		}
	default:
		return false
	}
	return true // also if another request, sent at the same time, has recorded the feature before
}
