package permission_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// found is the judgement of the tool in these tests.
func found() permission.Judgement {
	return permission.Judgement{Text: "ls", Profile: permission.ProfileRead, Network: true,
		Files:  []permission.File{{Path: "/w/a", Device: 1, Inode: 2}, {Path: "/w/b", Device: 1, Inode: 3, New: true}},
		Except: []string{"/w/secret/**"}, Keep: []string{"/w/lock"}}
}

func judgedCall() *permission.Call {
	return &permission.Call{Tool: "Bash", Input: json.RawMessage(`{"command":"ls"}`),
		Checker: permission.Says(permission.Verdict{Behavior: permission.Allow, Found: found()})}
}

// TestJudgementCovers: a judgement covers only the call for which it was made.
func TestJudgementCovers(t *testing.T) {
	c := judgedCall()
	j := permission.Decide(&permission.Policy{}, c).Judgement
	if !j.Covers(c.Tool, c.Input) {
		t.Fatal("the judgement does not cover its own call")
	}
	for _, other := range []struct{ tool, input string }{
		{"Bash", `{"command":"rm"}`}, {"Bash", `{"command":"ls"} `}, {"Bash", ""}, {"bash", `{"command":"ls"}`},
		{"", `{"command":"ls"}`}, {"Bash{", `"command":"ls"}`},
	} {
		if j.Covers(other.tool, []byte(other.input)) {
			t.Errorf("it covers %s %s", other.tool, other.input)
		}
	}
	for name, change := range map[string]func(*permission.Judgement){
		"text":       func(j *permission.Judgement) { j.Text = "rm" },
		"profile":    func(j *permission.Judgement) { j.Profile = permission.ProfileOpen },
		"network":    func(j *permission.Judgement) { j.Network = false },
		"path":       func(j *permission.Judgement) { j.Files[0].Path = "/etc/passwd" },
		"device":     func(j *permission.Judgement) { j.Files[0].Device++ },
		"inode":      func(j *permission.Judgement) { j.Files[0].Inode++ },
		"new":        func(j *permission.Judgement) { j.Files[1].New = false },
		"less files": func(j *permission.Judgement) { j.Files = j.Files[:1] },
		"less left":  func(j *permission.Judgement) { j.Except = nil },
		"other left": func(j *permission.Judgement) { j.Except[0] = "/w/other/**" },
		"less kept":  func(j *permission.Judgement) { j.Keep = nil },
		"swapped":    func(j *permission.Judgement) { j.Except, j.Keep = j.Keep, j.Except },
		"moved":      func(j *permission.Judgement) { j.Files[0].Path, j.Text = "", "ls/w/a" },
		"joined":     func(j *permission.Judgement) { j.Text, j.Profile = "lsread", "" },
	} {
		cp := permission.Decide(&permission.Policy{}, judgedCall()).Judgement
		if change(&cp); cp.Covers(c.Tool, c.Input) {
			t.Errorf("changed %s: it still covers the call", name)
		}
	}
	if (*permission.Judgement)(nil).Covers("", nil) || (&permission.Judgement{}).Covers("", nil) {
		t.Error("the zero judgement covers a call")
	}
}

