package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// textAgents run agents that no flag of kitbag run makes.
var textAgents = map[string]func(*testing.T, *openai.Model){
	"limits": func(t *testing.T, m *openai.Model) {
		drive(t, agent.Config{Model: m, Toolkit: toolkit.Of(oddTools()...), ToolTimeout: 50 * time.Millisecond, Limits: agent.Limits{ToolCalls: 10}}, new(agent.State))
	},
	"steps": func(t *testing.T, m *openai.Model) {
		drive(t, agent.Config{Model: m, Toolkit: toolkit.Of(oddTools()...), Limits: agent.Limits{Steps: 1}}, new(agent.State))
	},
	"time": func(t *testing.T, m *openai.Model) {
		drive(t, agent.Config{Model: m, Toolkit: toolkit.Of(oddTools()...), Limits: agent.Limits{Time: 300 * time.Millisecond}}, new(agent.State))
	},
	"interrupted": interruptedAgent,
	"crashed":     crashedAgent,
	"background": func(t *testing.T, m *openai.Model) {
		drive(t, agent.Config{Model: m, Toolkit: toolkit.Of(oddTools()...), Background: 10 * time.Millisecond}, new(agent.State))
	},
	"handoff": func(t *testing.T, m *openai.Model) {
		policy := permission.Policy{Mode: permission.ModeBypass}
		other, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(), Policy: policy})
		if err != nil {
			t.Fatal(err)
		}
		to := tool.Must(agent.Handoff("billing", "Hands over to billing.", other))
		back := tool.Must(agent.Handoff("back", "Returns to the previous agent.", nil))
		drive(t, agent.Config{Model: m, Toolkit: toolkit.Of(to, back)}, new(agent.State))
	},
	"window": func(t *testing.T, m *openai.Model) {
		drive(t, agent.Config{Model: m, Toolkit: toolkit.Of(oddTools()...), Window: agent.Window{Tokens: 30000, MaxResult: 1000}}, new(agent.State))
	},
	"typed": func(t *testing.T, m *openai.Model) {
		a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agent.ReplyAs[struct{ Total int }](t.Context(), a, new(agent.State), agent.Say("Go.")); err != nil {
			t.Fatal(err)
		}
	},
	"groups": groupsAgent,
	"schema": func(t *testing.T, m *openai.Model) {
		drive(t, agent.Config{Model: m, Toolkit: toolkit.Of(strictTool{})}, new(agent.State))
	},
	"skills": func(t *testing.T, m *openai.Model) {
		dir := filepath.Join(t.TempDir(), "pdf-forms")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte("---\nname: pdf-forms\ndescription: Fills forms.\n---\nFill them.\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		tk, err := toolkit.New(toolkit.Config{Control: toolkit.ResetTools(nil), Groups: []toolkit.Group{
			{Name: "documents", Description: "Works with documents.", Skills: []skill.Loader{skill.Under(filepath.Dir(dir))}},
			{Name: "broken", Description: "Skills that cannot be read.", Skills: []skill.Loader{skill.Under("/nowhere")}}}})
		if err != nil {
			t.Fatal(err)
		}
		drive(t, agent.Config{Model: m, Toolkit: tk}, new(agent.State))
	},
	"discover": func(t *testing.T, m *openai.Model) {
		tk, err := toolkit.New(toolkit.Config{Groups: []toolkit.Group{{Name: "odd", Description: "Odd tools.", Tools: oddTools()}}, Control: toolkit.Discover()})
		if err != nil {
			t.Fatal(err)
		}
		// A tool that a rule denies is in no group, as kitbag run and the gateway leave it out.
		denied := permission.Rule{Tool: "delete", Behavior: permission.Deny}
		drive(t, agent.Config{Model: m, Toolkit: tk, Policy: permission.Policy{Rules: []permission.Rule{denied}}}, new(agent.State))
	},
}

// drive runs an agent to its end, whatever that is.
func drive(t *testing.T, cfg agent.Config, st *agent.State, inputs ...agent.Input) {
	t.Helper()
	cfg.Policy.Mode = permission.ModeBypass
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(inputs) == 0 && len(st.Messages) == 0 {
		inputs = []agent.Input{agent.Say("Go.")}
	}
	for _, err := range a.Run(t.Context(), st, inputs...) {
		if err != nil {
			t.Logf("the run ended: %v", err)
		}
	}
}

// interruptedAgent is interrupted while a call runs, and continues.
func interruptedAgent(t *testing.T, m *openai.Model) {
	ctx, cancel := context.WithCancel(t.Context())
	stop := tool.Must(tool.New("stop", "Interrupts.", func(ctx context.Context, _ noArguments) (string, error) {
		cancel()
		<-ctx.Done()
		return "", ctx.Err()
	}))
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(stop), Policy: permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	st := new(agent.State)
	if _, err := a.Reply(ctx, st, agent.Say("Go.")); !errors.Is(err, agent.ErrInterrupted) {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), st, agent.Say("Continue.")); err != nil {
		t.Fatal(err)
	}
}

