package session

import (
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
)

// TestDecode replaces the bytes of an event, as a store that hides secrets does: nobody gets the event that they were
// encoded from.
func TestDecode(t *testing.T) {
	whole := &event.RunStart{Header: event.Header{Type: "run_start", Run: "secret"}}
	data := []byte(`{"type":"run_start","run":"secret"}`)
	ev := Event{Data: data, decoded: whole, first: &data[0]}
	if got, err := ev.Decode(); err != nil || got != event.Event(whole) {
		t.Errorf("%v, %v; want the event itself", got, err)
	}
	ev.Data = []byte(`{"type":"run_start","run":"hidden"}`)
	if got, err := ev.Decode(); err != nil || got.Head().Run != "hidden" {
		t.Errorf("%+v, %v; want what the bytes say", got, err)
	}
}