// TestJudgementJSON: a judgement from a file can be compared, but covers no call.
func TestJudgementJSON(t *testing.T) {
	c := judgedCall()
	d := permission.Decide(&permission.Policy{}, c)
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"behavior":"allow","reason":"","judgement":{"text":"ls","profile":"read","network":true,` +
		`"files":[{"path":"/w/a","device":1,"inode":2},{"path":"/w/b","device":1,"inode":3,"new":true}],"except":["/w/secret/**"],"keep":["/w/lock"]}}`
	if string(raw) != want {
		t.Errorf("%s\nwant %s", raw, want)
	}
	var back permission.Decision
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if !back.Judgement.Same(&d.Judgement) {
		t.Error("the decoded judgement differs")
	}
	if back.Judgement.Covers(c.Tool, c.Input) {
		t.Error("a judgement from a file covers a call")
	}
	raw, err = json.Marshal(permission.Decide(&permission.Policy{}, &permission.Call{Tool: "add", Control: true}))
	if err != nil || string(raw) != `{"behavior":"allow","reason":"control tool"}` {
		t.Errorf("a call of a tool without an opinion: %s, %v", raw, err)
	}
}

// TestEveryDecisionIsJudged: every decision except a denial has a judgement of its call.
func TestEveryDecisionIsJudged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &permission.Policy{
			Mode: rapid.SampledFrom([]permission.Mode{"", permission.ModeAcceptEdits, permission.ModeExplore, permission.ModeBypass,
				permission.ModeDontAsk, "nonsense"}).Draw(t, "mode"),
			TrustReadOnly: rapid.Bool().Draw(t, "trust"),
		}
		for _, b := range rapid.SliceOfN(rapid.SampledFrom([]permission.Behavior{"allow", "ask", "deny"}), 0, 2).Draw(t, "rules") {
			p.Rules = append(p.Rules, permission.Rule{Tool: rapid.SampledFrom([]string{"T", "U"}).Draw(t, "tool"), Behavior: b})
		}
		v := permission.Verdict{Behavior: rapid.SampledFrom([]permission.Behavior{"", "allow", "ask", "deny"}).Draw(t, "own"),
			Safety: rapid.Bool().Draw(t, "safety"), Found: permission.Judgement{Text: "x"}}
		c := &permission.Call{Tool: "T", Input: json.RawMessage(`{}`), ReadOnly: rapid.Bool().Draw(t, "read-only"),
			Control: rapid.Bool().Draw(t, "control"), Checker: permission.Says(v)}
		d := permission.Decide(p, c)
		if got := d.Judgement.Covers("T", c.Input); got != (d.Behavior != permission.Deny) {
			t.Fatalf("%s: judged %v", d.Behavior, got)
		}
		if d.Behavior != permission.Deny && d.Judgement.Text != "x" {
			t.Fatalf("%s: the tool's findings are lost: %+v", d.Behavior, d.Judgement)
		}
	})
}

func TestJudge(t *testing.T) {
	c := judgedCall()
	j := permission.Judge(&permission.Policy{}, c)
	if w := found(); !j.Same(&w) || !j.Covers(c.Tool, c.Input) {
		t.Errorf("%+v", j)
	}
	c.Checker = nil
	if j := permission.Judge(&permission.Policy{}, c); !j.IsZero() || !j.Covers(c.Tool, c.Input) {
		t.Errorf("without a check: %+v", j)
	}
}

func TestSame(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*permission.Judgement)
		same   bool
	}{
		"nothing":  {func(*permission.Judgement) {}, true},
		"text":     {func(j *permission.Judgement) { j.Text = "rm" }, false},
		"profile":  {func(j *permission.Judgement) { j.Profile = permission.ProfileWork }, false},
		"network":  {func(j *permission.Judgement) { j.Network = false }, false},
		"path":     {func(j *permission.Judgement) { j.Files[1].Path = "/x" }, false},
		"a file":   {func(j *permission.Judgement) { j.Files = j.Files[:1] }, false},
		"left out": {func(j *permission.Judgement) { j.Except = nil }, false},
		"kept":     {func(j *permission.Judgement) { j.Keep = nil }, false},
		"replaced": {func(j *permission.Judgement) { j.Files[0].Inode = 9 }, true},
	} {
		a, b := found(), found()
		if row.change(&b); a.Same(&b) != row.same || b.Same(&a) != row.same {
			t.Errorf("%s: same %v, want %v", name, !row.same, row.same)
		}
	}
}

func TestIsZero(t *testing.T) {
	for _, j := range []permission.Judgement{{Text: "x"}, {Profile: "read"}, {Network: true}, {Files: make([]permission.File, 1)}, {Except: []string{""}}, {Keep: []string{""}}} {
		if j.IsZero() {
			t.Errorf("%+v is zero", j)
		}
	}
	if !(&permission.Judgement{}).IsZero() {
		t.Error("the zero judgement is not")
	}
}

func TestDiffers(t *testing.T) {
	j := permission.Judgement{Text: "ls"}
	for input, want := range map[string]string{
		`{"command":"ls"}`: "", `{"command":"ls ","timeout":3}`: "ls", `{"command":"\u006cs"}`: "", `{}`: "ls", `["ls"]`: "ls", `{"a":{"b":"ls"}}`: "ls", ``: "ls",
	} {
		if got := j.Differs(json.RawMessage(input)); got != want {
			t.Errorf("%s: %q, want %q", input, got, want)
		}
	}
	if (*permission.Judgement)(nil).Differs(nil) != "" {
		t.Error("no judgement differs")
	}
}

func TestStricter(t *testing.T) {
	c := judgedCall()
	decide := func(b permission.Behavior, safety bool, except ...string) permission.Decision {
		return permission.Decide(&permission.Policy{}, &permission.Call{Tool: c.Tool, Input: c.Input,
			Checker: permission.Says(permission.Verdict{Behavior: b, Safety: safety, Found: permission.Judgement{Text: fmt.Sprint(b, safety), Except: except}})})
	}
	order := []permission.Decision{decide("allow", false, "a", "b"), decide("ask", false, "b", "c"), decide("ask", true, "d"), decide("deny", false)}
	for i, a := range order {
		for k, b := range order {
			d := permission.Stricter(c, a, b)
			want := order[max(i, k)]
			if d.Behavior != want.Behavior || d.Safety != want.Safety || d.Judgement.Text != want.Judgement.Text {
				t.Errorf("of %d and %d: %+v", i, k, d)
			}
			if d.Behavior == permission.Deny {
				continue
			}
			if !d.Judgement.Covers(c.Tool, c.Input) {
				t.Errorf("of %d and %d: not about the call", i, k)
			}
			for _, e := range slices.Concat(a.Judgement.Except, b.Judgement.Except) {
				if !slices.Contains(d.Judgement.Except, e) {
					t.Errorf("of %d and %d: %s is not left out", i, k, e)
				}
			}
			if slices.Sort(d.Judgement.Except); len(slices.Compact(d.Judgement.Except)) != len(d.Judgement.Except) {
				t.Errorf("of %d and %d: twice: %q", i, k, d.Judgement.Except)
			}
		}
	}
	for _, b := range []permission.Behavior{"allow", "ask"} {
		first, second := decide(b, false, "x"), decide(b, false, "y")
		first.Reason, second.Reason = "first", "second"
		if d := permission.Stricter(c, first, second); d.Reason != "first" {
			t.Errorf("of two that %s: the %s", b, d.Reason)
		}
	}
	if !slices.Equal(order[0].Judgement.Except, []string{"a", "b"}) {
		t.Error("a decision was changed")
	}
}

// TestBorrowedRules: deny and ask rules of another tool apply to a call that borrows them with a pattern.
func TestBorrowedRules(t *testing.T) {
	for _, r := range []struct {
		rule string
		b    permission.Behavior
		want permission.Behavior
		got  string // the rule that Match was given
	}{
		{"Read(secret)", permission.Deny, permission.Deny, "Read(secret)"},
		{"Read(secret)", permission.Ask, permission.Ask, "Read(secret)"},
		{"Read(secret)", "typo", permission.Deny, "Read(secret)"},
		{"R*(secret)", permission.Deny, permission.Deny, "Read(secret)"},
		{"Read(bad)", permission.Deny, permission.Deny, "Read(bad)"},
		{"Read(other)", permission.Deny, permission.Allow, "Read(other)"},
		{"Read(secret)", permission.Allow, permission.Allow, ""},
		{"Read", permission.Deny, permission.Allow, ""},
		{"Write(secret)", permission.Deny, permission.Allow, ""},
		{"*(secret)", permission.Deny, permission.Deny, "Read(secret)"},
	} {
		rule, err := permission.ParseRule(r.rule, permission.Deny)
		if err != nil {
			t.Fatal(err)
		}
		rule.Behavior = r.b
		last := ""
		d := permission.Decide(&permission.Policy{Rules: []permission.Rule{rule}}, &permission.Call{Tool: "Grep", Borrows: []string{"Read"},
			Checker: permission.Checks{OnCheck: func(*permission.Policy) permission.Verdict { return permission.Verdict{Behavior: permission.Allow} }, OnMatch: func(_ *permission.Policy, r permission.Rule) (bool, error) {
				last = r.String()
				if r.Pattern == "bad" {
					return false, errors.New("bad")
				}
				return r.Tool == "Read" && r.Pattern == "secret", nil
			}}})
		if d.Behavior != r.want || last != r.got {
			t.Errorf("%s %s: %s, matched %q; want %s, %q", r.b, r.rule, d.Behavior, last, r.want, r.got)
		}
		if d.Rule != nil && d.Rule.Tool != rule.Tool {
			t.Errorf("%s: decided by %s", r.rule, d.Rule)
		}
	}
}
