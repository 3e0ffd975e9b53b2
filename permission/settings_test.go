package permission

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

const settingsFile = `{
  "model": "m",
  "permissions": {
    "defaultMode": "acceptEdits",
    "allow": ["Bash(git commit:*)", "mcp__github__*"],
    "ask": ["Bash(git push && ls <a>)"],
    "deny": ["Read(./secret/**)"],
    "additionalDirectories": ["/srv/data"],
    "later": {"x": 1}
  }
}`

func TestSettingsRoundTrip(t *testing.T) {
	s, err := ParseSettings("a.json", []byte(settingsFile))
	if err != nil {
		t.Fatal(err)
	}
	want := Policy{Mode: ModeAcceptEdits, Dirs: []string{"/srv/data"}, Rules: []Rule{
		{Tool: "Bash", Pattern: "git commit:*", Behavior: Allow, Source: "a.json"},
		{Tool: "mcp__github__*", Behavior: Allow, Source: "a.json"},
		{Tool: "Bash", Pattern: "git push && ls <a>", Behavior: Ask, Source: "a.json"},
		{Tool: "Read", Pattern: "./secret/**", Behavior: Deny, Source: "a.json"},
	}}
	if !reflect.DeepEqual(s.Policy, want) {
		t.Errorf("policy %+v, want %+v", s.Policy, want)
	}
	if got := s.Unknown(); !reflect.DeepEqual(got, []string{"permissions.later"}) {
		t.Errorf("unknown members %q", got)
	}
	out, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{`"model": "m"`, `"x": 1`, `"mode": "accept-edits"`, `"Bash(git push && ls <a>)"`} {
		if !strings.Contains(string(out), kept) {
			t.Errorf("%s is lost in %s", kept, out)
		}
	}
	back, err := ParseSettings("a.json", out)
	if err != nil || !reflect.DeepEqual(back.Policy, want) {
		t.Errorf("read back %+v, %v", back.Policy, err)
	}
}

// TestSettingsKeepUnknownBehavior: a rule with an unknown behavior denies, also after its settings were written.
func TestSettingsKeepUnknownBehavior(t *testing.T) {
	out, err := (&Settings{Policy: Policy{Rules: []Rule{{Tool: "Bash", Behavior: "dney"}}}}).JSON()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseSettings("a.json", out)
	if err != nil {
		t.Fatal(err)
	}
	if d := Decide(&back.Policy, &Call{Tool: "Bash"}); d.Behavior != Deny {
		t.Errorf("%s after %s", d.Behavior, out)
	}
}

