package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// A forkRequest is what the page sends to copy a session.
type forkRequest struct {
	Record   int64  `json:"record"`   // the last record to copy; 0 means the newest
	Before   string `json:"before"`   // the id of the message before which the copy ends; "" to copy up to Record
	To       string `json:"to"`       // the id of the copy; "" to make one up
	Say      string `json:"say"`      // a message that is sent to the copy; "" for none
	Run      bool   `json:"run"`      // run the copy even without a message
	Model    string `json:"model"`    // "" for the usual model
	Settings string `json:"settings"` // a settings file; "" for the usual policy
}

// fork copies a session up to a record or a message, sends the copy a message, and runs it.
func (h *Handler) fork(r *http.Request, id string) (any, error) {
	var req forkRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return nil, badBody(err)
	}
	if req.To == "" {
		req.To = message.NewID("fork")
	}
	if err := session.CheckID(req.To); err != nil {
		return nil, badRequest(err.Error())
	}
	stored := storedVariant{strings.TrimSpace(req.Model), strings.TrimSpace(req.Settings)}
	if _, err := stored.variant(); err != nil {
		return nil, badRequest(err.Error())
	}
	if h.opts.Resume == nil && (stored != storedVariant{} || req.Run) {
		return nil, badRequest("this page cannot run sessions, so a copy can have no model or settings of its own, and is not run; leave out model, settings and run, and run the copy with the program that the session belongs to")
	}
	if _, ok := h.store.(session.Inbox); !ok && req.Say != "" {
		return nil, badRequest("this store has no inbox for the message to the copy; copy the session without a message")
	}
	st, _, err := session.Read(r.Context(), h.store, id, 0)
	switch {
	case err != nil:
		return nil, err
	case isSealed(st):
		return nil, badRequest(sealedNote)
	}
	if err := h.copy(r.Context(), id, req, stored); err != nil {
		return nil, err
	}
	if req.Say != "" {
		if _, err := session.Send(r.Context(), h.store, req.To, message.NewID("ui"), agent.Say(req.Say)); err != nil {
			return nil, err
		}
	}
	if req.Say != "" || req.Run {
		h.rerun(req.To)
	}
	return map[string]string{"id": req.To}, nil
}

// copy stores the copy of the session id.
func (h *Handler) copy(ctx context.Context, id string, req forkRequest, stored storedVariant) error {
	store := forkStore{Store: h.store, with: stored}
	store.Reader, _ = h.store.(session.Reader) // it is a Reader, since session.Read has succeeded
	if req.Before == "" {
		return session.Fork(ctx, store, id, req.To, req.Record)
	}
	var ok bool
	if store.Watcher, ok = h.store.(session.Watcher); !ok {
		return badRequest("the store has no events, which are needed to copy up to a message; copy up to a row instead")
	}
	readCopy := func() error {
		_, _, err := session.Read(ctx, h.store, req.To, 0)
		return err
	}
	if err := readCopy(); !errors.Is(err, fs.ErrNotExist) { // nil if the session exists
		return cmp.Or(err, fmt.Errorf("session %q exists: %w; copy to another id", req.To, session.ErrConflict))
	}
	if err := session.ForkBefore(ctx, store, id, req.To, req.Before); err != nil {
		return err
	}
	if err := readCopy(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A copy up to the first message is empty, and ForkBefore does not store an empty session.
	s, err := session.Open(ctx, store, req.To)
	if err != nil {
		return err
	}
	return errors.Join(s.Save(ctx, s.State), s.Close())
}
