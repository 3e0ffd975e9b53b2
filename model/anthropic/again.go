package anthropic

import (
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// refusals are what a server has refused. A request is sent once more without it, and later requests
// do not have it.
type refusals struct {
	late   atomic.Bool // tools that are added in the conversation
	forced atomic.Bool // a choice that a tool must be called; the current models decide themselves
	off    atomic.Bool // thinking that is turned off, although the configuration wants it
	lost   sync.Map    // weak pointers to the messages whose thinking it does not accept
}

// learn reports whether a request that failed can be sent in another form.
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
	case b.late && has("tool_addition", "tool_removal", "tool_definition", "inline-tools", "role 'system'", `role "system"`, "message role"):
		return r.late.CompareAndSwap(false, true)
	case b.forced && has("tool_choice"):
		return r.forced.CompareAndSwap(false, true)
	case b.off && has("thinking") && has("disabled"):
		return r.off.CompareAndSwap(false, true)
	case has("thinking") && has("signature", "cannot be modified", "bound to a different"):
		return r.lose(msgs)
	}
	return false
}

// lose has the answers in msgs sent without their thinking from now on. It returns false if they were before.
func (r *refusals) lose(msgs []*message.Message) bool {
	lost := false
	for _, m := range msgs {
		if m.Role != message.RoleAssistant || !slices.ContainsFunc(m.Blocks, func(b message.Block) bool { _, ok := b.(*message.Thinking); return ok }) {
			continue
		}
		key := weak.Make(m)
		if _, was := r.lost.LoadOrStore(key, true); !was {
			runtime.AddCleanup(m, func(key weak.Pointer[message.Message]) { r.lost.Delete(key) }, key)
			lost = true
		}
	}
	return lost
}

// hasLost reports whether a message is sent without its thinking.
func (r *refusals) hasLost(m *message.Message) bool {
	_, lost := r.lost.Load(weak.Make(m))
	return lost
}
