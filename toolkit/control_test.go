package toolkit_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// do resolves and runs a call, as an agent does, and returns the result's text.
func do(t testing.TB, tk *toolkit.Toolkit, s *toolkit.Scope, name, input string) (string, error) {
	t.Helper()
	tl, raw, err := newView(t, tk, s).Resolve(t.Context(), name, json.RawMessage(input))
	if err != nil {
		return "", err
	}
	args, err := tool.Arguments(tl, raw)
	if err != nil {
		return "", err
	}
	call := tool.Call{ID: "1", Name: tl.Info().Name, Input: args.JSON}
	col := tool.NewCollector(call)
	for chunk, err := range tool.Run(context.Background(), tl, call) {
		if err != nil {
			t.Fatal(err)
		}
		col.Add(chunk)
	}
	res := col.Result()
	text := ""
	for _, b := range res.Blocks {
		switch b := b.(type) {
		case *message.Text:
			text += b.Text
		case *message.Data:
			text += b.MediaType
		}
	}
	if res.Outcome == message.OutcomeError {
		return "", errors.New(text)
	}
	return text, nil
}

func mustDo(t testing.TB, tk *toolkit.Toolkit, s *toolkit.Scope, name, input string) string {
	t.Helper()
	text, err := do(t, tk, s, name, input)
	if err != nil {
		t.Fatalf("%s %s: %v", name, input, err)
	}
	return text
}

// TestMeta runs reset_tools with calls that were recorded from
// AgentScope and compares the outcome, the state and the groups that the answer names.
func TestMeta(t *testing.T) {
	type row struct {
		Groups []struct {
			Name         string
			Instructions string
		}
		Args   json.RawMessage
		Result struct{ State string }
		Active []string `json:"activated_after"`
	}
	for _, r := range casetest.Rows[row](t, "meta.jsonl") {
		cfg := toolkit.Config{Preset: toolkit.AgentScope()}
		for _, g := range r.Groups {
			cfg.Groups = append(cfg.Groups, toolkit.Group{Name: g.Name, Description: "G.", Instructions: g.Instructions})
		}
		tk, s := newToolkit(t, cfg), new(toolkit.Scope)
		text, err := do(t, tk, s, "reset_tools", string(r.Args))
		if (err == nil) != (r.Result.State == "success") {
			t.Errorf("%s: %q, %v", r.Args, text, err)
		}
		active, _ := s.Active()
		if !slices.Equal(orEmpty(active), r.Active) {
			t.Errorf("%s: active %q, want %q", r.Args, active, r.Active)
		}
		for _, g := range r.Groups {
			if err == nil && slices.Contains(active, g.Name) != strings.Contains(text, g.Name) || slices.Contains(active, g.Name) && !strings.Contains(text, g.Instructions) {
				t.Errorf("%s: the answer %q does not match the open groups %q", r.Args, text, active)
			}
		}
	}
}

func TestResetTools(t *testing.T) {
	for name, control := range map[string]*toolkit.Control{"ours": toolkit.ResetTools(nil), "written outside": outsideReset()} {
		t.Run(name, func(t *testing.T) { testResetTools(t, control) })
	}
}

