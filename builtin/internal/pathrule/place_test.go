package pathrule

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestOwnDirectory checks that the directory of this program's keys and consents is secret and protected,
// wherever the system puts it.
func TestOwnDirectory(t *testing.T) {
	before := kitbagDir
	t.Cleanup(func() { kitbagDir = before })
	for _, row := range []struct{ config, home, own string }{
		{"/Conf", "/home/u", "/conf/kitbag"}, {"", "/Home/u", "/home/u/.config/kitbag"}, {"", "", ""},
	} {
		t.Setenv("XDG_CONFIG_HOME", row.config)
		t.Setenv("HOME", row.home)
		kitbagDir = sync.OnceValue(findKitbagDir)
		if got := kitbagDir(); got != row.own {
			t.Errorf("of %q and %q: %q, want %q", row.config, row.home, got, row.own)
		}
		for _, name := range []string{row.own, row.own + "/trust.json", strings.ToUpper(row.own) + "/x"} {
			if want := row.own != ""; (SecretName(name) != "") != want || (Protected{}.Name(name) != "") != want {
				t.Errorf("of %q and %q: %s: secret %q, protected %q", row.config, row.home, name, SecretName(name), Protected{}.Name(name))
			}
		}
		for _, name := range []string{"/w/main.go", row.own + "s/x", "/conf/x"} {
			if SecretName(name) != "" || (Protected{}).Name(name) != "" {
				t.Errorf("of %q and %q: %s is secret or protected", row.config, row.home, name)
			}
		}
	}
}

// TestNamesAtRoot checks that files at the root are secret or protected like those in a directory.
func TestNamesAtRoot(t *testing.T) {
	for _, name := range []string{"/.aws/x", "/.ssh", "/.env", "/id_rsa"} {
		if SecretName(name) == "" {
			t.Errorf("%s is not secret", name)
		}
	}
	for _, name := range []string{"/.pip/x", "/.pip", "/.git", "/.bashrc"} {
		if (Protected{}).Name(name) == "" {
			t.Errorf("%s is not protected", name)
		}
	}
}

// TestSecretLinkStartsBelowCwd checks that links are resolved only below the current directory, even if that is
// the root.
func TestSecretLinkStartsBelowCwd(t *testing.T) {
	at := tree("/a->/home/u/.ssh/id_work", "/b->/home/u/.ssh", "/b/x", "/w/c", "/w/d->../a", "/long->/a")
	for _, row := range []struct {
		cwd, name string
		want      bool
	}{
		{"/", "/a", true}, {"/", "/b/x", true}, {"/", "/long", true}, {"/", "/w/d", true}, {"/", "/w/c", false}, {"/", "/", false},
		{"/w", "/w/d", true}, {"/w", "/w/c", false}, {"/w", "/w", false}, {"/w", "/a", true},
		{"/b", "/b/x", false}, {"/b", "/b", false}, // the current directory itself is not checked
	} {
		at.Cwd = row.cwd
		if got := at.SecretLink(row.name) != ""; got != row.want {
			t.Errorf("in %s: SecretLink(%q) = %v", row.cwd, row.name, got)
		}
	}
}

// TestInsideLinkedDir checks that a working directory may be a link, and that nothing is inside one that is not known.
func TestInsideLinkedDir(t *testing.T) {
	at := tree("/work->/w", "/w/a", "/x/b", "/loop->/loop")
	for dir, want := range map[string]bool{"/work": true, "/w": true, "/x": false, "/loop": false, "": false, "relative": false} {
		at.Cwd, at.Dirs = "", []string{dir}
		if at.Inside("/w/a") != want {
			t.Errorf("/w/a is inside %q: %v", dir, !want)
		}
	}
}

// TestSecretNameOfLink checks that a secret name is enough, even for a link to something else.
func TestSecretNameOfLink(t *testing.T) {
	at := tree("/w/.env->plain", "/w/plain", "/w/.netrc->.netrc")
	for _, name := range []string{"/w/.env", "/w/.netrc"} {
		if at.Secret(name) == "" {
			t.Errorf("%s is not secret", name)
		}
	}
}

// TestGlobRows checks that an invalid pattern is treated as a name, and that the matches of a broad pattern are
// limited.
func TestGlobRows(t *testing.T) {
	at := tree("/w/[", "/w/x[1]", "/w/x1", "/w/a[b", "/w/ab")
	for pattern, want := range map[string]string{
		"/w/[": "/w/[", "/w/a[b": "/w/a[b", "/w/x[1]": "/w/x1", `/w/x\[1]*`: "/w/x[1]", "/w/a[[]b": "/w/a[b",
	} {
		names, all := at.Glob(pattern)
		if got := strings.Join(names, " "); got != want || !all {
			t.Errorf("Glob(%q) = %q, want %q", pattern, got, want)
		}
	}
	var many []string
	for i := range maxGlob + 1 {
		many = append(many, fmt.Sprintf("/w/%06d", i))
	}
	if got, all := tree(many...).Glob("/w/*"); all || len(got) != maxGlob || got[maxGlob-1] != many[maxGlob-1] {
		t.Errorf("%d names, the last %s; want the first %d", len(got), got[len(got)-1], maxGlob)
	}
}