// crashedAgent continues from a State that was saved while a call ran.
func crashedAgent(t *testing.T, m *openai.Model) {
	ctx, cancel := context.WithCancel(t.Context())
	var saved, last []byte
	stop := tool.Must(tool.New("stop", "Ends the program.", func(ctx context.Context, _ noArguments) (string, error) {
		last = saved
		cancel()
		<-ctx.Done()
		return "", ctx.Err()
	}))
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(stop), Policy: permission.Policy{Mode: permission.ModeBypass},
		Save: func(_ context.Context, st *agent.State) (err error) { saved, err = json.Marshal(st); return err }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(ctx, new(agent.State), agent.Say("Go.")); !errors.Is(err, agent.ErrInterrupted) {
		t.Fatal(err)
	}
	st := new(agent.State)
	if err := json.Unmarshal(last, st); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), st); err != nil {
		t.Fatal(err)
	}
}

// groupsAgent has groups that depend on each other, exclude each other, are too large, fail to open, or have a tool that
// is limited to a phase.
func groupsAgent(t *testing.T, m *openai.Model) {
	group := func(name, description string, tools int) toolkit.Group {
		g := toolkit.Group{Name: name, Description: description}
		for i := range tools {
			g.Tools = append(g.Tools, tool.Must(tool.New(fmt.Sprintf("%s_%d", name, i+1), "Does something.", func(context.Context, noArguments) (string, error) { return "Done.", nil })))
		}
		return g
	}
	locked := group("vault", "Secrets.", 1)
	locked.OnActivate = func(context.Context) error {
		return errors.New("the vault is locked; unlock it with the command vault unlock")
	}
	tables := group("tables", "Tables of the database.", 1)
	tables.Parents = []string{"database"}
	tk, err := toolkit.New(toolkit.Config{
		Groups:    []toolkit.Group{group("database", "Queries.", 1), tables, group("read_only", "Reading.", 1), group("writing", "Writing.", 1), group("many", "Everything.", 5), locked},
		Exclusive: [][]string{{"read_only", "writing"}}, MaxTools: 4,
		Settings: []toolkit.Setting{{Tool: "database_1", Phases: []string{"review"}}}})
	if err != nil {
		t.Fatal(err)
	}
	drive(t, agent.Config{Model: m, Toolkit: tk}, new(agent.State))
}

// A strictTool has a field for each way in which arguments can be wrong.
type strictTool struct{}

func (strictTool) Info() tool.Info {
	return tool.Info{Name: "order", Description: "Orders something.", Input: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{
"size":{"enum":["small","medium","large"]},"unit":{"const":"kg"},"code":{"type":"string","pattern":"^[A-Z]{3}$"},"day":{"type":"string","format":"date"},
"file":{"type":"string","contentEncoding":"base64"},"old":false,"tags":{"type":"object","propertyNames":{"pattern":"^[a-z]+$"}},
"count":{"type":"integer","minimum":1,"maximum":9},"share":{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1},"step":{"type":"integer","multipleOf":5},
"note":{"type":"string","minLength":2,"maxLength":9},"lines":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":2,"uniqueItems":true},
"pair":{"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"type":"integer"}},
"either":{"oneOf":[{"type":"object","required":["a"],"properties":{"a":{"type":"integer"}}},{"type":"object","required":["b"],"properties":{"b":{"type":"string"}}}]},
"id":{"anyOf":[{"type":"integer"},{"type":"null"}]},"not":{"type":"string","not":{"const":"x"}}}}`)}
}

func (strictTool) Call(context.Context, tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) { yield(tool.Text("Ordered."), nil) }
}

// oddTools return tools that fail in ways that others do not.
func oddTools() []tool.Tool {
	run := func(name string, fn func(context.Context) (string, error)) tool.Tool {
		return tool.Must(tool.New(name, "Does something.", func(ctx context.Context, _ noArguments) (string, error) { return fn(ctx) }, tool.Options{Parallel: true}))
	}
	picture := func(name, mediaType string, data []byte) tool.Tool {
		return tool.Must(tool.NewStream(name, "Returns a picture.", func(context.Context, noArguments) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				yield(tool.Chunk{Block: &message.Data{MediaType: mediaType, Bytes: data}}, nil)
			}
		}))
	}
	return []tool.Tool{
		run("panic", func(context.Context) (string, error) { panic("index out of range [3] with length 3") }),
		run("fail", func(context.Context) (string, error) { return "", errors.New("the printer is out of paper") }),
		run("hang", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }),
		run("late", func(context.Context) (string, error) {
			time.Sleep(100 * time.Millisecond)
			return "It is done.", nil
		}),
		run("long", func(context.Context) (string, error) { return strings.Repeat("a line of a long result\n", 100), nil }),
		picture("picture", "image/png", []byte("\x89PNG\r\n\x1a\n")),
		picture("photo", "image/gif", []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")),
	}
}
