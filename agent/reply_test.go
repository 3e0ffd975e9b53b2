package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestReply covers the ways a run ends. StreamText gives the same text and the same error as Reply.
func TestReply(t *testing.T) {
	var j journal
	kit := toolkit.Of(noting(&j, "note", tool.Options{}))
	both := turn{chunks: append(says("I look.").chunks[:1:1], calls(`c1 note {"path":"a"}`).chunks...)}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	asks := permission.Policy{}
	for _, row := range []struct {
		why    string
		ctx    context.Context
		cfg    Config
		turns  []turn
		inputs []Input
		err    error
		end    event.EndReason
		text   string // of Reply
		stream string
	}{
		{"an answer", nil, Config{}, []turn{says("Hello.")}, nil, nil, event.EndCompleted, "Hello.", "Hello."},
		{"an answer after a call", nil, Config{Policy: bypass}, []turn{both, says("It is a.")}, nil, nil, event.EndCompleted, "It is a.", "I look.\n\nIt is a."},
		{"an answer that broke off", nil, Config{}, []turn{breaks("The first "), breaks("and the second "), says("part.")}, nil, nil,
			event.EndCompleted, "The first and the second part.", "The first and the second part."},
		{"a question", nil, Config{Policy: asks}, []turn{both}, nil, ErrWaiting, event.EndWaiting, "I look.", "I look."},
		{"a limit", nil, Config{Policy: bypass, Limits: Limits{Steps: 1}}, []turn{both, says("That was all.")}, nil, ErrLimit, event.EndLimit, "That was all.", "I look.\n\nThat was all."},
		{"a cancelled context", cancelled, Config{}, nil, nil, ErrInterrupted, event.EndInterrupted, "", ""},
		{"a failure", nil, Config{}, []turn{{err: errFull}}, nil, errFull, event.EndError, "", ""},
		{"an input that is refused", nil, Config{}, nil, []Input{Say("")}, errAny, event.EndError, "", ""},
		{"an input of another type", nil, Config{}, nil, []Input{&event.Confirm{Call: "c1"}}, errAny, event.EndError, "", ""},
	} {
		ctx := row.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		inputs := row.inputs
		if inputs == nil {
			inputs = []Input{Say("go")}
		}
		row.cfg.Toolkit = kit
		fails := func(err error) bool {
			return row.err == errAny && err != nil || errors.Is(err, row.err) && (err == nil) == (row.err == nil)
		}
		a, _ := newAgent(t, row.cfg, slices.Clone(row.turns)...)
		r, err := a.Reply(ctx, new(State), inputs...)
		if !fails(err) || r.Text() != row.text || r.End == nil || r.End.Reason != row.end || r.Usage != r.End.Usage || (r.Message == nil) != (row.text == "") {
			t.Errorf("%s: Reply returns %+v, %q, %v", row.why, r, r.Text(), err)
		}

		a, _ = newAgent(t, row.cfg, slices.Clone(row.turns)...)
		text, err := streamed(a.StreamText(ctx, new(State), inputs...))
		if !fails(err) || text != row.stream {
			t.Errorf("%s: StreamText yields %q, %v; want %q, %v", row.why, text, err, row.stream, row.err)
		}
	}
}

// errAny means any error in a table row.
var (
	errAny  = errors.New("any")
	errFull = errors.New("the disk is full")
)

func streamed(seq func(func(string, error) bool)) (text string, failure error) {
	for piece, err := range seq {
		if failure != nil || err == nil && piece == "" {
			failure = fmt.Errorf("%q, %w after %w", piece, err, failure)
		}
		text, failure = text+piece, errors.Join(failure, err)
	}
	return text, failure
}

// TestReplyIsOfThisTurn: a failed turn does not return the answer of the one before.
func TestReplyIsOfThisTurn(t *testing.T) {
	a, _ := newAgent(t, Config{}, says("The first."), turn{err: errFull})
	st := new(State)
	if r, err := a.Reply(t.Context(), st, Say("go")); err != nil || r.Text() != "The first." {
		t.Fatal(r, err)
	}
	for _, get := range []func() (string, error){
		func() (string, error) { r, err := a.Reply(t.Context(), st); return r.Text(), err },
		func() (string, error) { return streamed(a.StreamText(t.Context(), st)) },
	} {
		if text, err := get(); err != nil || text != "The first." {
			t.Errorf("without inputs: %q, %v", text, err)
		}
	}
	if r, err := a.Reply(t.Context(), st, Say("more")); !errors.Is(err, errFull) || r.Message != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := a.Reply(t.Context(), nil, Say("more")); err == nil || r.End == nil || !strings.Contains(r.End.Detail, "State is nil") {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestStreamTextBreakOff stops ranging: the run is cancelled, and the conversation is complete.
func TestStreamTextBreakOff(t *testing.T) {
	a, _ := newAgent(t, Config{}, says("Hello."))
	st := new(State)
	for range a.StreamText(t.Context(), st, Say("go")) {
		break
	}
	checkState(t, st)
}