// TestSettingsOfNothing: empty settings have only the three lists of rules, as a template.
func TestSettingsOfNothing(t *testing.T) {
	out, err := (&Settings{}).JSON()
	const want = `{"permissions":{"allow":[],"ask":[],"deny":[]}}`
	if got := strings.Join(strings.Fields(string(out)), ""); got != want || err != nil {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestSettingsErrors(t *testing.T) {
	for data, wants := range map[string][]string{
		`[]`:                                {"f.json", "not a JSON object"},
		`{"permissions":3}`:                 {"f.json", "permissions"},
		`{"Permissions":{"deny":["Bash"]}}`: {"f.json", `"Permissions"`, `write "permissions"`},
		"{\"permissions\":{\"deny\":[\"Read(caf\xe9/**)\"]}}":                  {"f.json", "line 1", "UTF-8"},
		`{"permissions":{"deny":["Read\u00a0(x)"]}}`:                           {"permissions.deny[0]", "is not a tool name"},
		`{"permissions":{"deny":["Re\u200bad"]}}`:                              {"permissions.deny[0]", "is not a tool name"},
		`{"permissions":{"mode":"fast"}}`:                                      {"permissions.mode", `"fast"`, "accept-edits"},
		`{"permissions":{"mode":1}}`:                                           {"permissions.mode"},
		`{"permissions":{"allow":"Bash"}}`:                                     {"permissions.allow", "list of strings"},
		`{"permissions":{"deny":["ok","Bash("]}}`:                              {"permissions.deny[1]", `"Bash("`},
		`{"permissions":{"ask":["Bash()","(x)"]}}`:                             {"permissions.ask[0]", "permissions.ask[1]"},
		`{"permissions":{"additionalDirectories":["src"]}}`:                    {"additionalDirectories", `"src"`, "absolute"},
		`{"permissions":{"mode":"explore","defaultMode":"bypassPermissions"}}`: {"permissions.mode", "explore", "defaultMode is bypass", "one"},
		`{"permissions":{"mode":"fast","defaultMode":"plan"}}`:                 {"permissions.mode", `"fast"`},

		// Only one of two members with the same name has an effect; the other may deny.
		"{\"permissions\":{\n\"deny\":[\"Bash\"],\n\"deny\":[]}}": {"f.json", "line 3", "permissions.deny is a duplicate key", "merge"},
		`{"permissions":{"deny":["Bash"],"d\u0065ny":[]}}`:        {"permissions.deny is a duplicate key"},
		`{"permissions":{"deny":["Bash"]},"permissions":{}}`:      {"line 1", " permissions is a duplicate key"},
		`{"permissions":{},"hooks":[{},{"x":{"run":1,"run":2}}]}`: {"hooks[1].x.run is a duplicate key"},
	} {
		_, err := ParseSettings("f.json", []byte(data))
		if err == nil {
			t.Errorf("%s: no error", data)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not say %s", data, err, want)
			}
		}
	}
	if s, err := ParseSettings("f.json", []byte(`{"permissions":{"mode":"explore","defaultMode":"plan"}}`)); err != nil || s.Policy.Mode != ModeExplore {
		t.Errorf("one mode in two spellings: %v", err)
	}
	if _, err := ParseSettings("f.json", []byte(`{"permissions":{"mode":"explore","defaultMode":"fast"}}`)); strings.Contains(err.Error(), "remove one") {
		t.Errorf("a mode that does not exist differs from none: %v", err)
	}
	if s, err := ParseSettings("f.json", nil); err != nil || s.Policy.Mode != "" {
		t.Errorf("an empty file: %+v, %v", s, err)
	}
}

func TestParseMode(t *testing.T) {
	for text, want := range map[string]Mode{
		"": ModeDefault, "default": ModeDefault, "acceptEdits": ModeAcceptEdits, "accept_edits": ModeAcceptEdits, "plan": ModeExplore,
		"explore": ModeExplore, "sandboxed": ModeSandboxed, "bypassPermissions": ModeBypass, "dontAsk": ModeDontAsk, "dont-ask": ModeDontAsk,
	} {
		if got, err := ParseMode(text); err != nil || got != want {
			t.Errorf("ParseMode(%q) = %q, %v", text, got, err)
		}
	}
	if _, err := ParseMode("Default"); err == nil {
		t.Error("a mode in another case is accepted")
	}
}

func TestPolicyAdd(t *testing.T) {
	commit := Rule{Tool: "Bash", Pattern: "git commit:*", Behavior: Allow, Source: "a.json"}
	elsewhere, other, ask, tool := commit, commit, commit, commit
	elsewhere.Source, other.Pattern, ask.Behavior, tool.Tool = "b.json", "git push:*", Ask, "Sh"
	p := &Policy{}
	if err := p.Add(commit, commit, elsewhere, other, ask, tool, other); err != nil {
		t.Fatal(err)
	}
	if want := []Rule{commit, other, ask, tool}; !reflect.DeepEqual(p.Rules, want) {
		t.Errorf("%+v, want %+v", p.Rules, want)
	}
	for _, bad := range []Rule{
		{}, {Tool: "Bash", Pattern: " ", Behavior: Allow}, {Tool: "a(b", Behavior: Allow}, {Tool: "Bash"},
		{Tool: "Bash(rm)", Behavior: Allow}, {Tool: "Bash(a", Pattern: "b)", Behavior: Allow}, {Tool: " Bash", Pattern: "x", Behavior: Allow},
	} {
		q := &Policy{}
		if err := q.Add(commit, bad); err == nil || len(q.Rules) != 0 {
			t.Errorf("%+v was added: %v, %v", bad, q.Rules, err)
		}
	}
}

func TestPolicyCheck(t *testing.T) {
	p := &Policy{Mode: "fast", Dirs: []string{"/srv", "~/src", "sub"}, Rules: []Rule{
		{Tool: "add", Behavior: Allow}, {Tool: "add", Pattern: "1", Behavior: Deny},
		{Tool: "Bash", Pattern: "broken", Behavior: Allow}, {Tool: "Bash", Pattern: "fine", Behavior: Allow},
		{Tool: "later", Pattern: "x", Behavior: Allow}, {Tool: "ad*", Pattern: "2", Behavior: Ask},
		{Tool: "Network", Pattern: "a.example", Behavior: Allow}, {Tool: "Network", Behavior: Ask}, {Tool: "Network", Behavior: Deny},
	}}
	err := p.Check(&Call{Tool: "add"}, &Call{Tool: "Bash", Checker: Checks{OnMatch: func(_ *Policy, r Rule) (bool, error) {
		if r.Pattern == "broken" {
			return false, errors.New("cannot be read")
		}
		return false, nil
	}}})
	text := ""
	if err != nil {
		text = err.Error()
	}
	for _, want := range []string{`"fast"`, `"add(1)" (deny)`, `"Bash(broken)" (allow): cannot be read`, `"ad*(2)" (ask)`, `"sub" is not absolute`,
		`"Network(a.example)" (allow): Network takes no pattern`, `"Network" (ask): Network takes no pattern`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %s", text, want)
		}
	}
	for _, not := range []string{"fine", "later", "srv", "src", `"Network" (deny)`} {
		if strings.Contains(text, not) {
			t.Errorf("%q names %s", text, not)
		}
	}
	for _, m := range []Mode{"", ModeDefault, ModeDontAsk} {
		if err := (&Policy{Mode: m, Dirs: p.Dirs[:2], Rules: p.Rules[:1]}).Check(&Call{Tool: "add"}); err != nil {
			t.Errorf("mode %q: %v", m, err)
		}
	}
}

