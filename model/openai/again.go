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

// This file sends a refused request again in a form that the server may accept: by the other protocol, without
// reasoning that the server can no longer read, or with all tools in the list. Each form is tried once for a request;
// later requests use the form that worked. Requests may be refused at the same time: then each is sent again.

// askAgain sends a refused request in other forms and yields the answer. refusal is the error of the first form, which
// used p. Each further form counts as a retry ([again.Notify]).
func (m *Model) askAgain(ctx context.Context, p *protocol, req *model.Request, refusal error, yield func(model.Chunk, error) bool) error {
	other := m.protocols[1] // nil if the server is known to have the first
	if p == other {
		other = m.protocols[0]
	}
	var triedToolsInList, triedWithoutReasoning bool
	for try := 1; ; try++ {
		e, ok := errors.AsType[*model.Error](refusal)
		if !ok {
			return refusal
		}
		text := strings.ToLower(e.Message)
		// If other is in use, another request has adopted it since this one was sent.
		mayHaveOther := isNotFound(e, text) && (!m.proven.Load() || m.protocol.Load() == other) || !p.responses && wantsResponses(e, text)
		switch {
		case other != nil && p != other && mayHaveOther:
			p = other
		case p == other && isNotFound(e, text):
			e.Message = fmt.Sprintf("%s has neither /chat/completions nor /responses (%s); check Config.BaseURL (OPENAI_BASE_URL), which usually ends in /v1",
				provider.PublicURL(m.cfg.BaseURL), strings.TrimSuffix(e.Message, "."))
			return e
		case p.responses && m.lateTools && req.Reveal != nil && strings.Contains(text, "additional_tools") && !triedToolsInList:
			triedToolsInList = true
			m.noLateTools.Store(true)
		case p.responses && isExpired(e, text) && !triedWithoutReasoning && p.history.dropReasoning(req.Messages):
			triedWithoutReasoning = true
		default:
			// Any other refusal of the request shows that the server has the protocol.
			if !m.proven.Load() && e.Status < 500 && !isNotFound(e, text) && e.Kind != model.KindAuthentication && e.Kind != model.KindPermission {
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
// a model is missing or lacks an ability: then the text mentions the model.
func isNotFound(e *model.Error, text string) bool {
	switch {
	case e.Status == http.StatusMethodNotAllowed:
		return true
	case e.Status != http.StatusNotFound || strings.Contains(text, "model"):
		return false
	}
	return slices.ContainsFunc([]string{"not found", "cannot post", "invalid url", "no route", "no such", "unknown"},
		func(s string) bool { return strings.Contains(text, s) })
}

// wantsResponses reports whether a server says that a model, or the tools of a request, need the Responses API.
func wantsResponses(e *model.Error, text string) bool {
	return e.Kind == model.KindInvalidRequest && strings.Contains(text, "/responses")
}

// isExpired reports whether a server can no longer read items of earlier answers: they are too old, or from another
// organization or model.
func isExpired(e *model.Error, text string) bool {
	has := func(s string) bool { return strings.Contains(text, s) }
	return e.Status < 500 && e.Status != http.StatusTooManyRequests &&
		(has("encrypted content") || has("encrypted_content") || has("item with id") && has("not found"))
}

// noToolsTexts are parts of the messages in which servers say that a model does not support tools.
var noToolsTexts = []string{"does not support tool", "support tool use", "'tools' is not supported", "`tool calling` is not supported", "does not support function calling"}

// remedy adds to an error about the protocol, the model's abilities, the key or the address what to change.
func (m *Model) remedy(p *protocol, err error) {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return
	}
	text := strings.ToLower(e.Message)
	add := func(remedy string) { provider.AddRemedy(e, remedy) }
	switch {
	case p.responses && isNotFound(e, text):
		add("if the server supports only chat completions, set Config.API (KITBAG_API) to " + string(APIChat))
	case !p.responses && wantsResponses(e, text):
		add("set Config.API (KITBAG_API) to " + string(APIResponses))
	case p.responses && e.Kind == model.KindInvalidRequest && isExpired(e, text):
		add("the reasoning in the conversation is too old, or from another organization or model; start a new conversation")
	case slices.ContainsFunc(noToolsTexts, func(s string) bool { return strings.Contains(text, s) }):
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
		if m.Role == message.RoleAssistant && mayHaveKept(m) {
			h.withoutReasoning.Add(m)
			dropped = true
		}
	}
	if dropped {
		h.reasoningDrops++
		for h.recent.Len() > 0 { // the kept encodings may contain the reasoning
			h.remove(h.recent.Back())
		}
	}
	return dropped
}
