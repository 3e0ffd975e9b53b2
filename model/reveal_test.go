package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/tool"
)

// A provider is a scripted model that is a Revealer. It records the last request: the head, and the messages with
// the changes between them.
type provider struct {
	*scripted.Model
	sent []string
}

func (p *provider) Reveals() bool { return true }

func (p *provider) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	p.sent = wire(req)
	return p.Model.Generate(ctx, req)
}

// wire returns a request as a Revealer sends it, in parts, of which a provider can cache a common prefix.
func wire(req *model.Request) []string {
	shown := req.Revealed()
	parts := []string{"[" + strings.Join(names(shown.Head), " ") + "]"}
	changes := shown.Changes
	for i := 0; i <= len(req.Messages); i++ {
		for ; len(changes) > 0 && changes[0].At == i; changes = changes[1:] {
			var list []string
			for _, info := range changes[0].Add {
				list = append(list, "+"+info.Name+info.Description)
			}
			for _, name := range changes[0].Remove {
				list = append(list, "-"+name)
			}
			parts = append(parts, "{"+strings.Join(list, " ")+"}")
		}
		if i < len(req.Messages) {
			parts = append(parts, req.Messages[i].ID)
		}
	}
	return parts
}

func names(infos []tool.Info) (list []string) {
	for _, info := range infos {
		list = append(list, info.Name+info.Description)
	}
	return list
}

// A conversation makes requests by the rules of Reveal. It is saved as JSON.
type conversation struct {
	Messages []*message.Message
	Tools    map[string]string // the definitions of those that are callable, by name
	Begun    bool
	Head     []string
	Changes  []change

	made int
}

type change struct {
	Before string // the id of the first answer after it; empty if there is none yet
	Add    []string
	Remove []string
}

func info(name, definition string) tool.Info {
	return tool.Info{Name: name, Description: definition, Input: json.RawMessage(`{"type":"object"}`)}
}

func (c *conversation) add(role message.Role) {
	c.made++
	m := message.User("words")
	m.Role, m.ID = role, fmt.Sprint(string(role[0]), c.made)
	c.Messages = append(c.Messages, m)
}

// request brings the list up to date with Tools and returns the request.
func (c *conversation) request() *model.Request {
	req := &model.Request{Messages: c.Messages}
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		req.Tools = append(req.Tools, info(name, c.Tools[name]))
	}
	if n := len(c.Changes); n > 0 && c.Changes[n-1].Before == "" {
		c.Changes = c.Changes[:n-1] // it had no answer
	}
	reveal, ok := c.reveal(req)
	if !ok || !c.Begun {
		c.Begun, c.Head, c.Changes = true, nil, nil
		for _, t := range req.Tools {
			c.Head = append(c.Head, t.Name+t.Description)
		}
		reveal, _ = c.reveal(req)
	}
	req.Reveal = reveal
	return req
}

