package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
)

// Send sends an input to a session, from any process, and returns when the input is stored durably.
// [Session.Run] gives the input to the agent. accepted is false if the session received an input with that id before:
// so a sender that does not know whether an input was accepted can send it again. Send fails if the store is not
// an [Inbox], or if the inbox is full ([ErrFull]).
func Send(ctx context.Context, store Store, session, id string, in agent.Input) (accepted bool, err error) {
	box, ok := store.(Inbox)
	if !ok {
		return false, unsupported(store, "Inbox", "give the input to the agent")
	}
	data, err := encodeInput(in)
	if err != nil {
		return false, fmt.Errorf("input %q: %w", id, err)
	}
	return box.Send(ctx, session, Entry{ID: id, Data: data})
}

// Await waits until the session has consumed an input, and returns the input's Entry. It fails if ctx ends first, if
// the session did not receive the input, and if the store is not an [Inbox].
func Await(ctx context.Context, store Store, session, id string) (Entry, error) {
	box, ok := store.(Inbox)
	if !ok {
		return Entry{}, unsupported(store, "Inbox", "give the input to the agent")
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	const inbox = false // a record consumes the input
	for changed := changes(ctx, store, session, inbox, awaitEvery); ; {
		if e, err := box.Input(ctx, session, id); err != nil || e.Record != 0 {
			return e, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Entry{}, fmt.Errorf("session %q: input %q still waits: %w", session, id, context.Cause(ctx))
		}
	}
}

// awaitEvery is the interval at which Await reads the input, unless the store is a [Notifier].
const awaitEvery = 50 * time.Millisecond

// changes returns the channel of [Notifier.Changed], or for a store that is not a Notifier a channel that receives a
// value at each interval.
func changes(ctx context.Context, store Store, session string, inbox bool, every time.Duration) <-chan struct{} {
	if n, ok := store.(Notifier); ok {
		return n.Changed(ctx, session, inbox)
	}
	ch := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-time.After(every):
			case <-ctx.Done():
				return
			}
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}()
	return ch
}

// storedInput is the JSON of an input in an [Entry]. Exactly one member is set.
type storedInput struct {
	Message   *message.Message `json:"message,omitempty"`
	Confirm   *event.Confirm   `json:"confirm,omitempty"`
	Result    *event.Result    `json:"result,omitempty"`
	Interrupt *struct{}        `json:"interrupt,omitempty"`
	Compact   *struct{}        `json:"compact,omitempty"`
}

func encodeInput(in agent.Input) ([]byte, error) {
	var s storedInput
	switch v := in.(type) {
	case interface{ Message() *message.Message }: // of agent.Say
		s.Message = v.Message()
	case event.Confirm:
		s.Confirm = &v
	case event.Result:
		s.Result = &v
	case agent.Interrupt:
		s.Interrupt = &struct{}{}
	case agent.Compact:
		s.Compact = &struct{}{}
	default:
		return nil, fmt.Errorf("a %T cannot be sent; send what agent.Say returns, an event.Confirm, an event.Result, an agent.Interrupt or an agent.Compact", in)
	}
	return json.Marshal(s)
}

func decodeInput(data []byte) (agent.Input, error) {
	var s storedInput
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	switch {
	case s.Message != nil:
		return agent.Say("", s.Message.Blocks...), nil
	case s.Confirm != nil:
		return *s.Confirm, nil
	case s.Result != nil:
		return *s.Result, nil
	case s.Interrupt != nil:
		return agent.Interrupt{}, nil
	case s.Compact != nil:
		return agent.Compact{}, nil
	}
	return nil, errors.New("unknown kind of input; it may have been sent by a newer version")
}
