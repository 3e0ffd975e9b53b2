package inspect_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestReplay judges the calls of a session by other policies.
func TestReplay(t *testing.T) {
	add := func(name string, readOnly bool) tool.Tool {
		f, err := tool.New(name, "Works.", func(context.Context, struct{}) (string, error) { return "Done.", nil }, tool.Options{ReadOnly: readOnly})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	tools := map[string]tool.Tool{"look": add("look", true), "book": add("book", false), "pay": add("pay", false)}
	policy := permission.Policy{TrustReadOnly: true, Rules: []permission.Rule{{Tool: "book", Behavior: permission.Allow, Source: "test"}, {Tool: "pay", Behavior: permission.Deny}}}
	s := session.Memory()
	open, err := session.Open(t.Context(), s, "s")
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Call("look", nil).And(scripted.Call("book", nil)).And(scripted.Call("pay", nil)), scripted.Say("Done.")),
		Toolkit: toolkit.Of(tools["look"], tools["book"], tools["pay"]), Save: session.Save, Policy: policy})
	if err == nil {
		_, err = a.Reply(open.Context(t.Context()), open.State, agent.Say("Go."))
	}
	if err == nil {
		err = open.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	c, base := client(t, s, inspect.Options{Policy: policy, Call: func(_, name string, input json.RawMessage) *permission.Call {
		if f, ok := tools[name]; ok {
			return tool.PermissionCall(f, input)
		}
		return nil
	}})
	type answer struct {
		Judged int
		Differ []struct {
			Tool, Was, Now, Cause string
			Row                   int
			Known                 bool
			Steps                 []struct{ Name, Rule string }
		}
	}
	judge := func(settings, row string) (out answer) {
		t.Helper()
		quoted, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		text, code := body(t, c, "POST", base+"api/sessions/s/judge", fmt.Sprintf(`{"settings": %s, "row": %s}`, quoted, row))
		if code != 200 {
			t.Fatalf("%d %s", code, text)
		}
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, row := range []struct{ settings, want string }{
		{"", ""},
		{`{"permissions": {"deny": ["book"]}}`, "look allow ask, book allow deny, pay deny ask"},
		{`{"permissions": {"mode": "bypassPermissions", "deny": ["look"]}}`, "look allow deny, pay deny allow"},
	} {
		got := judge(row.settings, "null")
		var list []string
		for _, d := range got.Differ {
			list = append(list, d.Tool+" "+d.Was+" "+d.Now)
		}
		if text := strings.Join(list, ", "); text != row.want || got.Judged != 3 {
			t.Errorf("%s: of %d calls these differ: %s; want %s", row.settings, got.Judged, text, row.want)
		}
	}
	book := judge(`{"permissions": {"deny": ["book"]}}`, "null").Differ[1].Row
	got := judge("", fmt.Sprint(book)).Differ
	if len(got) != 1 || got[0].Tool != "book" || len(got[0].Steps) == 0 || got[0].Steps[len(got[0].Steps)-1].Rule != "book (test)" {
		t.Errorf("the decision about book is explained by %+v", got)
	}
	if text, code := body(t, c, "POST", base+"api/sessions/s/judge", `{"settings": "{\"permissions\": {\"allow\": [\"(\"]}}"}`); code != 400 {
		t.Errorf("a bad rule: %d %s", code, text)
	}
}
