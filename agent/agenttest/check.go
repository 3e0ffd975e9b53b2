package agenttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
)

// Check fails the test unless these rules hold for the State between runs, and for the events of one run or of
// several consecutive runs:
//
//   - the sequence numbers of the events have no gaps, each run begins with a
//     RunStart and has exactly one End, its last event;
//   - every call is announced once and has one result, unless the conversation waits;
//   - the deltas of a block add up to the block in the message;
//   - the history is complete ([agent.CheckHistory]) except for waiting calls;
//   - State and events stay the same when encoded to JSON and decoded.
func Check(t T, st *agent.State, events []event.Event) {
	t.Helper()
	k := &checker{T: t, announced: map[string]int{}, results: map[string]int{}, text: map[string]string{}}
	for i, ev := range events {
		k.checkEvent(i, ev)
	}
	if len(events) > 0 && !k.ended {
		t.Errorf("the last event is %T, want *event.End", events[len(events)-1])
	}
	waits := len(st.Pending()) > 0
	k.checkCalls(waits)
	if !waits {
		if err := agent.CheckHistory(st.Messages); err != nil {
			t.Errorf("the history: %v", err)
		}
	}
	roundTrip(t, "the state", st, new(agent.State))
}

// A checker has what Check needs to know of the events before the next one.
type checker struct {
	T
	seq   int64 // of the last event
	ended bool  // the last event was an End

	calls     []string          // ids, in the order in which the calls were announced
	announced map[string]int    // number of ToolCall events, by call
	results   map[string]int    // number of ToolResult events, by call
	text      map[string]string // the joined deltas, by block
}

func (k *checker) checkEvent(i int, ev event.Event) {
	k.Helper()
	what := fmt.Sprintf("event %d, a %T", i, ev)
	var head event.Header
	data, err := json.Marshal(ev)
	if err == nil {
		err = json.Unmarshal(data, &head)
	}
	if err != nil {
		k.Errorf("%s: %v", what, err)
		return
	}
	if i > 0 && head.Seq != k.seq+1 {
		k.Errorf("%s: sequence number %d after %d", what, head.Seq, k.seq)
	}
	k.seq = head.Seq
	if head.Type == "" || head.Run == "" {
		k.Errorf(`%s: "type" or "run" is empty: %s`, what, data)
	}
	if _, starts := ev.(*event.RunStart); starts != (i == 0 || k.ended) {
		k.Errorf("%s is out of place: a run begins with a RunStart and ends with an End", what)
	}
	_, k.ended = ev.(*event.End)
	if _, sub := ev.(*event.Sub); !sub { // a Sub contains an Event, which encoding/json cannot decode
		roundTrip(k, what, ev, reflect.New(reflect.TypeOf(ev).Elem()).Interface())
	}
	k.checkContent(ev)
}

func (k *checker) checkContent(ev event.Event) {
	k.Helper()
	switch ev := ev.(type) {
	case *event.ToolCall:
		if k.announced[ev.Call]++; k.announced[ev.Call] == 1 {
			k.calls = append(k.calls, ev.Call)
		}
	case *event.ToolResult:
		k.results[ev.Call]++
		if n := k.results[ev.Call]; n > 1 {
			k.Errorf("call %s has %d results", ev.Call, n)
		}
	case *event.TextDelta:
		k.text[ev.Block] += ev.Text
	case *event.ThinkingDelta:
		k.text[ev.Block] += ev.Text
	case *event.Message:
		for _, b := range ev.Message.Blocks {
			k.checkBlock(b)
		}
	}
}

func (k *checker) checkBlock(b message.Block) {
	k.Helper()
	text := ""
	switch b := b.(type) {
	case *message.Text:
		text = b.Text
	case *message.Thinking:
		text = b.Text
	}
	if streamed, ok := k.text[b.BlockID()]; ok && streamed != text {
		k.Errorf("block %s: the text of the deltas is %q, the text in the message %q", b.BlockID(), streamed, text)
	}
}

// checkCalls checks the calls that were announced. While a call waits, the other calls of its answer may have no result.
func (k *checker) checkCalls(waits bool) {
	k.Helper()
	for _, call := range k.calls {
		switch {
		case k.announced[call] > 1:
			k.Errorf("call %s was announced %d times", call, k.announced[call])
		case k.results[call] == 0 && !waits:
			k.Errorf("call %s has no result, and nothing waits", call)
		}
	}
}

// roundTrip fails the test unless v stays the same when it is encoded to JSON, decoded into empty, and encoded again.
func roundTrip(t T, what string, v, empty any) {
	t.Helper()
	var again []byte
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, empty)
	}
	if err == nil {
		again, err = json.Marshal(empty)
	}
	switch {
	case err != nil:
		t.Errorf("%s: %v", what, err)
	case !bytes.Equal(again, data):
		t.Errorf("%s changes when it is encoded, decoded and encoded again:\n%s\n%s", what, data, again)
	}
}
