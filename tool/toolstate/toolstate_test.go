package toolstate_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/tool/toolstate"
)

type counter struct {
	N    int      `json:"n"`
	Seen []string `json:"seen,omitempty"`
}

var counters = toolstate.NewKey[counter]("counter")

// TestStateIsSharedAndSaved counts from many goroutines and writes the state.
func TestStateIsSharedAndSaved(t *testing.T) {
	var s toolstate.State
	ctx := toolstate.With(t.Context(), &s)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if err := counters.Update(ctx, func(c *counter) error { c.N++; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	saved, err := json.Marshal(&s)
	if err != nil || string(saved) != `{"counter":{"n":100}}` {
		t.Fatalf("saved %s, %v", saved, err)
	}
}

// TestStateKeepsWhatItDoesNotKnow: a saved value with an unknown key is written
// unchanged, and a change is kept even if the function that made it failed.
func TestStateKeepsWhatItDoesNotKnow(t *testing.T) {
	var later toolstate.State
	if err := json.Unmarshal([]byte(`{"counter":{"n":100},"other":{"x":[1]}}`), &later); err != nil {
		t.Fatal(err)
	}
	ctx := toolstate.With(t.Context(), &later)
	full := errors.New("full")
	if err := counters.Update(ctx, func(c *counter) error { c.N++; return full }); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if got := later.Keys(); !reflect.DeepEqual(got, []string{"counter", "other"}) {
		t.Errorf("keys %v", got)
	}
	if saved, _ := json.Marshal(&later); string(saved) != `{"counter":{"n":101},"other":{"x":[1]}}` {
		t.Errorf("saved %s", saved)
	}
}

// TestStateErrors covers the failures of Update. None of them loses a value.
func TestStateErrors(t *testing.T) {
	nothing := func(*counter) error { return nil }
	if err := counters.Update(t.Context(), nothing); err == nil || !strings.Contains(err.Error(), "toolstate.With") {
		t.Errorf("no state: %v", err)
	}
	var s toolstate.State
	if err := json.Unmarshal([]byte(`{"counter":[]}`), &s); err != nil {
		t.Fatal(err)
	}
	ctx := toolstate.With(context.Background(), &s)
	if err := counters.Update(ctx, nothing); err == nil || !strings.Contains(err.Error(), `"counter"`) {
		t.Errorf("a saved value of another shape: %v", err)
	}
	if saved, _ := json.Marshal(&s); string(saved) != `{"counter":[]}` {
		t.Errorf("the value that could not be read was lost: %s", saved)
	}
	other := toolstate.NewKey[string]("other")
	if err := other.Update(ctx, func(*string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := toolstate.NewKey[int]("other").Update(ctx, func(*int) error { return nil }); err == nil || !strings.Contains(err.Error(), "share the name") {
		t.Errorf("two keys of one name: %v", err)
	}
}
