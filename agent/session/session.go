// Package session stores conversations, so that another process can continue them.
//
//	store, err := session.Dir("sessions")
//	s, err := session.Open(ctx, store, "customer-7")
//	defer s.Close()
//	a, err := agent.New(agent.Config{Model: m, Toolkit: tk, Save: s.Save})
//	reply, err := a.Reply(ctx, s.State, agent.Say("Where were we?"))
//
// An id that the store does not have is a new conversation. An agent that serves many conversations saves with the function [Save] and runs each with
// [Session.Context].
//
// For example, a web server and its workers share a store. The server sends a user's messages to the session,
// and watches the session; a worker runs it:
//
//	session.Send(ctx, store, "customer-7", requestID, agent.Say("Book it."))      // the server
//	for ev, err := range session.Watch(ctx, store, "customer-7", lastEventID) {…} // the server
//	for ev, err := range s.Run(ctx, a) {…}                                        // a worker
//
// [Read] reads a session that another process has open, [Fork] copies one from any of its records, and
// [Store.List] finds sessions by status, labels and time.
//
// # What is stored
//
// The agent saves after every step: each message, each tool call that starts and each that ends. A [Store] is an
// append-only log. A [Record] contains what the step changed, so its size does not depend on the length of the
// conversation; when the records since the last whole record have become larger than the state, the next record
// contains the whole state. The total size of all records is at most about three times the size of all data that was ever
// added.
//
// In the same transaction, a record also contains the effects of the step: the status and labels of the session,
// the inputs that it consumed, and the events ([agent.Saving]). These are the events that the run yields after this
// save, such as the [event.Message] of a saved message, and before them the events since the previous save, such as
// an [event.ModelStart]. The [event.End] of a run is in its last record. Deltas are not stored: their content is in
// the event that follows them. A crash loses an event only together with the change that it reports.
//
// # Stores
//
// A store declares its abilities by the interfaces that it implements. [Dir], [Memory] and package sqlite implement
// all:
//
//   - [Inbox]: inputs from any process, each of which takes effect once ([Send], [Session.Run])
//   - [Watcher]: the events, to any process ([Watch])
//   - [Reader]: reading without opening ([Read], [Fork])
//
// Package postgres is also a [Notifier], which replaces polling of the store, and passes deltas on to other
// processes.
//
// These stores keep all records and events of a session until the session is deleted. Another store may drop records that
// are not needed to load a session; reading them fails with [ErrGone].
//
// # Crashes
//
// Save returns when the record is on the disk (fsync). The agent emits no event and starts no tool call before the
// save that contains it has returned. If a process is killed or a machine loses power, at most the record that was
// being written is lost: that step is then repeated, except for a tool call, which is never run twice.
//
// Data that cannot be read is an error and stays unchanged: a session that was written by a newer version
// ([agent.ErrNewerState]), and one with a missing record.
//
// # Writers
//
// A session has one writer at a time. [Dir] locks (flock) a session while it is open; the system unlocks it
// when the process ends, even after a crash. A store may also have claims that expire, and every store refuses a
// record that does not follow the last one, so that a writer that was too slow stores nothing. The errors that a
// second writer gets wrap [ErrConflict].
//
// # Trust
//
// Files can be read only by their owner, and contain the whole conversation in clear text, including secrets
// unless the agent removes them ([agent.Config.Redact]). Inputs in an inbox are kept as they were sent until
// the session is deleted, including secrets. Anyone who can write to the files can add messages as the model
// and rules to the policy, unless the agent seals its States ([agent.Config.Key]) or the store is [Sealed]; and can
// send messages and answers as the user, unless the store is Sealed. Checksums detect accidents, not attacks.
package session

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
)

// A Session is an open, stored conversation. It can have one run at a time.
type Session struct {
	State *agent.State

	// Labels are for finding the session with a [Query], for example by tenant: at most 16, with a key in the
	// form of an id and a value of at most 256 bytes. Each save stores them.
	Labels map[string]string

	store  Store
	keeper *logKeeper
}

// Open opens the session with the given id, or creates it; if id is empty, it creates one with a new id. See
// [CheckID] for valid ids.
func Open(ctx context.Context, store Store, id string) (*Session, error) {
	if id == "" {
		id = message.NewID("ses")
	}
	log, err := store.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	k := newLogKeeper(store, log)
	st, err := k.load(ctx, id)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("session %q was left unchanged: %w", id, err), log.Close())
	}
	return &Session{State: st, Labels: maps.Clone(k.labels), store: store, keeper: k}, nil
}

// Save is for [agent.Config.Save]. It stores the changes of the session's State since the last save, with the events
// and labels, and fails if st is not s.State.
func (s *Session) Save(ctx context.Context, st *agent.State) error {
	if st != s.State {
		return errors.New("session: Save was called with a State that is not this session's; run the agent on Session.State")
	}
	if err := s.keeper.save(ctx, st, s.Labels); err != nil {
		return fmt.Errorf("session %q: %w", st.ID, err)
	}
	return nil
}

// Close lets other writers open the session. It does not save the State.
func (s *Session) Close() error { return s.keeper.close() }

type contextKey struct{}

// Context returns a context with which an agent whose [agent.Config.Save] is the function [Save] saves to s:
//
//	reply, err := a.Reply(s.Context(ctx), s.State, agent.Say("…"))
func (s *Session) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// Save saves to the session that [Session.Context] put into ctx. It is for [agent.Config.Save] of an agent that
// serves many sessions. A run whose context has no session ends with an error.
func Save(ctx context.Context, st *agent.State) error {
	s, ok := ctx.Value(contextKey{}).(*Session)
	if !ok {
		return errors.New("session: there is no session in the run's context; run the agent with Session.Context")
	}
	return s.Save(ctx, st)
}
