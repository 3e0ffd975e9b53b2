package toolkit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// oneAtATime returns a Control of one tool that opens a group and closes the others.
func oneAtATime() *toolkit.Control {
	return &toolkit.Control{
		Tools: func(tk *toolkit.Toolkit, s *toolkit.Scope, groups []toolkit.GroupInfo) []tool.Tool {
			return []tool.Tool{focus{tk, s, groups}}
		},
		Static: true,
		Hint: func(_ string, _, want []string) string {
			return fmt.Sprintf("call focus with {\"group\":%q}", want[len(want)-1])
		},
	}
}

type focus struct {
	tk     *toolkit.Toolkit
	scope  *toolkit.Scope
	groups []toolkit.GroupInfo
}

func (f focus) Info() tool.Info {
	text := "Opens a group of tools and closes the others."
	for _, g := range f.groups {
		text += "\n- " + g.Name + ": " + g.Description
	}
	return tool.Info{Name: "focus", Description: text, Control: true,
		Input: json.RawMessage(`{"type":"object","properties":{"group":{"type":"string"}},"required":["group"]}`)}
}

func (f focus) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		var in struct{ Group string }
		if err := json.Unmarshal(call.Input, &in); err != nil {
			yield(tool.Chunk{}, err)
			return
		}
		if _, err := f.tk.Set(ctx, f.scope, in.Group); err != nil {
			yield(tool.Chunk{}, err)
			return
		}
		yield(tool.Text("Open now: "+in.Group+"."), nil)
	}
}

// A custom Control has one or more tools that call the toolkit.
func ExampleControl() {
	tk, err := toolkit.New(toolkit.Config{Control: oneAtATime(), Groups: []toolkit.Group{
		{Name: "mail", Description: "Letters.", Tools: fakes("send")},
		{Name: "files", Description: "Files.", Tools: fakes("read")},
	}})
	if err != nil {
		panic(err)
	}
	ctx, scope := context.Background(), new(toolkit.Scope)
	call := func(name, input string) {
		view, err := tk.View(ctx, scope)
		if err != nil {
			panic(err)
		}
		t, args, err := view.Resolve(ctx, name, json.RawMessage(input))
		if err != nil {
			fmt.Println(err)
			return
		}
		for c := range tool.Run(ctx, t, tool.Call{Name: name, Input: args}) {
			fmt.Println(c.Block.(*message.Text).Text)
		}
	}
	call("send", `{}`)
	call("focus", `{"group": "mail"}`)
	call("send", `{}`)
	call("focus", `{"group": "letters"}`)
	// Output:
	// tool "send" is in the group "mail", which is closed: call focus with {"group":"mail"} first
	// Open now: mail.
	// send
	// there is no group "letters"; the groups are mail, files
}

// The caller of a request sets its ceiling; the model can only use the tools that it grants.
func ExampleCeiling() {
	tk, err := toolkit.New(toolkit.Config{Preset: toolkit.TrustGraph(),
		Basic:    toolkit.Group{Tools: fakes("query", "update")},
		Settings: []toolkit.Setting{{Tool: "query", Groups: []string{"read-only"}}, {Tool: "update", Groups: []string{"write"}}},
	})
	if err != nil {
		panic(err)
	}
	for _, request := range []string{`{}`, `{"ceiling": []}`, `{"ceiling": ["read-only"]}`, `{"ceiling": ["*"]}`} {
		scope := new(toolkit.Scope)
		if err := json.Unmarshal([]byte(request), scope); err != nil {
			panic(err)
		}
		view, err := tk.View(context.Background(), scope)
		if err != nil {
			panic(err)
		}
		fmt.Println(request, listed(view))
	}
	// Output:
	// {} []
	// {"ceiling": []} []
	// {"ceiling": ["read-only"]} [query]
	// {"ceiling": ["*"]} [query update]
}
