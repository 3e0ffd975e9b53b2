// Package session stores conversations, so that another process can continue them.
//
//	store, err := session.Dir("sessions")
//	s, err := session.Open(ctx, store, "customer-7")
//	defer s.Close()
//	a, err := agent.New(agent.Config{Model: m, Toolkit: tk, Save: s.Save})
//	reply, err := a.Reply(ctx, s.State, agent.Say("Where were we?"))
//
// An id that the store does not have is a new conversation. [File] is for a
// single conversation in a file that the user names. An agent that serves many
// conversations saves with the function [Save] and runs each with
// [Session.Context].
//
// A web server, say, and the workers behind it share a store. The server gives a
// session what a user says, and follows it; a worker runs it:
//
//	session.Send(ctx, store, "customer-7", requestID, agent.Say("Book it."))      // the server
//	for ev, err := range session.Watch(ctx, store, "customer-7", lastEventID) {…} // the server
//	for ev, err := range s.Run(ctx, a) {…}                                        // a worker
//
// [Read] reads a session that another process has open, [Fork] copies one as it was at
// some record, and [Store.List] finds sessions by status, labels and time.
//
// # What is stored
//
// The agent saves after every step: each message, each tool call that starts
// and each that ends. A [Store] is an append-only log. A [Record] of it holds
// what the step changed, so that its size does not depend on how long the
// conversation is; when the records since have become larger than the state, one
// holds it whole. All records together take at most about three times what was
// ever new. File writes the state whole each time, in a form for people and
// other programs to read.
//
// A record also says what becomes true with the step, in the same transaction:
// the status and labels of the session, the inputs that took effect with it, and
// the events ([agent.Saving]). These are the events that the run yields when this save has
// succeeded, such as the [event.Message] of a message in it, and before them those that
// were yielded since the save before and needed none, such as an [event.ModelStart].
// The [event.End] of a run is in its last record. Deltas are not stored: what they say
// is in the event that follows them. A crash loses events only with what they tell of.
//
// # Stores
//
// A store says what it can do by the interfaces that it implements. [Dir], [Memory] and
// packages sqlite and postgres, the one for many machines, implement all:
//
//   - [Inbox]: inputs from any process, each of which takes effect once ([Send], [Session.Run])
//   - [Watcher]: the events, to any process ([Watch])
//   - [Reader]: reading without opening ([Read], [Fork])
//
// They keep all records and events of a session until it is deleted. Another store may
// drop what is not needed to load a session, and says so with [ErrGone].
//
// # What a crash can lose
//
// Save returns when the record is on the disk (fsync), and the agent neither
// shows nor runs what is not saved yet. A process that is killed, or a machine
// that loses power, at any moment loses at most the record that was being
// written: that step is then taken again, except for a tool call, which is never
// run twice.
//
// What cannot be read is an error and is kept as it is: a session that a newer
// version wrote ([agent.ErrNewerState]), and one of which a record is missing.
//
// # Writers
//
// A session has one writer at a time. [Dir] and File hold a lock (flock) while
// a session is open; the system releases it when the process ends, however it
// ends. A store may also have claims that expire, and every store refuses a record
// that does not follow the last one: a writer that was too slow stores nothing.
// Each of these is [ErrConflict].
//
// # Trust
//
// Files are for their owner only, and hold whatever was said and read in the
// conversation, in the clear: secrets too, unless the agent takes them out
// ([agent.Config.Redact]). What was sent to an inbox is kept as it was sent until the
// session is deleted: nothing takes secrets out of it. Whoever can write to the files can put words into the
// model's mouth and rules into the policy, unless the agent seals its States
// ([agent.Config.Key]) or the file is a [SealedFile]. A seal does not cover the inbox:
// whoever can write to it speaks as the user and answers for the user. Checksums find
// accidents, not attacks.
package session

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
)

// A Session is a conversation that is kept somewhere. It is for one run at a
// time.
type Session struct {
	State *agent.State

	// Labels are what a [Query] finds the session by, such as a tenant: at most 16, with a
	// key like an id and a value of at most 256 bytes. Each save stores them. A session
	// in a [File] has none.
	Labels map[string]string

	store  Store // nil for a file
	keeper keeper
}

// A keeper knows where a State is kept and what is there already.
type keeper interface {
	save(ctx context.Context, st *agent.State, labels map[string]string) error
	close() error
}

// Open opens the session with the given id, or makes a new one: with a new id
// if id is empty. See [CheckID] for what an id may be.
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
		return nil, errors.Join(fmt.Errorf("session %q was left as it is: %w", id, err), log.Close())
	}
	return &Session{State: st, Labels: maps.Clone(k.labels), store: store, keeper: k}, nil
}

// Save stores what has changed in the session's State since it was opened or
// saved, with its events and labels. It is for [agent.Config.Save]. Another State is
// an error.
func (s *Session) Save(ctx context.Context, st *agent.State) error {
	if st != s.State {
		return errors.New("session: Save was given a State that is not this session's; run the agent on Session.State")
	}
	if err := s.keeper.save(ctx, st, s.Labels); err != nil {
		return fmt.Errorf("session %q: %w", st.ID, err)
	}
	return nil
}

// Close lets others open the session. It saves nothing.
func (s *Session) Close() error { return s.keeper.close() }

type contextKey struct{}

// Context returns a context with which an agent whose [agent.Config.Save] is
// the function [Save] saves to s:
//
//	reply, err := a.Reply(s.Context(ctx), s.State, agent.Say("…"))
func (s *Session) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// Save saves to the session that [Session.Context] put into ctx. It is for
// [agent.Config.Save] of an agent that serves many sessions. A run without one
// ends with an error.
func Save(ctx context.Context, st *agent.State) error {
	s, ok := ctx.Value(contextKey{}).(*Session)
	if !ok {
		return errors.New("session: the run's context carries no session; run the agent with Session.Context")
	}
	return s.Save(ctx, st)
}