func testResetTools(t *testing.T, control *toolkit.Control) {
	db := group("db", "query", "migrate")
	db.Instructions = "Amounts are in cents."
	child := group("db-admin", "drop")
	child.Parents = []string{"db"}
	tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Tools: fakes("now")}, Groups: []toolkit.Group{db, child, group("web", "fetch")}, Control: control})
	s := new(toolkit.Scope)
	for _, row := range []struct{ input, want, err string }{
		{`{"db":true,"web":true}`, "Open now: db, web.\n\n<group name=\"db\">\n- query: Does query.\n- migrate: Does migrate.\nAmounts are in cents.\n</group>\n\n<group name=\"web\">\n- fetch: Does fetch.\n</group>", ""},
		{`{"db":true}`, "Open now: db. Closed just now, because you left them out: web.\n\n<group name=\"db\">\nAmounts are in cents.\n</group>", ""},
		{`{"db":true}`, "Open now: db.\n\n<group name=\"db\">\n- query: Does query.\n- migrate: Does migrate.\nAmounts are in cents.\n</group>", ""}, // nothing changes: the answer lists the tools again
		{`{"db-admin":true}`, "", `group "db-admin" needs db to be open too; nothing was changed: open db, then db-admin`},
		{`{"nope":true,"web":true}`, "", `there is no group "nope"; the groups are db, db-admin, web`},
		{`{"web":"yes"}`, "", "web"},
		{`{}`, "No group is open now. Closed just now, because you left them out: db.", ""},
	} {
		text, err := do(t, tk, s, "reset_tools", row.input)
		if text != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s:\n%s\n%v\nwant:\n%s\n%s", row.input, text, err, row.want, row.err)
		}
	}
	v := newView(t, tk, s)
	for name, changes := range map[string]bool{"reset_tools": true, "now": false, "query": false, "nope": false} {
		if v.ChangesGroups(name) != changes {
			t.Errorf("ChangesGroups(%s) = %v", name, !changes)
		}
	}
	for _, cut := range []string{`{"web":true`, `{"web":true,`, `{"web":true}}`} {
		if got := v.Opens("reset_tools", json.RawMessage(cut)); got != nil {
			t.Errorf("Opens(%s) = %q", cut, got)
		}
	}
	if _, _, err := v.Resolve(t.Context(), "drop", nil); err == nil || !strings.HasSuffix(err.Error(), `call reset_tools with {"db":true,"db-admin":true} first`) {
		t.Errorf("the hint for a tool two levels down: %v", err)
	}
	if _, _, err := v.Resolve(t.Context(), "noww", nil); err == nil || err.Error() != `there is no tool "noww"; did you mean now?` {
		t.Errorf("an unknown tool: %v", err)
	}
}

// TestResetProperties has groups whose names model APIs refuse as names of properties.
func TestResetProperties(t *testing.T) {
	long := strings.Repeat("x", 70)
	tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{group("trips/booking", "book"), group("trips_booking", "look"), group("größe", "measure"), group(long, "wait")}})
	s := new(toolkit.Scope)
	var properties struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(newView(t, tk, s).Tools()[0].Input, &properties); err != nil {
		t.Fatal(err)
	}
	want := []string{"gr__e", "trips_booking", "trips_booking_2", long[:64]}
	if got := slices.Sorted(maps.Keys(properties.Properties)); !slices.Equal(got, want) {
		t.Errorf("the properties are %q, want %q", got, want)
	}
	for _, row := range []struct{ input, open string }{
		{`{"trips_booking_2":true,"gr__e":true}`, "trips/booking größe"},
		{`{"trips_booking":true}`, "trips_booking"},
		{`{"trips/booking":true,"` + long[:64] + `":true}`, "trips/booking " + long}, // as hints and answers name it
	} {
		if _, err := do(t, tk, s, "reset_tools", row.input); err != nil {
			t.Errorf("%s: %v", row.input, err)
		}
		if open, _ := s.Active(); strings.Join(open, " ") != row.open {
			t.Errorf("%s opens %q", row.input, open)
		}
	}
}

// TestResetOptions: ShowActive marks open groups in the schema, NewOnly omits instructions of groups that were open.
func TestResetOptions(t *testing.T) {
	db := group("db", "query")
	db.Instructions = "Amounts are in cents."
	for _, row := range []struct {
		options toolkit.ResetOptions
		// Whether the schema marks db as open, the answer that opens web repeats db's instructions, and the first tool stays the same.
		marks, repeats, same bool
	}{
		{toolkit.ResetOptions{}, false, true, true},
		{toolkit.ResetOptions{ShowActive: true}, true, true, false},
		{toolkit.ResetOptions{NewOnly: true}, false, false, true},
	} {
		tk := newToolkit(t, toolkit.Config{Groups: []toolkit.Group{db, group("web", "fetch")}, Control: toolkit.ResetTools(&row.options)})
		s := new(toolkit.Scope)
		before := newView(t, tk, s).Tools()[0]
		mustDo(t, tk, s, "reset_tools", `{"db":true}`)
		answer := mustDo(t, tk, s, "reset_tools", `{"db":true,"web":true}`)
		now := newView(t, tk, s).Tools()[0]
		marks, repeats, same := strings.Contains(string(now.Input), "(open now)"), strings.Contains(answer, "cents"), string(mustJSON(now)) == string(mustJSON(before))
		if marks != row.marks || repeats != row.repeats || same != row.same {
			t.Errorf("%+v: marks %v, repeats %v, same tool %v; answer %s", row.options, marks, repeats, same, answer)
		}
		if answer := mustDo(t, tk, s, "reset_tools", `{"db":true,"web":true}`); !strings.Contains(answer, "cents") || !strings.Contains(answer, "- query") {
			t.Errorf("%+v: the same call again: %s", row.options, answer)
		}
	}
}

