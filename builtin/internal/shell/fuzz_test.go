package shell

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// FuzzAnalyze checks that, however a command is cut, the analysis ends and is deterministic, and that a command
// joined with a harmful command is harmful.
func FuzzAnalyze(f *testing.F) {
	for _, name := range []string{"everyday.txt", "harmful.txt"} {
		for _, cmd := range lines(f, name) {
			f.Add(cmd)
		}
	}
	f.Fuzz(func(t *testing.T, src string) {
		a, b := Analyze(src, here), Analyze(src, here)
		guard := pathrule.Protected{}
		if a.ReadOnly() != b.ReadOnly() || len(a.Dangers(here, guard)) != len(b.Dangers(here, guard)) {
			t.Fatalf("%q has two different results", src)
		}
		if a.ReadOnly() == "" {
			if a.EditsInside(here) {
				t.Errorf("%q is read-only and an edit", src)
			}
			for _, c := range a.Commands() {
				if c.Reason != "" {
					t.Errorf("%q is read-only, but %v is not: %s", src, c.Argv, c.Reason)
				}
			}
		}
		for _, rule := range a.Suggest() {
			if ok, err := a.CoveredBy(rule, a.Suggest()...); !ok || err != nil {
				t.Errorf("%q: the suggestion %q does not cover it: %v", src, rule, err)
			}
		}
		if a.Err() != nil || strings.ContainsAny(src, "#\\") {
			return // the following text may be a comment, or continue a word
		}
		for _, sep := range []string{"\n", "\n| ", "; ", " && "} {
			if joined := Analyze(src+sep+"rm x", here); joined.ReadOnly() == "" && !strings.Contains(src, "<<") {
				t.Errorf("%q is read-only", src+sep+"rm x")
			}
		}
	})
}

// TestVerdictsKeep checks that the kept parts of a walk do not change when other walks reuse its memory, even
// concurrently.
func TestVerdictsKeep(t *testing.T) {
	list := append(lines(t, "everyday.txt"), lines(t, "harmful.txt")...)
	first := make([]*Analysis, len(list))
	told := make([]string, len(list))
	tell := func(a *Analysis) string {
		return fmt.Sprint(a.ReadOnly(), a.Commands(), a.Dangers(here, pathrule.Protected{}), a.Suggest())
	}
	for i, cmd := range list {
		first[i] = Analyze(cmd, here)
		told[i] = tell(first[i])
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, cmd := range list {
				if got := tell(Analyze(cmd, here)); got != told[i] {
					t.Errorf("%q: first %s, then %s", cmd, told[i], got)
				}
			}
		})
	}
	wg.Wait()
	for i, a := range first {
		if got := tell(a); got != told[i] {
			t.Errorf("%q: %s became %s", list[i], told[i], got)
		}
	}
}

// TestEnviron checks that Environ removes variables that make programs run something else.
func TestEnviron(t *testing.T) {
	got := strings.Join(Environ([]string{"PATH=/bin", "LD_PRELOAD=x", "BASH_ENV=x", "BASH_FUNC_ls%%=() { rm x; }", "PAGER=less", "GIT_CONFIG_COUNT=7", "HOME=/h"}), " ")
	for _, not := range []string{"LD_PRELOAD", "BASH_ENV", "BASH_FUNC", "PAGER=less", "GIT_CONFIG_COUNT=7"} {
		if strings.Contains(got, not) {
			t.Errorf("%s is still in %s", not, got)
		}
	}
	for _, want := range []string{"PATH=/bin", "HOME=/h", "PAGER=cat", "GIT_PAGER=cat", "GIT_OPTIONAL_LOCKS=0", "GIT_CONFIG_VALUE_0=explicit"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}
