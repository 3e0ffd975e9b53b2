package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A journey is a conversation of twelve tool calls: some are concurrent, some need an approval, one is external.
// Each writes a line to a file, so that other processes can count the effects. The
// model's next turn depends only on the messages. If a call was interrupted, the model checks whether the call had
// its effect, and repeats it only if not.
var journey = [][]string{
	{"note 1", "note 2", "note 3"},
	{"stamp 4"},
	{"note 5", "stamp 6", "note 7"},
	{"host 8"},
	{"note 9", "note 10", "note 11"},
	{"stamp 12"},
}

const journeyAnswer = "All 12 are done: 1 2 3 4 5 6 7 8 9 10 11 12"

type numberIn struct {
	N int `json:"n"`
}

func effectsFile(dir string) string { return filepath.Join(dir, "effects") }

func effects(dir string) []string {
	data, err := os.ReadFile(effectsFile(dir))
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

func journeyAgent(dir string, save func(context.Context, *agent.State) error) *agent.Agent {
	act := func(_ context.Context, in numberIn) (string, error) {
		f, err := os.OpenFile(effectsFile(dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return "", err
		}
		defer f.Close()
		_, err = fmt.Fprintln(f, in.N)
		return "ok", err
	}
	check := func(_ context.Context, in numberIn) (string, error) {
		return strconv.FormatBool(slices.Contains(effects(dir), strconv.Itoa(in.N))), nil
	}
	a, err := agent.New(agent.Config{
		Model: scripted.New(scripted.Repeat(scripted.Func(nextTurn))),
		Toolkit: toolkit.Of(
			tool.Must(tool.New("note", "Notes a number.", act, tool.Options{Parallel: true})),
			tool.Must(tool.New("stamp", "Stamps a number.", act)),
			tool.Must(tool.New("check", "Reports whether a number was noted or stamped.", check, tool.Options{ReadOnly: true})),
			tool.Must(tool.External[numberIn]("host", "Lets the host take care of a number.")),
		),
		Policy: permission.Policy{Rules: []permission.Rule{
			{Tool: "note", Behavior: permission.Allow}, {Tool: "check", Behavior: permission.Allow}, {Tool: "host", Behavior: permission.Allow}}},
		Save: save,
		Key:  []byte("the key of this test"), // fixed, so that loaded and saved States have equal bytes
	})
	if err != nil {
		panic(err)
	}
	return a
}

// finish runs a journey until it ends and returns the answer.
func finish(ctx context.Context, a *agent.Agent, st *agent.State) (string, error) {
	var inputs []agent.Input
	if len(st.Messages) == 0 {
		inputs = append(inputs, agent.Say("Do all twelve."))
	}
	for {
		for _, p := range st.Pending() {
			switch p := p.(type) {
			case *event.Approval:
				inputs = append(inputs, p.Allow())
			case *event.External:
				inputs = append(inputs, event.Result{Call: p.Call, Blocks: message.Blocks{&message.Text{Text: "ok"}}})
			}
		}
		reply, err := a.Reply(ctx, st, inputs...)
		if err == nil {
			return reply.Text(), nil
		}
		if inputs = nil; len(st.Pending()) == 0 {
			return "", err
		}
	}
}

// nextTurn is the model: it makes the calls of the first stage that is not done yet.
func nextTurn(req *model.Request) (scripted.Turn, error) {
	state := callStates(req.Messages)
	var done []string
	for _, stage := range journey {
		var turns []scripted.Turn
		for _, c := range stage {
			name, n, _ := strings.Cut(c, " ")
			number, _ := strconv.Atoi(n)
			switch state[n] {
			case "true", "ok":
				done = append(done, n)
			case string(message.OutcomeInterrupted):
				turns = append(turns, scripted.Call("check", numberIn{number}))
			default:
				turns = append(turns, scripted.Call(name, numberIn{number}))
			}
		}
		if len(turns) > 0 {
			return turns[0].And(turns[1:]...), nil
		}
	}
	return scripted.Say(fmt.Sprintf("All %d are done: %s", len(done), strings.Join(done, " "))), nil
}

// callStates returns the last result about each number.
func callStates(msgs []*message.Message) map[string]string {
	numbers := map[string]string{} // by call id
	state := map[string]string{}
	for _, m := range msgs {
		for _, c := range m.ToolCalls() {
			numbers[c.ID] = strings.Trim(string(c.Input), `{}"n:`)
		}
		for _, r := range m.ToolResults() {
			if r.Outcome == message.OutcomeSuccess {
				state[numbers[r.ID]] = r.Text()
			} else {
				state[numbers[r.ID]] = string(r.Outcome)
			}
		}
	}
	return state
}