// reveal returns the Reveal for req, or false if the conversation must start again.
func (c *conversation) reveal(req *model.Request) (*model.Reveal, bool) {
	shown := map[string]bool{} // name and definition: callable?
	infos := func(list []string) (infos []tool.Info) {
		for _, s := range list {
			shown[s] = true
			infos = append(infos, info(s[:1], s[1:]))
		}
		return infos
	}
	v := &model.Reveal{Head: infos(c.Head)}
	for _, ch := range c.Changes {
		at := slices.IndexFunc(c.Messages, func(m *message.Message) bool { return m.ID == ch.Before })
		if at < 0 {
			return nil, false
		}
		for _, s := range ch.Remove {
			for k := range shown {
				if k[:1] == s {
					shown[k] = false
				}
			}
		}
		v.Changes = append(v.Changes, &model.ToolChange{At: at, Add: infos(ch.Add), Remove: ch.Remove})
	}
	var now change
	for _, t := range req.Tools {
		s := t.Name + t.Description
		for k := range shown {
			if k[:1] == t.Name && k != s {
				return nil, false // another definition
			}
		}
		if !shown[s] {
			now.Add = append(now.Add, s)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(shown)) {
		if _, callable := c.Tools[s[:1]]; shown[s] && !callable {
			now.Remove = append(now.Remove, s[:1])
		}
	}
	if now.Add != nil || now.Remove != nil {
		if len(c.Messages) == 0 {
			return nil, false
		}
		c.Changes = append(c.Changes, now)
		v.Changes = append(v.Changes, &model.ToolChange{At: len(c.Messages), Add: infos(now.Add), Remove: now.Remove})
	}
	return v, true
}

// do plays an action: "ask" has the model answer, "fail" has it fail, "+x" opens and "-x" closes a tool, "x2" gives it another definition,
// "compact" drops the first half of the messages, "resume" saves and loads the conversation, and "switch" makes a request to a model
// that is not a Revealer.
func (c *conversation) do(t interface{ Fatal(...any) }, p *provider, action string) *conversation {
	switch {
	case action == "ask", action == "fail", action == "switch":
		c.add(message.RoleUser)
		req := c.request()
		if v := req.Revealed(); v != req.Reveal {
			t.Fatal("Revealed rejects the Reveal")
		}
		plain := scripted.New(scripted.Say("yes"))
		first := model.Model(p)
		switch action {
		case "fail":
			p.Model = scripted.New(scripted.Fail(errors.New("no")))
		case "switch":
			first = plain
		default:
			p.Model = scripted.New(scripted.Say("yes"))
		}
		if _, _, err := model.Collect(first.Generate(context.Background(), req)); err != nil {
			return c
		}
		c.add(message.RoleAssistant)
		if n := len(c.Changes); n > 0 && c.Changes[n-1].Before == "" {
			c.Changes[n-1].Before = c.Messages[len(c.Messages)-1].ID
		}
	case action == "compact":
		c.Messages = slices.Clone(c.Messages[len(c.Messages)/2:])
		c.Begun = false
	case action == "resume":
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		made := c.made
		c = new(conversation)
		if err := json.Unmarshal(data, c); err != nil {
			t.Fatal(err)
		}
		c.made = made
	case action[0] == '+':
		c.Tools[action[1:]] = ""
	case action[0] == '-':
		delete(c.Tools, action[1:])
	default:
		c.Tools[action[:1]] = action[1:]
	}
	return c
}

// TestReveal plays conversations and compares the last request that the provider gets.
func TestReveal(t *testing.T) {
	for actions, want := range map[string]string{
		"ask ask":                          "[a] u1 a2 u3",
		"ask +b ask":                       "[a] u1 a2 u3 {+b}",
		"ask +b ask ask":                   "[a] u1 a2 u3 {+b} a4 u5",
		"ask +b ask +c ask":                "[a] u1 a2 u3 {+b} a4 u5 {+c}",
		"ask +b ask -b ask":                "[a] u1 a2 u3 {+b} a4 u5 {-b}",
		"ask -a +b ask +a ask":             "[a] u1 a2 u3 {+b -a} a4 u5 {+a}",
		"ask +b fail +c ask":               "[a] u1 a2 u3 u4 {+b +c}",
		"ask +b fail -b ask":               "[a] u1 a2 u3 u4",
		"+b ask":                           "[a b] u1",
		"ask +b ask resume +c ask":         "[a] u1 a2 u3 {+b} a4 u5 {+c}",
		"ask +b ask compact ask":           "[a b] u3 a4 u5",
		"ask +b ask b2 ask":                "[a b2] u1 a2 u3 a4 u5",
		"ask +b ask -b ask b2 ask":         "[a b2] u1 a2 u3 a4 u5 a6 u7",
		"ask +b switch -b switch ask":      "[a] u1 a2 u3 {+b} a4 u5 {-b} a6 u7",
		"ask +b ask compact +c ask -b ask": "[a b c] u3 a4 u5 a6 u7 {-b}",
	} {
		c, p := &conversation{Tools: map[string]string{"a": ""}}, new(provider)
		for action := range strings.FieldsSeq(actions) {
			c = c.do(t, p, action)
		}
		if got := strings.Join(p.sent, " "); got != want {
			t.Errorf("%s: sent %s, want %s", actions, got, want)
		}
	}
}

// TestRevealHolds plays random conversations. The model must know exactly the callable tools, and unless the
// conversation starts again, a request must start with all of the last one that was answered.
func TestRevealHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		actions := rapid.SliceOfN(rapid.SampledFrom(strings.Fields("ask ask ask fail switch +a +b +c -a -b -c resume compact b2")), 1, 30).Draw(rt, "actions")
		c, p := &conversation{Tools: map[string]string{"a": ""}}, new(provider)
		var last []string // answered request
		anew := true
		for _, action := range actions {
			head, begun := strings.Join(c.Head, " "), c.Begun
			c = c.do(rt, p, action)
			if !begun || strings.Join(c.Head, " ") != head { // also by a request to a model that is not a Revealer
				anew = true
			}
			switch action {
			case "compact":
				anew = true
			case "ask", "fail":
				if !slices.Equal(knownTools(p.sent), slices.Sorted(maps.Keys(c.Tools))) {
					rt.Fatalf("sent %v, callable %v", p.sent, c.Tools)
				}
				if !anew && (len(p.sent) < len(last) || !slices.Equal(p.sent[:len(last)], last)) {
					rt.Fatalf("%v does not repeat %v", p.sent, last)
				}
				if action == "ask" {
					last, anew = p.sent, false
				}
			}
		}
	})
}

