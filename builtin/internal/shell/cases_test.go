package shell

import (
	"os"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/internal/casetest"
)

// here is the place of the cases.
var here = pathrule.Place{Cwd: "/tmp/project", Home: "/home/u", Dirs: []string{"/tmp/project"},
	Readlink: func(string) (string, error) { return "", os.ErrNotExist }}

type commandCase struct {
	ID, Command, Category, Expect, Reason string
	Tier                                  int
}

// safety reports whether the command needs approval regardless of the rules.
func safety(a *Analysis) bool { return len(a.Dangers(here, pathrule.Protected{})) > 0 }

func TestAdversarial(t *testing.T) {
	for _, c := range casetest.Rows[commandCase](t, "bash_adversarial.jsonl") {
		a := Analyze(c.Command, here)
		allowed := a.ReadOnly() == "" && !safety(a)
		switch {
		case c.Expect == "readonly_allow":
			if !allowed && c.Tier == 1 {
				t.Errorf("%s %q (%s): asks: %s %v", c.ID, c.Command, c.Category, a.ReadOnly(), a.Dangers(here, pathrule.Protected{}))
			} else if !allowed {
				t.Logf("tier 2 %s %q asks: %s", c.ID, c.Command, a.ReadOnly())
			}
		case allowed:
			t.Errorf("%s %q (%s, tier %d): allowed: %s", c.ID, c.Command, c.Category, c.Tier, c.Reason)
		case c.Expect == "must_ask_immune" && !safety(a):
			t.Errorf("%s %q (%s, tier %d): no safety ask: %s", c.ID, c.Command, c.Category, c.Tier, c.Reason)
		}
	}
}

func TestBenign(t *testing.T) {
	var all, allowed [3]int
	for _, c := range casetest.Rows[commandCase](t, "bash_benign.jsonl") {
		a := Analyze(c.Command, here)
		all[c.Tier]++
		if a.ReadOnly() == "" && !safety(a) {
			allowed[c.Tier]++
			continue
		}
		t.Logf("tier %d %q asks: %s %v", c.Tier, c.Command, a.ReadOnly(), a.Dangers(here, pathrule.Protected{}))
	}
	if allowed[1]*100 < all[1]*98 || allowed[2]*100 < all[2]*70 {
		t.Errorf("allowed %d of %d in tier 1, want 98 %%; %d of %d in tier 2, want 70 %%", allowed[1], all[1], allowed[2], all[2])
	}
}
