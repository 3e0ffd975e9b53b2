package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"weak"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/again"
)

// This file sends a request again that a server has rejected and may accept in another form: by the other
// protocol, without reasoning that it can no longer read, with all tools in the list. Each form is tried once for
// a request, and the one that worked is used from then on.

// askAgain sends a rejected request in other forms and yields the answer. Each counts as a retry ([again.Notify]).
func (m *Model) askAgain(ctx context.Context, w *wire, req *model.Request, refusal error, yield func(model.Chunk, error) bool) error {
	other := m.wires[1]
	if w == other {
		other = m.wires[0]
	}
	for try := 1; ; try++ {
		e, ok := errors.AsType[*model.Error](refusal)
		if !ok {
			return refusal
		}
		words := strings.ToLower(e.Message)
		switch {
		case other != nil && w != other && (!m.proven.Load() && isNotFound(e, words) || !w.responses && wantsResponses(e, words)):
			w = other
		case w == other && isNotFound(e, words):
			return m.nowhere(e)
		case w.responses && strings.Contains(words, "additional_tools") && m.reveals && m.noLate.CompareAndSwap(false, true):
		case w.responses && isExpired(e, words) && w.history.loseReasoning(req.Messages):
		default:
			if !m.proven.Load() && e.Status < 500 && !isNotFound(e, words) && e.Kind != model.KindAuthentication && e.Kind != model.KindPermission {
				m.settle(w)
			}
			return w.remedy(refusal)
		}
		again.Notify(ctx, try, 0, refusal)
		refused, err := m.ask(ctx, w, req, yield)
		if err == nil || !refused {
			return err
		}
		refusal = err
	}
}

// settle uses w from now on.
func (m *Model) settle(w *wire) {
	m.wire.Store(w)
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

// nowhere returns the error for a server with neither protocol.
func (m *Model) nowhere(e *model.Error) error {
	e.Message = fmt.Sprintf("%s has neither /chat/completions nor /responses (%s); check Config.BaseURL (OPENAI_BASE_URL), which usually ends in /v1",
		m.cfg.BaseURL, strings.TrimSuffix(e.Message, "."))
	return e
}

// remedy adds to an error about the protocol how to select the other one.
func (w *wire) remedy(err error) error {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err
	}
	words := strings.ToLower(e.Message)
	add := func(remedy string) { e.Message = strings.TrimSuffix(e.Message, ".") + "; " + remedy }
	switch {
	case w.responses && isNotFound(e, words):
		add("if the server supports only chat completions, set Config.API (KITBAG_API) to " + string(APIChat))
	case !w.responses && wantsResponses(e, words):
		add("set Config.API (KITBAG_API) to " + string(APIResponses))
	case w.responses && e.Kind == model.KindInvalidRequest && isExpired(e, words):
		add("the reasoning in the conversation is too old, or from another organization or model; start a new conversation")
	}
	return err
}

// loseReasoning has the answers in msgs sent without reasoning and the server's other items from now on. It
// returns false if they were before.
func (h *history) loseReasoning(msgs []*message.Message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := false
	for _, m := range msgs {
		if m.Role == message.RoleAssistant && hasKept(m) {
			key := weak.Make(m)
			if _, was := h.lost.LoadOrStore(key, true); !was {
				runtime.AddCleanup(m, func(key weak.Pointer[message.Message]) { h.lost.Delete(key) }, key)
				lost = true
			}
		}
	}
	for lost && h.recent.Len() > 0 { // which may hold them
		h.remove(h.recent.Back())
	}
	return lost
}
