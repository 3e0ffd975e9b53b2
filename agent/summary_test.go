package agent

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
)

// TestSummaryPromptNamesTheFields checks that the prompt names the fields of the type.
func TestSummaryPromptNamesTheFields(t *testing.T) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(summaryTool().Info().Input, &schema); err != nil {
		t.Fatal(err)
	}
	for name := range schema.Properties {
		if !strings.Contains(summaryPrompt, `- "`+name+`":`) {
			t.Errorf("the prompt does not name %q", name)
		}
	}
	if n := strings.Count(summaryPrompt, "\n- "); n != len(schema.Properties) || n < 8 {
		t.Errorf("the prompt names %d fields, the type has %d", n, len(schema.Properties))
	}
}

func TestSummaries(t *testing.T) {
	const good = `{"goal":"Water the plants.","facts":["key: k-17\nof the shed"],"open":[],"next":"Find the can."}`
	const rendered = "## Goal\n- Water the plants.\n\n## Facts\n- key: k-17\n  of the shed\n\n## Next\n- Find the can."
	for _, row := range []struct {
		name    string
		answers []string
		want    string // "" for none
	}{
		{"as asked", []string{good}, rendered},
		{"in a fence", []string{"```json\n" + good + "\n```"}, rendered},
		{"trailing comma", []string{strings.Replace(good, `"}`, `",}`, 1)}, rendered},
		{"prose", []string{"They watered the plants."}, "They watered the plants."},
		{"cut off", []string{good[:60], "In short."}, "In short."},
		{"no goal", []string{`{"goal":"","next":"x"}`, "In short."}, "In short."},
		{"no next", []string{`{"goal":"x"}`, "In short."}, "In short."},
		{"another shape", []string{`{"summary":"They talked."}`, "In short."}, "In short."},
		{"a list of one thing", []string{`{"goal":"x","next":"y","open":"z"}`}, "## Goal\n- x\n\n## Open\n- z\n\n## Next\n- y"},
		{"nothing, then prose", []string{"", "In short."}, "In short."},
		{"nothing", []string{"", " "}, ""},
		{"no use", []string{`{"goal":3}`, ""}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var turns []turn
			for _, answer := range row.answers {
				turns = append(turns, says(answer))
			}
			var j journal
			a, w := newAgent(t, Config{Policy: bypass, Toolkit: compactKit(t, &j), Window: Window{Tokens: 10_000}}, append(turns, says("done"))...)
			st := talk(60, 500)
			evs, err := play(t, a, st, Say("the newest question"))
			if err != nil {
				t.Fatal(err)
			}
			c := of[*event.Compaction](evs)[0]
			equal(t, "summary", c.Summary, row.want)
			equal(t, "failed", c.Failed != "", row.want == "")
			equal(t, "input tokens", c.Usage.Input, 10*len(row.answers))
			for i := range row.answers { // each question continues what the server knows
				equal(t, "messages", len(w.reqs[i].Messages), 60*4+2)
				equal(t, "choice", w.reqs[i].Choice.Mode, model.ChoiceNone)
				equal(t, "digest", w.reqs[i].Digest, w.reqs[len(w.reqs)-1].Digest)
			}
			equal(t, "requests", len(w.reqs), len(row.answers)+1)
			last := transcriptOf(w.reqs[len(w.reqs)-1].Messages)
			if want := row.want; want != "" && !strings.Contains(last, want) || want == "" && !strings.Contains(last, "no summary of them") {
				t.Errorf("the model was told:\n%s", last)
			}
		})
	}
}

// TestSummaryInASmallerWindow has a server whose window is smaller than the configured one: the summary is
// requested with the messages that fit, and includes what was summarised before.
func TestSummaryInASmallerWindow(t *testing.T) {
	var j journal
	st := talk(60, 500)
	earlier := "Earlier parts were replaced: the shed is locked."
	st.Messages = append([]*message.Message{{ID: "h", Role: message.RoleUser,
		Blocks: message.Blocks{&message.Hint{Source: window.SummarySource, Text: earlier}}}}, st.Messages...)
	var asked []string // what the model read for each summary
	a, _ := newAgent(t, Config{Policy: bypass, Toolkit: compactKit(t, &j), Window: Window{Tokens: 1_000_000}})
	a.model = turnFunc(func(req *model.Request) turn {
		text := transcriptOf(req.Messages)
		switch {
		case window.Messages(req.Messages) > 9000:
			return turn{err: &model.Error{Kind: model.KindContextTooLong, Message: "too long"}}
		case strings.Contains(text, "about to be replaced"):
			asked = append(asked, text)
			return says(`{"goal":"Water.","next":"Go."}`)
		}
		return says("done")
	})
	evs, err := play(t, a, st, Say("the newest question"))
	if err != nil {
		t.Fatal(err)
	}
	c := of[*event.Compaction](evs)
	if len(c) != 1 || c[0].Failed != "" || len(asked) != 1 {
		t.Fatalf("%+v, asked %d times", c, len(asked))
	}
	for _, want := range []string{earlier, "answer old59", "the newest question"} {
		if !strings.Contains(asked[0], want) {
			t.Errorf("the summary was made without %q", want)
		}
	}
}

// TestFailedSummaryKeepsTheEarlierOne compacts twice; the second request for a summary fails.
func TestFailedSummaryKeepsTheEarlierOne(t *testing.T) {
	var j journal
	a, w := newAgent(t, Config{Policy: bypass, Toolkit: compactKit(t, &j), Window: Window{Tokens: 10_000}, Retry: middleware.RetryConfig{Retries: -1}},
		says(`{"goal":"Water.","facts":["the shed is locked"],"next":"Go."}`), says("done"))
	st := talk(60, 500)
	if _, err := play(t, a, st, Say("first")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for range 60 {
			st.Messages = append(st.Messages, message.User("and?"), message.Assistant(&message.Text{Text: strings.Repeat("word ", 100)}))
		}
		w.turns = []turn{{err: errors.New("down")}, says("done")}
		if _, err := play(t, a, st, Say("again")); err != nil {
			t.Fatal(err)
		}
		text := transcriptOf(st.Messages)
		if strings.Count(text, "the shed is locked") != 1 || strings.Count(text, "no summary of them") != 1 || len(st.Messages) > 30 {
			t.Errorf("the model knows:\n%s", text)
		}
	}
}

// TestLongSummaryIsRedactedBeforeItIsCut: no part of a secret at the place where a long summary is cut
// is saved.
func TestLongSummaryIsRedactedBeforeItIsCut(t *testing.T) {
	for shift := range 8 {
		summary := strings.Repeat("x", 5*shift+1) + strings.Repeat(" "+secret+"\n", 500)
		var j journal
		cfg := Config{Policy: bypass, Redact: builtinRules(t), Toolkit: compactKit(t, &j), Window: Window{Tokens: 10_000}}
		a, _ := newAgent(t, cfg, says(summary), says("done"))
		st := talk(60, 500)
		if _, err := play(t, a, st, Say("the newest question")); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(st)
		if err != nil || leaks(string(data)) || !strings.Contains(string(data), "the middle of this text was too long") {
			t.Errorf("shift %d: %v, half a secret is saved: %v", shift, err, leaks(string(data)))
		}
	}
}