// TestCeilingHidesNames: no list, schema or error names a group or tool that the ceiling does not
// grant.
func TestCeilingHidesNames(t *testing.T) {
	secret := group("secret", "launch")
	below := group("below", "look")
	below.Parents = []string{"secret"}
	for _, control := range []*toolkit.Control{toolkit.ResetTools(nil), toolkit.EnableDisable(), toolkit.PerGroup(), toolkit.Discover()} {
		tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Tools: fakes("now")}, Control: control,
			Groups: []toolkit.Group{secret, below, group("public", "read")}})
		s := newScope(toolkit.Only("public", "below", "basic"), "")
		v := newView(t, tk, s)
		all := string(mustJSON(v.Tools())) + v.Prompt() + v.Reminder() + string(mustJSON(v.Cost()))
		for _, call := range [][2]string{
			{"launch", `{}`}, {"look", `{}`}, {"lunch", `{}`}, {"reset_tools", `{"secret":true}`}, {"reset_tools", `{"below":true}`}, {"reset_tools", `{"nope":true}`},
			{"enable_tools", `{"groups":["secret","below","nope","public"]}`}, {"disable_tools", `{"groups":["secret"]}`},
			{"secret.activate", `{}`}, {"below.activate", `{}`}, {"call_tool", `{"name":"launch","arguments":{}}`},
			{"search_tools", `{"query":"launch"}`}, {"search_tools", `{"query":"","group":"nope"}`}, {"describe_tools", `{"names":["launch","read"]}`},
		} {
			text, err := do(t, tk, s, call[0], call[1])
			if err != nil {
				text += err.Error()
			}
			// An answer may repeat names from the call.
			for _, own := range []string{"launch", "secret"} {
				if strings.Contains(call[0]+call[1], own) {
					text = strings.ReplaceAll(text, own, "")
				}
			}
			all += text
		}
		for _, word := range []string{"secret", "launch"} {
			if strings.Contains(all, word) {
				t.Errorf("%T reveals %s: %s", control, word, all)
			}
		}
		for _, do := range []transition{tk.Enable, tk.Disable, tk.Set} {
			_, err := do(context.Background(), s, "secret")
			if ge, ok := errors.AsType[*toolkit.GroupError](err); !ok || ge.Reason != toolkit.ReasonUnknownGroup {
				t.Errorf("a transition above the ceiling: %v", err)
			}
		}
		_, _, hidden := v.Resolve(t.Context(), "launch", nil)
		_, _, unknown := v.Resolve(t.Context(), "lxxxxh", nil)
		if hidden == nil || strings.ReplaceAll(hidden.Error(), "launch", "lxxxxh") != unknown.Error() {
			t.Errorf("above the ceiling: %v, unknown: %v", hidden, unknown)
		}
		none := newView(t, tk, newScope(toolkit.Only(), ""))
		if len(none.Tools()) != 0 {
			t.Errorf("%T: without a grant %q are listed", control, listed(none))
		}
	}
}

func TestDiscover(t *testing.T) {
	for name, control := range map[string]*toolkit.Control{"ours": toolkit.Discover(), "written outside": outsideDiscover()} {
		t.Run(name, func(t *testing.T) { testDiscover(t, control) })
	}
}

