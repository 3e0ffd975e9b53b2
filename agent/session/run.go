package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
)

// Run runs an agent on the inputs in the session's inbox: it continues a run that was cut off or has failed (the
// model call is made again), and gives the agent the waiting inputs, including those that arrive in the meantime,
// until the agent can process none of those left. Run yields the events of all these runs. Call Run after an input was
// sent to the session, and when the status of the session is [StatusAbandoned].
//
// Messages wait in the inbox as long as the session waits for an answer to a question. An [agent.Interrupt]
// ends the current run, within a second. An input that the agent refuses, such as a second answer to a
// question, is consumed with the reason ([Entry.Refused]), and does not delay the others.
//
// Each input takes effect exactly once, even if processes die. For that, the agent must save to the session: its
// [agent.Config.Save] is [Save] or s.Save. The sequence ends with the error of a failed run. It may be ranged again
// afterwards, but not concurrently. Run fails if the store is not an [Inbox].
func (s *Session) Run(ctx context.Context, a *agent.Agent) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		box, ok := s.store.(Inbox)
		if !ok {
			yield(nil, unsupported(s.store, "Inbox", "give inputs to the agent"))
			return
		}
		r := &inboxRun{session: s, box: box, agent: a, yield: yield, resume: s.wasCutOff()}
		for ctx.Err() == nil && !r.consumerStopped {
			more, err := r.turn(ctx)
			if err != nil && !r.consumerStopped {
				yield(nil, err)
			}
			if err != nil || !more {
				return
			}
		}
	}
}

// wasCutOff reports whether a run must continue even without an input.
func (s *Session) wasCutOff() bool {
	switch s.keeper.status {
	case StatusWorking, StatusFailed:
		return len(s.State.Messages) > 0
	case "": // stored by an older version, without a status
		return len(s.State.Messages) > 0 && !s.State.Done() && len(s.State.Pending()) == 0
	}
	return false
}

// An inboxRun is one call of [Session.Run].
type inboxRun struct {
	session *Session
	box     Inbox
	agent   *agent.Agent
	yield   func(event.Event, error) bool

	resume          bool // run the agent even without inputs
	consumerStopped bool // yield has returned false
}

// turn gives the agent the waiting inputs that it accepts in one run. more is false if there was nothing to do.
func (r *inboxRun) turn(ctx context.Context) (more bool, err error) {
	st := r.session.State
	entries, err := r.box.Inputs(ctx, r.id())
	if err != nil {
		return false, err
	}
	inputs, refused := choose(entries, st.Pending())
	if err := r.consume(ctx, refused...); err != nil {
		return false, err
	}
	if r.session.keeper.status == StatusFailed && len(refused) > 0 {
		r.resume = false // a refused input must not cause another run after a failure
	}
	if len(inputs) == 0 && !r.resume {
		return len(refused) > 0, nil
	}
	r.resume = false
	err = r.run(ctx, inputs)
	if errors.Is(err, agent.ErrInput) && len(inputs) > 1 { // the agent does not say which input it refuses
		inputs = inputs[:1]
		err = r.run(ctx, inputs)
	}
	if !errors.Is(err, agent.ErrInput) || len(inputs) == 0 {
		return true, err
	}
	r.resume = errors.Is(err, agent.ErrExpired) // the next run asks the user again
	return true, r.consume(ctx, ConsumedInput{ID: inputs[0].id, Refused: err.Error()})
}

func (r *inboxRun) id() string { return r.session.State.ID }

// A runInput is an input in the form in which the agent gets it.
type runInput struct {
	id    string
	input agent.Input
}

