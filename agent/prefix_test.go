package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestPrefixStability runs fifty steps with three group changes and one
// compaction over HTTP, and measures the prefix of each request that is
// equal to that of the one before, and so in a provider's prompt cache. Providers put tools before messages, whatever their order in the body.
func TestPrefixStability(t *testing.T) {
	for _, row := range []struct {
		cfg  openai.Config
		want float64
	}{
		{openai.Config{API: openai.APIChat}, 0.95},
		{openai.Config{API: openai.APIResponses}, 0.95},
		{openai.Config{API: openai.APIResponses, LateTools: new(true)}, 0.97},
	} {
		t.Run(fmt.Sprint(row.cfg.API, row.cfg.LateTools != nil), func(t *testing.T) { testPrefixStability(t, row.cfg, row.want) })
	}
}

func testPrefixStability(t *testing.T, cfg openai.Config, want float64) {
	const steps = 50
	opens := map[int]string{3: `{"g1":true}`, 9: `{"g1":true,"g2":true}`, 15: `{"g1":true,"g2":true,"g3":true}`}
	var turns []openaitest.Turn
	for i := range steps {
		c := openaitest.Call{ID: fmt.Sprintf("call_%d", i), Name: "lookup", Args: fmt.Sprintf(`{"what":"item %d"}`, i)}
		if args := opens[i]; args != "" {
			c.Name, c.Args = "reset_tools", args
		}
		turns = append(turns, openaitest.Calls(c))
	}
	s := openaitest.New(t, openaitest.Always(openaitest.Func(func(req *openaitest.Request) openaitest.Turn {
		if strings.Contains(req.Messages[len(req.Messages)-1].Text(), "become too long") {
			return openaitest.Text("summary")
		}
		if len(turns) == 0 {
			return openaitest.Text("done")
		}
		next := turns[0]
		turns = turns[1:]
		return next
	})))
	cfg.BaseURL, cfg.Model, cfg.ContextWindow = s.URL, "m", 10_000
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Model: m, Toolkit: prefixKit(t), Instructions: "Be exact.",
		Policy: permission.Policy{Mode: permission.ModeBypass}, Limits: agent.Limits{Steps: steps + 5}})
	if err != nil {
		t.Fatal(err)
	}
	var st agent.State
	if _, err := a.Reply(t.Context(), &st, agent.Say("Look up everything.")); err != nil {
		t.Fatal(err)
	}

	var all, kept int
	last, summarised := "", false
	for _, req := range s.Requests() {
		text := prompt(t, req)
		if last != "" && !summarised { // a summary starts a new conversation
			all += len(text)
			kept += commonPrefix(last, text)
		}
		last, summarised = text, strings.Contains(req.Messages[len(req.Messages)-1].Text(), "become too long")
	}
	share := float64(kept) / float64(all)
	t.Logf("%d requests, %d bytes, %.1f %% of them repeat the previous request; %d compaction", len(s.Requests()), all, 100*share, st.Generation)
	if share < want || st.Generation != 1 || len(turns) > 0 {
		t.Errorf("share %.3f, %d compactions, %d turns left; want at least %.3f, 1 and 0", share, st.Generation, len(turns), want)
	}
}

// TestOpeningLate opens and closes a group in a conversation of 100,000 tokens. A model with late tools
// gets the previous request, and little more.
func TestOpeningLate(t *testing.T) {
	s := openaitest.New(t, openaitest.Text("Yes."),
		openaitest.Calls(openaitest.Call{ID: "c1", Name: "reset_tools", Args: `{"g1":true}`}),
		openaitest.Calls(openaitest.Call{ID: "c2", Name: "g1_0", Args: `{"what":"x"}`}),
		openaitest.Calls(openaitest.Call{ID: "c3", Name: "reset_tools", Args: `{}`}),
		openaitest.Calls(openaitest.Call{ID: "c4", Name: "g1_0", Args: `{"what":"x"}`}), openaitest.Text("done"))
	m, err := openai.New(openai.Config{BaseURL: s.URL, Model: "m", API: openai.APIResponses, LateTools: new(true), ContextWindow: 200_000})
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Model: m, Toolkit: prefixKit(t), Policy: permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	var st agent.State
	for _, text := range []string{strings.Repeat("All that was said before. ", 16_000), "Now look it up."} {
		if _, err := a.Reply(t.Context(), &st, agent.Say(text)); err != nil {
			t.Fatal(err)
		}
	}
	last := ""
	for i, req := range s.Requests() {
		text := prompt(t, req)
		if share := float64(commonPrefix(last, text)) / float64(len(text)); i > 0 {
			t.Logf("request %d: %d bytes, %.2f %% repeat the previous one", i+1, len(text), 100*share)
			if share < 0.99 {
				t.Errorf("request %d: %.4f of it repeat the previous one", i+1, share)
			}
		}
		last = text
	}
	if !strings.Contains(last, "g1_0 is in a group that is closed") && !strings.Contains(last, `call reset_tools with`) {
		t.Errorf("the call of a closed group got %s", last[len(last)-500:])
	}
}

// prefixKit returns a toolkit with a basic group of ten tools and three groups of five.
func prefixKit(t *testing.T) *toolkit.Toolkit {
	t.Helper()
	type in struct {
		What string `json:"what" jsonschema_description:"what to look up, as exactly as you can say it; several things are separated by commas"`
		How  string `json:"how,omitempty" jsonschema:"enum=fast,enum=thorough,enum=both"`
	}
	make := func(name string) tool.Tool {
		return tool.Must(tool.New(name, "Looks things up in one of the many places where things can be looked up, and returns what is known of them.",
			func(_ context.Context, in in) (string, error) {
				return strings.Repeat("A fact about "+in.What+". ", 15), nil
			}))
	}
	cfg := toolkit.Config{Control: toolkit.ResetTools(nil), Basic: toolkit.Group{Tools: []tool.Tool{make("lookup")}}}
	for i := range 9 {
		cfg.Basic.Tools = append(cfg.Basic.Tools, make(fmt.Sprintf("lookup_%d", i)))
	}
	for g := 1; g <= 3; g++ {
		group := toolkit.Group{Name: fmt.Sprintf("g%d", g), Description: "More places."}
		for i := range 5 {
			group.Tools = append(group.Tools, make(fmt.Sprintf("g%d_%d", g, i)))
		}
		cfg.Groups = append(cfg.Groups, group)
	}
	tk, err := toolkit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

// prompt returns the tools and the messages of a request, as sent.
func prompt(t *testing.T, req *openaitest.Request) string {
	t.Helper()
	var body struct{ Tools, Messages, Input []json.RawMessage }
	if err := json.Unmarshal(req.Body, &body); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, part := range slices.Concat(body.Tools, body.Messages, body.Input) {
		b.Write(part)
	}
	return b.String()
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