// TestRuleNames: a star matches any text, also an empty one; the parts between stars match in order, without
// overlap.
func TestRuleNames(t *testing.T) {
	for _, row := range []struct {
		tool, names, not string
	}{
		{"Bash", "Bash", "bash Bas Bashx xBash *"},
		{"*", "Bash *", ""},
		{"mcp__*", "mcp__ mcp__a__b", "mcp_ xmcp__a"},
		{"*__get", "__get a__get a__get__get", "get a__get_ __gets"},
		{"ab*ab", "abab abxab ababab", "ab aba bab xabab"},
		{"a*b*c", "abc axbxc abbc abcbc", "ac acb abcx xabc bc"},
		{"a*bc*cd", "abccd axbcxcd abcbccd", "abcd abc"},
		{"a**b", "ab axb", "a b"},
	} {
		r := Rule{Tool: row.tool}
		for _, name := range strings.Fields(row.names) {
			if !r.Names(name) {
				t.Errorf("%s does not name %s", row.tool, name)
			}
		}
		for _, name := range strings.Fields(row.not) {
			if r.Names(name) {
				t.Errorf("%s names %s", row.tool, name)
			}
		}
	}
}

// TestExplain: Explain has the same decision as Decide, and its last step is the decision.
func TestExplain(t *testing.T) {
	verdicts := []Verdict{{}, {Behavior: Allow, Reason: "r"}, {Behavior: Deny, Reason: "r"}, {Behavior: Ask, Reason: "r"}, {Behavior: Ask, Safety: true, Reason: "r"}}
	n := 0
	for _, mode := range []Mode{"", ModeAcceptEdits, ModeExplore, ModeBypass, ModeDontAsk, "fast"} {
		for _, v := range verdicts {
			for bits := range 32 {
				p := &Policy{Mode: mode, TrustReadOnly: bits&1 != 0}
				for i, b := range []Behavior{Allow, Ask, Deny} {
					if bits&(2<<i) != 0 {
						p.Rules = append(p.Rules, Rule{Tool: "T", Behavior: b})
					}
				}
				c := &Call{Tool: "T", ReadOnly: bits&16 != 0, Checker: Checks{OnCheck: func(*Policy) Verdict { return v },
					OnParts: func(*Policy) []Part { return []Part{{Argv: []string{"x"}}} }}}
				d, e := Decide(p, c), Explain(p, c)
				last := e.Steps[len(e.Steps)-1]
				if !reflect.DeepEqual(d, e.Decision) || last.Answer != d.Behavior || last.Reason != d.Reason || len(e.Parts) != 1 {
					t.Fatalf("%q %+v %d: %+v, %+v", mode, v, bits, d, e)
				}
				if d.Behavior == BehaviorNone || d.Reason == "" || d.Safety && d.Suggest != nil {
					t.Fatalf("%q %+v %d: %+v", mode, v, bits, d)
				}
				n++
			}
		}
	}
	if n == 0 {
		t.Fatal("nothing was compared")
	}
}

// FuzzParseRule: matching does not panic for any rule and name of a tool, and a rule
// is written as it was read.
func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"Bash", "Bash(git commit:*)", "mcp__github__*", "a*b*c(d)", "(", "x()", "Edit(src/(a)/**)"} {
		f.Add(s, "mcp__github__get")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		r, err := ParseRule(text, Deny)
		if err != nil {
			return
		}
		if r.Tool == "" || r.String() != strings.TrimSpace(text) && r.Pattern != "" {
			t.Errorf("%q reads as %+v", text, r)
		}
		if again, err := ParseRule(r.String(), Deny); err != nil || again != r {
			t.Errorf("%q reads back as %+v, %v", text, again, err)
		}
		if r.Tool == "*" && !r.Names(name) || r.Tool == name && !strings.Contains(name, "*") && !r.Names(name) {
			t.Errorf("%q does not name %q", text, name)
		}
	})
}
