package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/again"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// This file repeats a rejected request in a form that the server may accept: by the other protocol, without
// reasoning that it can no longer read, or with all tools in the list. Each form is tried once for a request, and
// the one that worked is used for all later requests.

// askAgain sends a rejected request in other forms and yields the answer. refusal is the error of the first form. Each
// further form counts as a retry ([again.Notify]).
func (m *Model) askAgain(ctx context.Context, p *protocol, req *model.Request, refusal error, yield func(model.Chunk, error) bool) error {
	other := m.protocols[1]
	if p == other {
		other = m.protocols[0]
	}
	var triedEarlyTools, triedWithoutReasoning bool
	for try := 1; ; try++ {
		e, ok := errors.AsType[*model.Error](refusal)
		if !ok {
			return refusal
		}
		words := strings.ToLower(e.Message)
		switch {
		// The second protocol is in use if a request that was sent at the same time has found that the server supports it.
		case other != nil && p != other && (isNotFound(e, words) && (!m.proven.Load() || m.protocol.Load() == other) || !p.responses && wantsResponses(e, words)):
			p = other
		case p == other && isNotFound(e, words):
			e.Message = fmt.Sprintf("%s has neither /chat/completions nor /responses (%s); check Config.BaseURL (OPENAI_BASE_URL), which usually ends in /v1",
				provider.PublicURL(m.cfg.BaseURL), strings.TrimSuffix(e.Message, "."))
			return e
		case p.responses && strings.Contains(words, "additional_tools") && m.reveals && req.Reveal != nil && !triedEarlyTools:
			triedEarlyTools = true
			m.noLateTools.Store(true)
		case p.responses && isExpired(e, words) && !triedWithoutReasoning && p.history.dropReasoning(req.Messages):
			triedWithoutReasoning = true
		default:
			// Any other rejection of the request shows that the server knows the protocol.
			if !m.proven.Load() && e.Status < 500 && !isNotFound(e, words) && e.Kind != model.KindAuthentication && e.Kind != model.KindPermission {
				m.adopt(p)
			}
			m.remedy(p, refusal)
			return refusal
		}
		again.Notify(ctx, try, 0, refusal)
		refused, err := m.ask(ctx, p, req, yield)
		if err == nil || !refused {
			return err
		}
		refusal = err
	}
}

// adopt makes p the protocol of all later requests.
func (m *Model) adopt(p *protocol) {
	m.protocol.Store(p)
	m.proven.Store(true)
}

// isNotFound reports whether a server lacks the path of a request. Some servers also respond with 404 if
// a model is missing or lacks an ability.
func isNotFound(e *model.Error, words string) bool {
	switch {
	case e.Status == http.StatusMethodNotAllowed:
		return true
	case e.Status != http.StatusNotFound || strings.Contains(words, "model"):
		return false
	}
	return slices.ContainsFunc([]string{"not found", "cannot post", "invalid url", "no route", "no such", "unknown"},
		func(s string) bool { return strings.Contains(words, s) })
}

// wantsResponses reports whether a server says that a model, or the tools of a request, need the Responses API.
func wantsResponses(e *model.Error, words string) bool {
	return e.Kind == model.KindInvalidRequest && strings.Contains(words, "/responses")
}

// isExpired reports whether a server can no longer read items of earlier answers: they are too old, or from another
// organization or model.
func isExpired(e *model.Error, words string) bool {
	has := func(s string) bool { return strings.Contains(words, s) }
	return e.Status < 500 && e.Status != http.StatusTooManyRequests &&
		(has("encrypted content") || has("encrypted_content") || has("item with id") && has("not found"))
}

// noTools are parts of the messages in which servers say that a model does not support tools.
var noTools = []string{"does not support tool", "support tool use", "'tools' is not supported", "`tool calling` is not supported", "does not support function calling"}

// remedy adds to an error about the protocol, the model's abilities, the key or the address what to change.
func (m *Model) remedy(p *protocol, err error) {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return
	}
	words := strings.ToLower(e.Message)
	add := func(remedy string) { provider.AddRemedy(e, remedy) }
	switch {
	case p.responses && isNotFound(e, words):
		add("if the server supports only chat completions, set Config.API (KITBAG_API) to " + string(APIChat))
	case !p.responses && wantsResponses(e, words):
		add("set Config.API (KITBAG_API) to " + string(APIResponses))
	case p.responses && e.Kind == model.KindInvalidRequest && isExpired(e, words):
		add("the reasoning in the conversation is too old, or from another organization or model; start a new conversation")
	case slices.ContainsFunc(noTools, func(s string) bool { return strings.Contains(words, s) }):
		add("set Config.Model (KITBAG_MODEL) to a model that has tools, or leave out the tools")
	default:
		provider.Remedy(e, "OPENAI", provider.KeySource(m.cfg.Header, "OPENAI", "Authorization", "Api-Key"), m.cfg.BaseURL, m.cfg.Model)
	}
}

// dropReasoning marks the answers in msgs, so that they are sent without reasoning and the server's other items
// from now on. It returns false if no answer has these.
func (h *history) dropReasoning(msgs []*message.Message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	dropped := false
	for _, m := range msgs {
		if m.Role == message.RoleAssistant && hasKept(m) {
			h.withoutReasoning.Add(m)
			dropped = true
		}
	}
	if dropped {
		h.drops++
		for h.recent.Len() > 0 { // the kept encodings may contain the reasoning
			h.remove(h.recent.Back())
		}
	}
	return dropped
}