// knownTools returns the names of the tools that a model knows from what it was sent.
func knownTools(sent []string) []string {
	known := map[string]bool{}
	for _, part := range sent {
		list := strings.Trim(part, "[]{}")
		switch {
		case part[0] == '[':
			for name := range strings.FieldsSeq(list) {
				known[name[:1]] = true
			}
		case part[0] == '{':
			for name := range strings.FieldsSeq(list) {
				if name[0] == '+' {
					known[name[1:2]] = true
				} else {
					delete(known, name[1:2])
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// TestRevealThatDoesNotFit: a Reveal that is not equivalent to Tools, or violates the rules, is not used.
func TestRevealThatDoesNotFit(t *testing.T) {
	a, b, b2 := info("a", ""), info("b", ""), info("b", "2")
	list := func(infos ...tool.Info) []tool.Info { return infos }
	user, answer := message.User("hi"), message.Assistant(&message.Text{Text: "yes"})
	for _, row := range []struct {
		why    string
		tools  []tool.Info
		reveal *model.Reveal
		fits   bool
	}{
		{"none", list(a), nil, false},
		{"the head alone", list(a, b), &model.Reveal{Head: list(b, a)}, true},
		{"an addition at the end", list(a, b), &model.Reveal{Head: list(a), Changes: []*model.ToolChange{{At: 3, Add: list(b)}}}, true},
		{"an addition before an answer", list(a, b), &model.Reveal{Head: list(a), Changes: []*model.ToolChange{{At: 1, Add: list(b)}}}, true},
		{"a removal", list(a), &model.Reveal{Head: list(a, b), Changes: []*model.ToolChange{{At: 1, Remove: []string{"b"}}}}, true},
		{"a return", list(a, b), &model.Reveal{Head: list(a, b), Changes: []*model.ToolChange{{At: 1, Remove: []string{"b"}}, {At: 3, Add: list(b)}}}, true},
		{"a tool is missing", list(a, b), &model.Reveal{Head: list(a)}, false},
		{"a tool too many", list(a), &model.Reveal{Head: list(a, b)}, false},
		{"a tool twice in the list", list(a, a), &model.Reveal{Head: list(a, b)}, false},
		{"another tool", list(a), &model.Reveal{Head: list(b)}, false},
		{"a tool that was removed", list(a, b), &model.Reveal{Head: list(a, b), Changes: []*model.ToolChange{{At: 1, Remove: []string{"b"}}}}, false},
		{"another definition", list(a, b), &model.Reveal{Head: list(a, b2)}, false},
		{"two definitions", list(a, b2), &model.Reveal{Head: list(a, b), Changes: []*model.ToolChange{{At: 1, Remove: []string{"b"}, Add: list(b2)}}}, false},
		{"twice in the head", list(a), &model.Reveal{Head: list(a, a)}, false},
		{"added twice", list(a, b), &model.Reveal{Head: list(a), Changes: []*model.ToolChange{{At: 1, Add: list(b)}, {At: 3, Add: list(b)}}}, false},
		{"removal of an unknown tool", list(a), &model.Reveal{Head: list(a), Changes: []*model.ToolChange{{At: 1, Remove: []string{"b"}}}}, false},
		{"after the end", list(a, b), &model.Reveal{Head: list(a), Changes: []*model.ToolChange{{At: 4, Add: list(b)}}}, false},
		{"before all messages", list(a, b), &model.Reveal{Head: list(a), Changes: []*model.ToolChange{{At: 0, Add: list(b)}}}, false},
		{"not before an answer", list(a, b), &model.Reveal{Head: list(a), Changes: []*model.ToolChange{{At: 2, Add: list(b)}}}, false},
		{"not in order", list(a, b), &model.Reveal{Head: list(a, b), Changes: []*model.ToolChange{{At: 3, Remove: []string{"b"}}, {At: 1, Add: list(b)}}}, false},
	} {
		req := &model.Request{Messages: []*message.Message{user, answer, user}, Tools: row.tools, Digest: "all", Reveal: row.reveal}
		got := req.Revealed()
		if used := got == row.reveal; used != row.fits {
			t.Errorf("%s: used %v", row.why, used)
		}
		if !row.fits && (!slices.Equal(names(got.Head), names(row.tools)) || got.Digest != "all" || got.Changes != nil) {
			t.Errorf("%s: instead %+v", row.why, got)
		}
	}
}

// TestRevealWithNilMessage: a model can refuse a request with a nil message.
func TestRevealWithNilMessage(t *testing.T) {
	req := &model.Request{Messages: []*message.Message{message.User("hi"), nil}, Reveal: &model.Reveal{Changes: []*model.ToolChange{{At: 1}}}}
	if req.Revealed() == req.Reveal {
		t.Error("a change is before a nil message")
	}
}

// TestRevealer: decorators pass Reveals on, and a model of several models reveals if one of them does.
func TestRevealer(t *testing.T) {
	plain, late := model.Model(scripted.New()), model.Model(&provider{Model: scripted.New()})
	for _, row := range []struct {
		why  string
		m    model.Model
		want bool
	}{
		{"no", plain, false},
		{"yes", late, true},
		{"retried", middleware.Retry(late, middleware.RetryConfig{}), true},
		{"limited", middleware.Limit(late, middleware.LimitConfig{Requests: 1}), true},
		{"the second", middleware.Fallback([]model.Model{plain, late}, middleware.FallbackConfig{}), true},
		{"neither", middleware.Fallback([]model.Model{plain, plain}, middleware.FallbackConfig{}), false},
	} {
		r, ok := model.As[model.Revealer](row.m)
		if got := ok && r.Reveals(); got != row.want {
			t.Errorf("%s: %v", row.why, got)
		}
	}
}
