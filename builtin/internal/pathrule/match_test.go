package pathrule

import (
	"os"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestMatchTreeOfCoveredPaths checks that MatchTree is true for a covered path and for every directory above it.
func TestMatchTreeOfCoveredPaths(t *testing.T) {
	at := Place{Cwd: "/a", Home: "/h", Dirs: []string{"/a"}, Readlink: func(name string) (string, error) {
		if name == "/a/b" {
			return "/h/b", nil
		}
		return "", os.ErrInvalid
	}}
	covered := 0
	rapid.Check(t, func(t *rapid.T) {
		seg := rapid.SampledFrom([]string{"a", "b", "*", "**", "?", "[ab]", `\a`, `\[`, `a\`, "..", ".", "{a,b}", `\*`, "~", ""})
		pattern := strings.Join(rapid.SliceOfN(seg, 1, 5).Draw(t, "pattern"), "/")
		name := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "[", `a\`, "..", "~"}), 1, 5).Draw(t, "name"), "/")
		ok, err := at.MatchAny(pattern, name)
		if err != nil || !ok || at.Abs(name) == "" {
			return
		}
		covered++
		for _, dir := range []string{at.Abs(name), at.Real(name)} {
			if globs, err := at.Globs(pattern); err != nil || !CoveredBy(globs, dir) {
				continue // a pattern for the link need not cover its target
			}
			for ; ; dir = path.Dir(dir) {
				if ok, err := at.MatchTree(pattern, dir); err != nil || !ok {
					t.Fatalf("%q covers %q, and a search of %s does not reach it: %v", pattern, name, dir, err)
				}
				if dir == "/" {
					break
				}
			}
		}
	})
	if covered == 0 {
		t.Error("no pattern covered a name")
	}
}

// TestSuggestTakesNamesAsTheyAre checks that the suggestion for a directory covers its content, and nothing in
// another directory.
func TestSuggestTakesNamesAsTheyAre(t *testing.T) {
	at := Place{Cwd: "/w", Dirs: []string{"/w"}, Readlink: noLinks}
	for _, c := range special {
		dir := "/srv/a" + string(c) + "b"
		pattern := at.SuggestTree(dir)
		if ok, err := at.Match(pattern, dir+"/f"); !ok || err != nil {
			t.Errorf("%s for %s does not cover it: %v", pattern, dir, err)
		}
		for _, other := range []string{"/srv/axb/f", "/srv/ab/f", "/srv/a/b/f", `/srv/a\` + string(c) + "b/f"} {
			if ok, err := at.Match(pattern, other); ok || err != nil {
				t.Errorf("%s for %s covers %s: %v", pattern, dir, other, err)
			}
		}
	}
}

func TestLimitsOfPaths(t *testing.T) {
	at := Place{Cwd: "/w", Home: "/h", Readlink: noLinks}
	longest := "/" + strings.Repeat("a", maxPath-1)
	if at.Abs(longest) != longest || at.Real(longest) != longest {
		t.Errorf("a path of %d bytes is not resolved", len(longest))
	}
	if at.Abs(longest+"a") != "" || at.Real(longest+"a") != "" {
		t.Errorf("a path of %d bytes is resolved", len(longest)+1)
	}
	// Links from /l to /ll to /lll and so on, up to the limit; one more cannot be resolved,
	// nor can a cycle.
	last := "/" + strings.Repeat("l", maxLinks+1)
	at.Readlink = func(name string) (string, error) {
		if strings.Trim(name, "l") == "/" && name != last {
			return name + "l", nil
		}
		return "", os.ErrInvalid
	}
	if got := at.Real("/l"); got != last {
		t.Errorf("%d links lead to %q", maxLinks, got)
	}
	last += "l"
	if got := at.Real("/l"); got != "" {
		t.Errorf("%d links lead to %q", maxLinks+1, got)
	}
}

// TestRealLooksUpOnce checks that nothing is looked up below a missing directory, until a ".." leaves it.
func TestRealLooksUpOnce(t *testing.T) {
	for name, want := range map[string]string{
		"/w/new/a/b":          "/w /w/new",
		"/w/new/a/../b":       "/w /w/new",
		"/w/new/a/../../b":    "/w /w/new /w/b",
		"/w/new/a/../../../w": "/w /w/new /w",
		"/new/../../w":        "/new /w",
	} {
		var looked []string
		at := Place{Readlink: func(name string) (string, error) {
			looked = append(looked, name)
			if name == "/w" {
				return "", os.ErrInvalid
			}
			return "", os.ErrNotExist
		}}
		if got := at.Real(name); got != path.Clean(name) {
			t.Errorf("Real(%q) = %q", name, got)
		}
		if got := strings.Join(looked, " "); got != want {
			t.Errorf("Real(%q) looks for %s, want %s", name, got, want)
		}
	}
}

// TestSuggestCoversNothingElse checks that the suggestion for a name covers it, and nothing outside its
// directory, even if the name looks like the home directory.
func TestSuggestCoversNothingElse(t *testing.T) {
	at := Place{Cwd: "/work/~", Home: "/home/u", Dirs: []string{"/work"}, Readlink: noLinks}
	probes := []string{"/f", "/home/f", "/home/u/f", "/home/u/~/f", "/home/u/a/f", "/work/f", "/work/~/f", "/work/~/~/f", "/work/~/a/f", "/work/~/~a/f", "/work/a/f"}
	check := func(t interface{ Errorf(string, ...any) }, name string) {
		pattern, dir := at.Suggest(name), path.Dir(at.Abs(name))
		if ok, err := at.Match(pattern, name); !ok || err != nil {
			t.Errorf("Suggest(%q) = %q does not cover it: %v", name, pattern, err)
		}
		for _, other := range probes {
			if ok, _ := at.Match(pattern, other); ok && !Below(other, dir) {
				t.Errorf("Suggest(%q) = %q covers %s", name, pattern, other)
			}
		}
	}
	for _, name := range []string{"./~/x", "a/../~/x", "~/../x", "~/x", "~", "~/", "~/..", "~/../..", "x", "a/x", "~a/x", "./~a/x", "/work/~/x", "/~/x", "../a/x", "../~/x"} {
		check(t, name)
	}
	if t.Failed() {
		return
	}
	rapid.Check(t, func(t *rapid.T) {
		seg := rapid.SampledFrom([]string{"~", "~", "..", ".", "a", "", "u", "home", "work"})
		name := strings.Join(rapid.SliceOfN(seg, 1, 5).Draw(t, "name"), "/")
		if name != "" {
			check(t, name)
		}
	})
	if got := (Place{Dirs: []string{"/work"}}).Suggest("a/x"); got != "" {
		t.Errorf("%q is suggested although the current directory is unknown", got)
	}
	for _, unknown := range []Place{{Cwd: "/work"}, {Cwd: "/work", Home: "home"}} {
		for _, name := range []string{"~", "~/..", "~/../a"} {
			if got := unknown.Suggest(name); got != "" {
				t.Errorf("Suggest(%q) = %q although the home directory is unknown", name, got)
			}
		}
	}
}
