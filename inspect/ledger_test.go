package inspect_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/inspect"
)

// A missed is a row of testdata/causes.jsonl: two requests, of which the second is not in the cache of the provider.
type missed struct {
	Want          string
	Before, After string // parts: kind, name, digest, and optionally bytes and the number of images
	Models        [2]string
	Idle          string // between the two
	Input, Cached int    // tokens; the default of Input is 10,000
	Caches        bool   // the provider has reported cached tokens before
	Compaction    map[string]any
}

func parts(t *testing.T, text string) (out []event.Part) {
	t.Helper()
	for field := range strings.SplitSeq(text, "; ") {
		p := event.Part{Bytes: 1000}
		words := strings.Fields(field)
		if words[0] == "system" {
			words = append([]string{"system", ""}, words[1:]...)
		}
		p.Kind, p.Name, p.Digest = words[0], words[1], words[2]
		if len(words) > 3 {
			if _, err := fmt.Sscan(strings.Join(words[3:], " ")+" 0", &p.Bytes, &p.Data); err != nil {
				t.Fatalf("%q: %v", field, err)
			}
		}
		out = append(out, p)
	}
	return out
}

// TestCauses names why a request was not in the cache.
func TestCauses(t *testing.T) {
	data, err := os.ReadFile("testdata/causes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for line := range bytes.Lines(data) {
		var row missed
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		kinds[row.Want] = true
		t.Run(row.Want, func(t *testing.T) {
			idle, err := time.ParseDuration(cmp.Or(row.Idle, "1m"))
			if err != nil {
				t.Fatal(err)
			}
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			var events []map[string]any
			model := func(id, name string, list []event.Part, cached int) {
				events = append(events, map[string]any{"type": "model_start", "message": id, "step": 1, "model": name, "parts": list, "time": now},
					map[string]any{"type": "message", "time": now, "message": map[string]any{"id": id, "role": "assistant", "model": name, "blocks": []any{},
						"usage": map[string]any{"input_tokens": cmp.Or(row.Input, 10000), "output_tokens": 1, "cached_tokens": cached}}})
			}
			first, second := cmp.Or(row.Models[0], "gpt-5.5"), cmp.Or(row.Models[1], "gpt-5.5")
			if row.Caches {
				model("msg_0", first, parts(t, row.Before), 9000)
			}
			model("msg_1", first, parts(t, row.Before), 0)
			if row.Compaction != nil {
				row.Compaction["type"], row.Compaction["time"] = "compaction", now
				events = append(events, row.Compaction)
			}
			now = now.Add(idle)
			model("msg_2", second, parts(t, row.After), row.Cached)
			c, base := client(t, store(t, "s", events...), inspect.Options{})
			var got struct {
				Requests []struct {
					Cause string
					Lost  int
					Cost  float64
					Same  int
				}
				Lost int
			}
			get(t, c, base+"api/sessions/s/requests?from=0", &got)
			last := got.Requests[len(got.Requests)-1]
			if last.Cause != row.Want {
				t.Errorf("the cause is %q", last.Cause)
			}
			want := max(0, cmp.Or(row.Input, 10000)-row.Cached)
			if row.Want == "" || row.Input > 0 {
				want = 0
			}
			if last.Lost != want {
				t.Errorf("%d tokens are billed again, want %d", last.Lost, want)
			}
			if second == "gpt-5.5" && (last.Cost > 0) != (want > 0) {
				t.Errorf("that costs %g", last.Cost)
			}
		})
	}
	if len(kinds) < 21 { // one of which is no cause
		t.Errorf("there are only %d kinds of causes", len(kinds)-1)
	}
}

// TestMissingParts counts no bytes of requests whose earlier parts are not stored, since the store has dropped events, or
// whose event is forged.
func TestMissingParts(t *testing.T) {
	start := func(same int, list string) map[string]any {
		return map[string]any{"type": "model_start", "step": 1, "same": same, "parts": parts(t, list)}
	}
	c, base := client(t, store(t, "s", start(3, "message user c"), start(-1, "message user c"), start(4, "message user d"), start(0, "system a; message user b"), start(2, "message user c")), inspect.Options{})
	var got struct{ Requests []struct{ Bytes, Same int } }
	get(t, c, base+"api/sessions/s/requests?from=0", &got)
	if text := fmt.Sprint(got.Requests); text != "[{0 0} {0 0} {0 0} {2000 0} {3000 2000}]" {
		t.Errorf("the bytes of the requests are %s", text)
	}
}
