package inspect

import (
	"encoding/json"
	"net/http"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// A forking is what the page sends to copy a session.
type forking struct {
	Record int64  `json:"record"` // after which the copy begins; 0 for the newest
	To     string `json:"to"`     // the new session
	Say    string `json:"say"`    // a message for it; "" for none
}

// fork copies a session up to a record, and sends the copy a message.
func (h *Handler) fork(r *http.Request) (any, error) {
	id, err := sessionID(r)
	if err != nil {
		return nil, err
	}
	var in forking
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, badRequest("this does not say what to copy: " + err.Error())
	}
	if in.To == "" {
		in.To = message.NewID("fork")
	}
	if err := session.CheckID(in.To); err != nil {
		return nil, badRequest(err.Error())
	}
	if err := session.Fork(r.Context(), h.store, id, in.To, in.Record); err != nil {
		return nil, err
	}
	if in.Say != "" {
		if _, err := session.Send(r.Context(), h.store, in.To, message.NewID("ui"), agent.Say(in.Say)); err != nil {
			return nil, err
		}
		h.rerun(in.To)
	}
	return map[string]string{"id": in.To}, nil
}