// choose returns the inputs that the agent accepts while calls are pending, and those that it would refuse. A
// second answer to a call is in neither list: it waits, because the first may still be refused.
func choose(entries []Entry, pending []event.Event) (inputs []runInput, refused []ConsumedInput) {
	waits := map[string]bool{} // by call; false once one of the inputs answers or ends the call
	for _, ev := range pending {
		switch ev := ev.(type) {
		case *event.Approval:
			waits[ev.Call] = true
		case *event.External:
			waits[ev.Call] = true
		}
	}
	hasQuestions := len(waits) > 0
	for _, e := range entries {
		if e.Refused != "" { // by the store
			refused = append(refused, ConsumedInput{e.ID, e.Refused})
			continue
		}
		in, err := decodeInput(e.Data)
		if err != nil {
			refused = append(refused, ConsumedInput{e.ID, err.Error()})
			continue
		}
		call := in.Answers()
		waiting, known := waits[call]
		switch {
		case call != "" && !known:
			refused = append(refused, ConsumedInput{e.ID, fmt.Sprintf("call %q does not wait for an answer, or was answered before", call)})
			continue
		case call != "" && !waiting:
			continue // a second answer
		case call != "":
			waits[call] = false
		case in == agent.Interrupt{}:
			hasQuestions = false
			for call := range waits {
				waits[call] = false
			}
		case hasQuestions:
			continue // messages stay until all calls are answered
		}
		inputs = append(inputs, runInput{e.ID, agent.WithID(e.ID, in)})
	}
	return inputs, refused
}

// consume stores a record that consumes inputs without a run.
func (r *inboxRun) consume(ctx context.Context, list ...ConsumedInput) error {
	if len(list) == 0 {
		return nil
	}
	k := r.session.keeper
	rec := Record{Status: k.status, Labels: k.labels, Consumed: list}
	if err := k.storeChanges(ctx, r.session.State, rec); err != nil {
		return fmt.Errorf("session %q: %w", r.id(), err)
	}
	return nil
}

// run runs the agent once, and returns the run's error.
func (r *inboxRun) run(ctx context.Context, inputs []runInput) error {
	agentInputs := make([]agent.Input, len(inputs))
	for i, in := range inputs {
		agentInputs[i] = in.input
		r.session.keeper.given[in.id] = true
	}
	defer clear(r.session.keeper.given)
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.awaitInterrupt(ctx, cancel, inputs) })
	defer watch.Wait()
	defer cancel(nil)
	seqBefore := r.session.keeper.seq
	for ev, err := range r.agent.Run(r.session.Context(ctx), r.session.State, agentInputs...) {
		if err != nil {
			return err
		}
		if !r.yield(ev, nil) {
			r.consumerStopped = true
			return nil
		}
	}
	switch {
	case r.session.keeper.seq == seqBefore: // no record was stored
		return fmt.Errorf("session %q: the agent does not save to it; set agent.Config.Save to session.Save", r.id())
	case len(inputs) > 0 && len(r.session.keeper.given) == len(inputs) && ctx.Err() == nil: // no record has consumed any of them
		return fmt.Errorf("session %q: the agent did not use the input %q; check whether a middleware drops inputs", r.id(), inputs[0].id)
	}
	return nil
}

// interruptEvery is the interval at which the inbox is read during a run, unless the store is a [Notifier].
const interruptEvery = 500 * time.Millisecond

// awaitInterrupt cancels a run when the inbox has an interrupt that is not one of the given inputs.
func (r *inboxRun) awaitInterrupt(ctx context.Context, cancel context.CancelCauseFunc, given []runInput) {
	id := r.id()
	const inbox = true
	for inputSent := changes(ctx, r.session.store, id, inbox, interruptEvery); ; {
		select {
		case <-inputSent:
		case <-ctx.Done():
			return
		}
		entries, err := r.box.Inputs(ctx, id)
		if err != nil {
			continue // the next save reports a failure of the store
		}
		for _, e := range entries {
			isGiven := slices.ContainsFunc(given, func(g runInput) bool { return g.id == e.ID })
			if isInterrupt(e) && !isGiven {
				cancel(agent.ErrInterrupted)
				return
			}
		}
	}
}

func isInterrupt(e Entry) bool {
	in, err := decodeInput(e.Data)
	return err == nil && e.Refused == "" && in == (agent.Interrupt{})
}