func testDiscover(t *testing.T, control *toolkit.Control) {
	files := group("files", "read_file", "writeFile", "list_directories")
	files.Instructions = "Paths are relative."
	mail := group("mail", "send_mail")
	later := group("later", "archive_mail")
	tk := newToolkit(t, toolkit.Config{Control: control, Basic: toolkit.Group{Tools: fakes("now")},
		Groups:   []toolkit.Group{files, mail, later},
		Settings: []toolkit.Setting{{Tool: "archive_mail", Phases: []string{"sent"}}, {Tool: "send_mail", Next: "sent"}}})
	s := new(toolkit.Scope)
	before := newView(t, tk, s)
	if got := listed(before); !slices.Equal(got, []string{"search_tools", "describe_tools", "call_tool", "now"}) {
		t.Fatalf("listed %q", got)
	}
	const none = "No tool was found. Try other words, or search in one of the groups with an empty query."
	for _, row := range []struct{ query, want string }{
		{`{"query":"write a file"}`, "- writeFile (files): Does writeFile."},
		{`{"query":"file"}`, "- read_file (files): Does read_file.\n- writeFile (files): Does writeFile."},
		{`{"query":"directory listing"}`, "- list_directories (files): Does list_directories."},
		{`{"query":"directories"}`, "- list_directories (files): Does list_directories."},
		{`{"query":"mail"}`, "- send_mail (mail): Does send_mail."},
		{`{"query":"","group":"later"}`, none},
		{`{"query":"","group":"mail"}`, "- send_mail (mail): Does send_mail."},
		{`{"query":"mail","group":"files"}`, none},
		{`{"query":"zebra"}`, none},
	} {
		if got := mustDo(t, tk, s, "search_tools", row.query); got != row.want {
			t.Errorf("%s found\n%s\nwant\n%s", row.query, got, row.want)
		}
	}
	if got := mustDo(t, tk, s, "describe_tools", `{"names":["read_file","send_male"]}`); !strings.Contains(got, `Arguments: {"type":"object"}`) ||
		!strings.Contains(got, "Paths are relative.") || !strings.Contains(got, `there is no tool "send_male"; did you mean send_mail?`) {
		t.Errorf("described: %s", got)
	}
	for _, row := range []struct{ name, input, want, err string }{
		{"call_tool", `{"name":"read_file","arguments":{}}`, "read_file", ""},
		{"call_tool", `{"name":"read_file","arguments":"{}"}`, "read_file", ""},
		{"call_tool", `{"name":"read_file"}`, "read_file", ""},
		{"call_tool", `{"name":"now","arguments":{}}`, "now", ""},
		{"call_tool", `{"arguments":{}}`, "", "needs the name of a tool"},
		{"call_tool", `[]`, "", "must be"},
		{"call_tool", `{"name":"call_tool","arguments":{}}`, "", `tool "call_tool" is in your list; call it directly`},
		{"call_tool", `{"name":"archive_mail","arguments":{}}`, "", "not available in the current phase"},
		{"read_file", `{}`, "", `call it with call_tool: {"name":"read_file"`},
	} {
		text, err := do(t, tk, s, row.name, row.input)
		if text != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s %s: %q, %v", row.name, row.input, text, err)
		}
	}

	// Permission and phases use the real tool's name.
	tl, _, err := before.Resolve(t.Context(), "call_tool", json.RawMessage(`{"name":"send_mail"}`))
	if err != nil {
		t.Fatal(err)
	}
	policy := &permission.Policy{Rules: []permission.Rule{{Tool: "send_mail", Behavior: permission.Deny}}}
	if d := permission.Decide(policy, tool.PermissionCall(tl, json.RawMessage(`{}`))); d.Behavior != permission.Deny {
		t.Errorf("a rule for the real tool: %+v", d)
	}
	before.Advance("send_mail")
	if s.Phase() != "sent" {
		t.Errorf("the phase is %q", s.Phase())
	}
	if text := mustDo(t, tk, s, "call_tool", `{"name":"archive_mail"}`); text != "archive_mail" {
		t.Errorf("in the next phase: %q", text)
	}
	if newView(t, tk, s).Digest() != before.Digest() {
		t.Error("the list has changed")
	}
	if newView(t, tk, s).ChangesGroups("call_tool") || newView(t, tk, s).ChangesGroups("search_tools") {
		t.Error("a tool that opens no group has ChangesGroups")
	}
}

// TestDiscoverUnlisted calls a tool of a source that was never listed: the call lists it,
// unless the ceiling does not grant its group.
func TestDiscoverUnlisted(t *testing.T) {
	for name, control := range map[string]*toolkit.Control{"ours": toolkit.Discover(), "written outside": outsideDiscover()} {
		t.Run(name, func(t *testing.T) { testDiscoverUnlisted(t, control) })
	}
}

