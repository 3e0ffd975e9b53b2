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
//   - the numbers of the events follow each other, each run begins with a
//     RunStart and has exactly one End, its last event;
//   - every call that was announced has one result, unless the conversation waits;
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

// checker checks events.
type checker struct {
	T
	seq   int64
	ended bool // the last event was an End

	order     []string          // the calls, in the order in which they were announced
	announced map[string]int    // how often, by call
	results   map[string]int    // how many, by call
	text      map[string]string // the deltas so far, by block
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
		k.Errorf("%s: its number is %d after %d", what, head.Seq, k.seq)
	}
	k.seq = head.Seq
	if head.Type == "" || head.Run == "" {
		k.Errorf("%s: it has no type or no run: %s", what, data)
	}
	if _, start := ev.(*event.RunStart); start != (i == 0 || k.ended) {
		k.Errorf("%s: a run begins with a RunStart and ends with an End", what)
	}
	_, k.ended = ev.(*event.End)
	if _, sub := ev.(*event.Sub); !sub { // it contains an Event, which encoding/json cannot decode
		roundTrip(k, what, ev, reflect.New(reflect.TypeOf(ev).Elem()).Interface())
	}
	k.checkContent(ev)
}

func (k *checker) checkContent(ev event.Event) {
	k.Helper()
	switch ev := ev.(type) {
	case *event.ToolCall:
		if k.announced[ev.Call]++; k.announced[ev.Call] == 1 {
			k.order = append(k.order, ev.Call)
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
		k.Errorf("block %s: the text of the deltas is %q, that of the message %q", b.BlockID(), streamed, text)
	}
}

// checkCalls checks the calls that were announced. While a call waits, others of the same answer may have no result.
func (k *checker) checkCalls(waits bool) {
	k.Helper()
	for _, call := range k.order {
		switch {
		case k.announced[call] > 1:
			k.Errorf("call %s was announced %d times", call, k.announced[call])
		case k.results[call] == 0 && !waits:
			k.Errorf("call %s has no result, and nothing waits", call)
		}
	}
}

// roundTrip encodes v to JSON, decodes it into empty, and encodes that again.
func roundTrip(t T, what string, v, empty any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, empty)
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if again, err := json.Marshal(empty); err != nil || !bytes.Equal(again, data) {
		t.Errorf("%s: encoded, decoded and encoded again it differs: %v\n%s\n%s", what, err, data, again)
	}
}
