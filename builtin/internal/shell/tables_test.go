package shell

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// lines reads a list of commands, one per line; ⏎, ␍ and ␁ stand for a newline, a carriage return and a control
// character.
func lines(t testing.TB, name string) []string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			list = append(list, strings.NewReplacer("⏎", "\n", "␁", "\x01", "␍", "\r").Replace(line))
		}
	}
	return list
}

// TestEveryday checks everyday commands of developers that change nothing.
func TestEveryday(t *testing.T) {
	for _, cmd := range lines(t, "everyday.txt") {
		a := Analyze(cmd, here)
		if a.ReadOnly() != "" || safety(a) {
			t.Errorf("%q asks: %s %v", cmd, a.ReadOnly(), a.Dangers(here, pathrule.Protected{}))
		}
	}
}

// TestHarmful checks commands with an effect, from the manuals of the commands in the tables.
func TestHarmful(t *testing.T) {
	for _, cmd := range lines(t, "harmful.txt") {
		if a := Analyze(cmd, here); a.ReadOnly() == "" {
			t.Errorf("%q is read-only: %+v", cmd, a.Commands())
		}
	}
}

// TestAsked checks commands from the manuals of many programs that are not proved harmless: most have an
// effect, the others in some version or configuration of their program.
func TestAsked(t *testing.T) {
	for _, cmd := range lines(t, "asked.txt") {
		if a := Analyze(cmd, here); a.ReadOnly() == "" && !safety(a) {
			t.Errorf("%q is allowed: %+v", cmd, a.Commands())
		}
	}
}

// TestLookalikes checks commands that resemble some of everyday.txt and may do more.
func TestLookalikes(t *testing.T) {
	for _, cmd := range lines(t, "lookalikes.txt") {
		if a := Analyze(cmd, here); !asks(a, here) {
			t.Errorf("%q is allowed: %+v", cmd, a.Commands())
		}
	}
}

// TestHarmfulAnywhere checks that a line with a harmful part is harmful, whatever precedes the part and
// whatever joins them.
func TestHarmfulAnywhere(t *testing.T) {
	everyday, harmful := lines(t, "everyday.txt"), lines(t, "harmful.txt")
	frames := []string{"A; B", "A && B", "A || B", "A | B", "A\nB", "A & B", "B; A", "{ A\nB\n}", "(A\nB\n)", "if A\nthen B\nfi", "! B", "time B",
		"for zz in 1; do B\ndone", "while A\ndo B\ndone", "case x in *) B\n;; esac", "echo $(B\n)", "echo \"$(B\n)\"", "cat <(B\n)", "A |& B", "[[ -n $(B\n) ]]"}
	for i, b := range harmful {
		a := everyday[i*7%len(everyday)]
		for _, frame := range frames {
			cmd := strings.NewReplacer("A", a, "B", b).Replace(frame)
			if got := Analyze(cmd, here); got.ReadOnly() == "" {
				t.Errorf("%q is read-only", cmd)
			}
		}
	}
}

// TestTables checks that every line of the tables can be found by a name, and has a meaning.
func TestTables(t *testing.T) {
	if n := len(specs()); n < 800 {
		t.Errorf("only %d names in the tables", n)
	}
	for name, list := range specs() {
		for _, s := range list {
			for option := range s.options {
				if !strings.HasPrefix(option, "-") || strings.Contains(option, "=") {
					t.Errorf("%s: option %q", name, option)
				}
			}
			for _, need := range s.need {
				if _, ok := s.options[need]; !ok && !s.any {
					t.Errorf("%s: requires %s, which is not one of its options", name, need)
				}
			}
		}
	}
}

// TestAlarming checks commands that need approval regardless of the rules.
func TestAlarming(t *testing.T) {
	for _, cmd := range lines(t, "alarming.txt") {
		if a := Analyze(cmd, here); !safety(a) {
			t.Errorf("%q raises no alarm: %q", cmd, a.ReadOnly())
		}
	}
}

// TestNotAlarming checks commands that need a rule or approval, but raise no alarm.
func TestNotAlarming(t *testing.T) {
	for _, cmd := range lines(t, "ordinary.txt") {
		a := Analyze(cmd, here)
		if dangers := a.Dangers(here, pathrule.Protected{}); len(dangers) > 0 || a.ReadOnly() == "" {
			t.Errorf("%q: %v %q", cmd, dangers, a.ReadOnly())
		}
	}
}

// rows reads a file of JSON Lines.
func rows[T any](t *testing.T, name string) []T {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var list []T
	for line := range strings.Lines(string(raw)) {
		var row T
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %s: %v", name, line, err)
		}
		list = append(list, row)
	}
	return list
}

// TestRuleRows checks that deny rules match their command in every spelling and inside every wrapper, and that
// allow rules cover no more than they say. A command that an allow rule covers anyway raises an alarm.
func TestRuleRows(t *testing.T) {
	type row struct {
		Behavior, Pattern, Command string
		Match                      bool
	}
	for _, c := range rows[row](t, "rules.jsonl") {
		a := Analyze(c.Command, here)
		got, err := a.Mentions(c.Pattern)
		if c.Behavior == "allow" {
			got, err = a.CoveredBy(c.Pattern)
			got = got && !safety(a)
		}
		if got != c.Match || err != nil {
			t.Errorf("%s %s: %q: %v, %v", c.Behavior, c.Pattern, c.Command, got, err)
		}
	}
}

// TestEditRows checks that accept-edits only allows edits in the working directory.
func TestEditRows(t *testing.T) {
	type row struct {
		Command string
		Allowed bool
	}
	for _, c := range rows[row](t, "edits.jsonl") {
		a := Analyze(c.Command, here)
		if got := a.EditsInside(here) && !safety(a); got != c.Allowed {
			t.Errorf("%q: allowed %v: %v", c.Command, got, a.Dangers(here, pathrule.Protected{}))
		}
	}
}

// TestLoopsOverWords checks that a word of a dangerous command may come from a loop over literal words.
func TestLoopsOverWords(t *testing.T) {
	tried := 0
	for _, file := range []string{"alarming.txt", "harmful.txt"} {
		for _, cmd := range lines(t, file) {
			words := strings.Split(cmd, " ")
			keyword := words[0] == "time" || words[0] == "coproc" // these cannot come from the value of a variable
			if strings.ContainsAny(cmd, "\n\t'\"\\`$;&|<>(){}#~*?![=") || len(words) < 2 || keyword {
				continue
			}
			for i, word := range words {
				body := slices.Clone(words)
				body[i] = `"$zz"`
				loop := "for zz in word " + word + "; do " + strings.Join(body, " ") + "; done"
				tried++
				a := Analyze(loop, here)
				if file == "alarming.txt" && !safety(a) || !asks(a, here) {
					t.Errorf("%q raises no alarm: %q", loop, a.ReadOnly())
				}
			}
		}
	}
	if tried < 1000 {
		t.Errorf("only %d loops", tried)
	}
}
