// Package desk has the agent of this module's tests. The agent's model acts on the first word of the user's message.
package desk

import (
	"context"
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agui"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

type wordIn struct {
	Word string `json:"word"`
}

var notes = toolstate.NewKey[[]string]("notes")

// Config returns the configuration of a handler with the agent. The tool "wait" calls wait. The tool "send" needs
// approval, and the tool "clerk" is a sub-agent with the tool "look".
func Config(store session.Store, wait func(context.Context) error) agui.Config {
	note := tool.Must(tool.New("note", "Keeps a word.", func(ctx context.Context, in wordIn) (string, error) {
		return "kept", notes.Update(ctx, func(list *[]string) error { *list = append(*list, in.Word); return nil })
	}, tool.Options{}))
	send := tool.Must(tool.New("send", "Sends a word.", func(_ context.Context, in wordIn) (string, error) { return "sent " + in.Word, nil }))
	waitTool := tool.Must(tool.New("wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) { return "waited", wait(ctx) }))
	look := tool.Must(tool.New("look", "Looks.", func(context.Context, struct{}) (string, error) { return "seen", nil }))
	clerk, err := agent.New(agent.Config{Model: Model(), Toolkit: toolkit.Of(look), Policy: permission.Policy{Rules: []permission.Rule{allow("look")}}})
	if err != nil {
		panic(err)
	}
	tk, err := toolkit.New(toolkit.Config{
		Basic:  toolkit.Group{Tools: []tool.Tool{note, send, waitTool, tool.Must(agent.AsTool[string, string](clerk, "clerk", "Does a task.", nil))}},
		Groups: []toolkit.Group{{Name: "extra", Description: "More.", Tools: []tool.Tool{tool.Must(tool.New("rare", "Is rare.", func(context.Context, struct{}) (string, error) { return "rare", nil }))}}},
	})
	if err != nil {
		panic(err)
	}
	return agui.Config{
		Store: store,
		Agent: agent.Config{
			Model:   Model(),
			Toolkit: tk,
			Policy:  permission.Policy{Rules: []permission.Rule{allow("note"), allow("wait"), allow("clerk"), allow("look")}},
			Retry:   middleware.RetryConfig{Base: 1, MaxWait: 1}, // nanoseconds
		},
		State: State,
	}
}

func allow(name string) permission.Rule {
	return permission.Rule{Tool: name, Behavior: permission.Allow}
}

// State is the agent's Config.State: the notes and the open groups of tools.
func State(st *agent.State) any {
	list := []string{} // encodes to [], not null
	if err := notes.Update(toolstate.With(context.Background(), &st.Tools), func(n *[]string) error { list = append(list, *n...); return nil }); err != nil {
		return nil
	}
	open, _ := st.Scope.Active()
	return map[string]any{"notes": list, "groups": append([]string{}, open...)}
}

// Model returns a new model for the agent.
func Model() model.Model {
	flakyCalls := 0
	return scripted.New(scripted.Repeat(scripted.Func(func(req *model.Request) (scripted.Turn, error) { return answer(req, &flakyCalls) })))
}

// answer answers a request. flakyCalls counts the requests for "flaky", of which each second one succeeds.
func answer(req *model.Request, flakyCalls *int) (scripted.Turn, error) {
	last := req.Messages[len(req.Messages)-1]
	if list := last.ToolResults(); len(list) > 0 {
		var texts []string
		for _, r := range list {
			texts = append(texts, r.Text())
		}
		return scripted.Say("Done: " + strings.Join(texts, ", ") + "."), nil
	}
	word, rest, _ := strings.Cut(last.Text(), " ")
	switch word {
	case "think":
		return scripted.Think("They want " + rest + ", I think.").And(scripted.Say("Here is " + rest + ".")), nil
	case "two":
		return scripted.Say("I do two things.").And(scripted.Call("note", wordIn{rest}), scripted.Call("send", wordIn{rest})), nil
	case "note", "send":
		return scripted.Say("I " + word + " it.").And(scripted.Call(word, wordIn{rest})), nil
	case "wait":
		return scripted.Call("wait", struct{}{}), nil
	case "clerk":
		return scripted.Call("clerk", map[string]string{"task": rest}), nil
	case "look":
		return scripted.Say("I look.").And(scripted.Call("look", struct{}{})), nil
	case "front":
		return scripted.Say("The frontend does it.").And(scripted.Call(rest, wordIn{"now"})), nil
	case "tools":
		var names []string
		for _, t := range req.Tools {
			names = append(names, t.Name)
		}
		return scripted.Say("I have " + strings.Join(names, " ") + "."), nil
	case "break":
		return scripted.Turn{}, &model.Error{Kind: model.KindAuthentication, Message: "the key sk-secret is wrong"}
	case "flaky":
		if *flakyCalls++; *flakyCalls%2 == 1 {
			return scripted.Think("This will be cut").And(scripted.Fail(&model.Error{Kind: model.KindConnection, Message: "reset"})), nil
		}
		return scripted.Say("This is whole."), nil
	case "context":
		return scripted.Say("I know " + hintText(last) + "."), nil
	case "huge":
		return scripted.Say(strings.Repeat("0123456789abcdef", 1<<15)), nil // more than the buffers of a connection hold
	case "long":
		return scripted.Say(strings.Repeat("All work and no play — ", 40)), nil
	}
	return scripted.Say(fmt.Sprintf("You said %q.", last.Text())), nil
}

func hintText(m *message.Message) string {
	for _, b := range m.Blocks {
		if h, ok := b.(*message.Hint); ok {
			return h.Text
		}
	}
	return "nothing"
}
