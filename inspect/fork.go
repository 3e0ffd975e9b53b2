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
	Before   string `json:"before"`   // or the message before which the copy ends
	To       string `json:"to"`       // the id of the copy; "" for a new one
	Say      string `json:"say"`      // a message that is sent to the copy; "" for none
	Run      bool   `json:"run"`      // run the copy even without a message
	Model    string `json:"model"`    // "" for the usual one
	Settings string `json:"settings"` // a settings file; "" for the usual policy
}

// fork copies a session up to a record or a message, sends the copy a message, and runs it.
func (h *Handler) fork(r *http.Request, id string) (any, error) {
	var in forkRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, badBody(err)
	}
	if in.To == "" {
		in.To = message.NewID("fork")
	}
	if err := session.CheckID(in.To); err != nil {
		return nil, badRequest(err.Error())
	}
	with := storedVariant{strings.TrimSpace(in.Model), strings.TrimSpace(in.Settings)}
	if _, err := with.variant(); err != nil {
		return nil, badRequest(err.Error())
	}
	if h.opts.Resume == nil && (with != storedVariant{} || in.Run) {
		return nil, badRequest("this page cannot run the session; copy it without a message, model or settings, and run the copy with the program that it belongs to")
	}
	st, _, err := session.Read(r.Context(), h.store, id, 0)
	switch {
	case err != nil:
		return nil, err
	case isSealed(st):
		return nil, badRequest(sealedNote)
	}
	if err := h.copy(r.Context(), id, in, with); err != nil {
		return nil, err
	}
	if in.Say != "" {
		if _, err := session.Send(r.Context(), h.store, in.To, message.NewID("ui"), agent.Say(in.Say)); err != nil {
			return nil, err
		}
	}
	if in.Say != "" || in.Run {
		h.rerun(in.To)
	}
	return map[string]string{"id": in.To}, nil
}

// copy makes the copy.
func (h *Handler) copy(ctx context.Context, id string, in forkRequest, with storedVariant) error {
	store := forkStore{Store: h.store, with: with}
	store.Reader, _ = h.store.(session.Reader) // session.Read has succeeded
	if in.Before == "" {
		return session.Fork(ctx, store, id, in.To, in.Record)
	}
	var ok bool
	if store.Watcher, ok = h.store.(session.Watcher); !ok {
		return badRequest("the store has no events, which are needed to copy up to a message; copy up to a row instead")
	}
	find := func() error {
		_, _, err := session.Read(ctx, h.store, in.To, 0)
		return err
	}
	if err := find(); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, fmt.Errorf("session %q exists: %w; copy to another id", in.To, session.ErrConflict))
	}
	if err := session.ForkBefore(ctx, store, id, in.To, in.Before); err != nil {
		return err
	}
	if err := find(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Before the first message there is nothing, which ForkBefore does not copy.
	s, err := session.Open(ctx, store, in.To)
	if err != nil {
		return err
	}
	return errors.Join(s.Save(ctx, s.State), s.Close())
}
