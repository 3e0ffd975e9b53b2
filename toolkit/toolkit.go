// Package toolkit holds tools in groups and decides which of them a model sees.
package toolkit

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
)

// A Group is a named set of tools and skills that is opened and closed as one.
type Group struct {
	Name, Title, Description, Instructions string

	Parents []string
	Tools   []tool.Tool
	Sources []tool.Source
	Skills  []skill.Loader
}

// A Config is what a Toolkit is made of.
type Config struct {
	Basic     Group // always open; its name must be empty
	Groups    []Group
	Exclusive [][]string // sets of groups of which one may be open at a time
	MaxTools  int        // 0 for no limit
}

// A Toolkit is the catalogue. It is safe for concurrent use and shared by any
// number of sessions.
type Toolkit struct{ cfg Config }

// New checks the configuration and returns the toolkit.
func New(cfg Config) (*Toolkit, error) { return &Toolkit{cfg}, nil }

// Of returns a toolkit of one group that is always open, without a control
// tool. It panics where New would return an error.
func Of(tools ...tool.Tool) *Toolkit {
	tk, err := New(Config{Basic: Group{Tools: tools}})
	if err != nil {
		panic(err)
	}
	return tk
}

// A Scope is what one session has open. The zero Scope has nothing open but
// the basic group. It is saved as JSON.
type Scope struct {
	Active []string `json:"active,omitempty"` // in order of activation
}

// A View is what a model is shown at one step and what the calls of its answer
// run against. It is immutable.
type View struct {
	infos []tool.Info
	tools map[string]tool.Tool
}

// View returns what is visible in the scope now.
func (tk *Toolkit) View(ctx context.Context, s *Scope) (*View, error) {
	v := &View{tools: map[string]tool.Tool{}}
	for _, t := range tk.cfg.Basic.Tools {
		v.infos = append(v.infos, t.Info())
		v.tools[t.Info().Name] = t
	}
	return v, nil
}

// Tools returns the visible tools, in the order in which the model gets them.
// The slice is shared: do not change it.
func (v *View) Tools() []tool.Info { return v.infos }

// Digest identifies the list that Tools returns: equal digests, equal lists.
func (v *View) Digest() string { return "" }

// Prompt returns what the system prompt says about the toolkit. It does not
// change while groups open and close.
func (v *View) Prompt() string { return "" }

// Reminder returns what the model was told when the open groups were opened
// (their instructions and skills), to be told again after compaction. It is
// empty when nothing is open.
func (v *View) Reminder() string { return "" }

// Resolve finds the tool for a call: the tool and the arguments with which it
// is to be called. Both are the call's own, except for a control tool that
// calls others on the model's behalf. The error's text is for the model.
func (v *View) Resolve(name string, input json.RawMessage) (tool.Tool, json.RawMessage, error) {
	t, ok := v.tools[name]
	if !ok {
		return nil, nil, fmt.Errorf("there is no tool %q", name)
	}
	return t, input, nil
}

// Late reports whether calls of the tool change what is open. They run after
// the other calls of the same answer, and show in the next View.
func (v *View) Late(name string) bool { return false }

// Advance tells the scope that calls of the named tools have succeeded, in
// order: a tool may move the session to another phase. Call it once per batch.
func (v *View) Advance(names ...string) {}