func testDiscoverUnlisted(t *testing.T, control *toolkit.Control) {
	mail, secret := &listing{names: []string{"send_mail"}}, &listing{names: []string{"launch"}}
	dead := &listing{err: errors.New("it does not start")}
	tk := newToolkit(t, toolkit.Config{Control: control, Basic: toolkit.Group{Tools: fakes("now")},
		Groups: []toolkit.Group{
			{Name: "mail", Description: "Mail.", Sources: []tool.Source{mail}},
			{Name: "dead", Description: "Dead.", Sources: []tool.Source{dead}},
			{Name: "secret", Description: "Secret.", Sources: []tool.Source{secret}},
		},
		Settings: []toolkit.Setting{{Tool: "send_mail", Next: "sent"}}})
	s := newScope(toolkit.Only("basic", "mail", "dead"), "")
	v := newView(t, tk, s)
	for _, name := range []string{"now", "launch", "send_mial"} {
		_, _, err := v.Resolve(t.Context(), "call_tool", json.RawMessage(`{"name":"`+name+`"}`))
		if (err == nil) != (name == "now") || err != nil && !strings.HasSuffix(err.Error(), "could not be listed: server (it does not start)") {
			t.Errorf("%s: %v", name, err)
		}
	}
	tl, _, err := v.Resolve(t.Context(), "call_tool", json.RawMessage(`{"name":"send_mail"}`))
	if err != nil || tl.Info().Name != "send_mail" {
		t.Fatalf("the tool of a source that was never listed: %v", err)
	}
	if mail.calls != 1 || dead.calls != 1 || secret.calls != 0 {
		t.Errorf("listed %d, %d and %d times, want 1, 1 and 0", mail.calls, dead.calls, secret.calls)
	}
	if v.Advance("send_mail"); s.Phase() != "sent" {
		t.Errorf("the phase is %q", s.Phase())
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	fresh := newToolkit(t, toolkit.Config{Control: control,
		Groups: []toolkit.Group{{Name: "mail", Description: "Mail.", Sources: []tool.Source{&listing{names: []string{"x"}}}}}})
	if _, _, err := newView(t, fresh, new(toolkit.Scope)).Resolve(canceled, "call_tool", json.RawMessage(`{"name":"x"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// TestFailedSource: the answer to opening a group names a server that does not start,
// and a group that has nothing else does not count as open.
func TestFailedSource(t *testing.T) {
	dead := &listing{err: errors.New("it does not start")}
	named := &instructed{&listing{err: errors.New(`MCP server "server": it does not start`)}, "It cannot be used."}
	some := toolkit.Group{Name: "some", Description: "Some.", Tools: fakes("now"), Sources: []tool.Source{dead}}
	none := toolkit.Group{Name: "none", Description: "None.", Sources: []tool.Source{named}}
	for _, row := range []struct {
		control           *toolkit.Control
		name, input, want string
	}{
		{toolkit.ResetTools(nil), "reset_tools", `{"some":true}`,
			"Open now: some.\n\n<group name=\"some\">\n- now: Does now.\nIts tools could not be listed, so some may be missing: server (it does not start)\n</group>"},
		{toolkit.ResetTools(nil), "reset_tools", `{"none":true}`,
			"No group is open now.\nnone has no tools, as they could not be listed: MCP server \"server\": it does not start. Opening it again later tries again; tell the user if the task needs it."},
		{toolkit.ResetTools(nil), "reset_tools", `{"none":true,"web":true}`,
			"Open now: web.\nnone has no tools, as they could not be listed: MCP server \"server\": it does not start. Opening it again later tries again; tell the user if the task needs it.\n\n<group name=\"web\">\n- fetch: Does fetch.\n</group>"},
		{toolkit.PerGroup(), "none_activate", `{}`,
			"No group is open now.\nnone has no tools, as they could not be listed: MCP server \"server\": it does not start. Opening it again later tries again; tell the user if the task needs it."},
		{toolkit.EnableDisable(), "enable_tools", `{"groups":["some"]}`,
			`{"enabled":["some"],"enabled_groups":["some"],"available_tools":["now"],"available_groups":[],` +
				`"errors":["group \"some\": its tools could not be listed, so some may be missing: server (it does not start); tell the user if the task needs them"]}`},
	} {
		tk, s := newToolkit(t, toolkit.Config{Control: row.control, Groups: []toolkit.Group{some, none, group("web", "fetch")}}), new(toolkit.Scope)
		if text, err := do(t, tk, s, row.name, row.input); err != nil || text != row.want {
			t.Errorf("%s %s:\n%s\n%v\nwant:\n%s", row.name, row.input, text, err, row.want)
		}
		if got := newView(t, tk, s).Reminder(); strings.Contains(got, "none") {
			t.Errorf("%s %s: reminder %s", row.name, row.input, got)
		}
	}
}

func TestSkills(t *testing.T) {
	files := fstest.MapFS{
		"basics/SKILL.md": {Data: []byte("---\nname: basics\ndescription: How to begin.\n---\n# Basics\n\nBegin.\n")},
		"pdf/SKILL.md":    {Data: []byte("---\nname: pdf\ndescription: How to fill forms.\n---\n# Forms\n\nFill.\n\n# Merge\n\nJoin.\n")},
		"pdf/logo.png":    {Data: []byte("\x89PNG\r\n\x1a\n0000")},
	}
	sub := func(name string) skill.Loader {
		only := fstest.MapFS{}
		for k, f := range files {
			if strings.HasPrefix(k, name) {
				only[k] = f
			}
		}
		return skill.FS(only)
	}
	docs := group("docs", "convert")
	docs.Skills = []skill.Loader{sub("pdf")}
	tk := newToolkit(t, toolkit.Config{Basic: toolkit.Group{Skills: []skill.Loader{sub("basics")}}, Groups: []toolkit.Group{docs}})
	s := new(toolkit.Scope)
	v := newView(t, tk, s)
	if got := listed(v); !slices.Equal(got, []string{"Skill", "reset_tools"}) {
		t.Errorf("listed %q", got)
	}
	prompt := v.Prompt()
	if !strings.Contains(prompt, "How to begin.") || strings.Contains(prompt, "pdf") {
		t.Errorf("prompt: %s", prompt)
	}
	if _, err := do(t, tk, s, "Skill", `{"skill":"pdf"}`); err == nil || !strings.Contains(err.Error(), `call reset_tools with {"docs":true} first`) {
		t.Errorf("a skill of a closed group: %v", err)
	}
	if got := mustDo(t, tk, s, "reset_tools", `{"docs":true}`); !strings.Contains(got, "- pdf: How to fill forms.") {
		t.Errorf("opening answered %s", got)
	}
	now := newView(t, tk, s)
	if now.Prompt() != prompt {
		t.Error("opening a group has changed the prompt")
	}
	if !strings.Contains(now.Reminder(), "- pdf: How to fill forms.") || v.Reminder() != "" {
		t.Errorf("reminder: %q, before %q", now.Reminder(), v.Reminder())
	}
	for input, want := range map[string]string{
		`{"skill":"basics"}`:                     "Begin.",
		`{"skill":"pdf"}`:                        "Join.",
		`{"skill":"pdf","section":"merge"}`:      "Join.",
		`{"skill":"pdf","file":"logo.png"}`:      "image/png",
		`{"skill":"pdf","section":"nothing"}`:    "",
		`{"skill":"pdf","file":"../x/SKILL.md"}`: "",
	} {
		text, err := do(t, tk, s, "Skill", input)
		if !strings.Contains(text, want) || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v", input, text, err)
		}
	}
	if got := mustDo(t, tk, s, "Skill", `{"skill":"pdf","section":"merge"}`); strings.Contains(got, "Fill.") {
		t.Errorf("a section shows more: %q", got)
	}
}

// TestPermission: control tools run in every mode, unless a rule denies them.
func TestPermission(t *testing.T) {
	for _, control := range []*toolkit.Control{toolkit.ResetTools(nil), toolkit.EnableDisable(), toolkit.PerGroup(), toolkit.Discover()} {
		tk := newToolkit(t, toolkit.Config{Control: control, Groups: []toolkit.Group{group("g", "t")}})
		v := newView(t, tk, new(toolkit.Scope))
		for _, i := range v.Tools() {
			tl, _, err := v.Resolve(t.Context(), i.Name, json.RawMessage(`{"name":"t"}`))
			if err != nil || i.Name == "call_tool" {
				continue
			}
			for _, mode := range []permission.Mode{permission.ModeDefault, permission.ModeAcceptEdits, permission.ModeExplore, permission.ModeBypass, permission.ModeDontAsk} {
				call := tool.PermissionCall(tl, json.RawMessage(`{}`))
				if d := permission.Decide(&permission.Policy{Mode: mode}, call); d.Behavior != permission.Allow {
					t.Errorf("%s in mode %s: %+v", i.Name, mode, d)
				}
				rules := []permission.Rule{{Tool: i.Name, Behavior: permission.Deny}}
				if d := permission.Decide(&permission.Policy{Mode: mode, Rules: rules}, call); d.Behavior != permission.Deny {
					t.Errorf("%s denied in mode %s: %+v", i.Name, mode, d)
				}
			}
		}
	}
}
