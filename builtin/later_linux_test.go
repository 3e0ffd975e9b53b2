package builtin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

// TestSecretsMadeLater checks that a credential that a login creates in the home directory is hidden from the
// next command.
func TestSecretsMadeLater(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	l := &Local{Dirs: []string{dir}}
	secret := filepath.Join(home, ".aws")
	if slices.Contains(specOf(t, l).Hide, secret) {
		t.Fatal("hidden before it exists")
	}
	if err := os.Mkdir(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	if hide := specOf(t, l).Hide; !slices.Contains(hide, secret) {
		t.Errorf("%s is not among %v", secret, hide)
	}
}

// TestCachesFollowEnvironment checks that a command's caches are those of the environment in which it starts, not
// those of the first command.
func TestCachesFollowEnvironment(t *testing.T) {
	l := &Local{Dirs: []string{t.TempDir()}}
	for range 2 {
		home := t.TempDir()
		t.Setenv("HOME", home)
		t.Setenv("XDG_CACHE_HOME", "")
		if caches, want := specOf(t, l).Scratch, filepath.Join(home, ".cache"); !slices.Contains(caches, want) {
			t.Errorf("%s is not among %v", want, caches)
		}
	}
}

// specOf returns how a command of the profile work is confined.
func specOf(t *testing.T, l *Local) sandbox.Spec {
	t.Helper()
	s, err := l.Spec(permission.ProfileWork)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// place makes empty files.
func place(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSecretsElsewhere checks that secrets of other projects, and secrets at paths that the environment names,
// are hidden too.
func TestSecretsElsewhere(t *testing.T) {
	home, cargo, config := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("CARGO_HOME", cargo)
	t.Setenv("XDG_CONFIG_HOME", config)
	t.Setenv("KUBECONFIG", config+"/a:"+config+"/b")
	hidden := []string{
		home + "/src/other/.env", home + "/src/other/.env.local", home + "/src/.env", home + "/.gemini/oauth_creds.json", home + "/.config/sops/age/keys.txt", home + "/.config/ngrok/ngrok.yml",
		home + "/.circleci/cli.yml", home + "/.sentryclirc", home + "/.msmtprc", home + "/.fetchmailrc", home + "/.Xauthority",
		cargo + "/credentials.toml", config + "/gh/hosts.yml", config + "/a", config + "/b",
	}
	shown := []string{home + "/src/other/main.go", home + "/src/other/.env.example", cargo + "/config.toml", config + "/gh/config.yml", home + "/.circleci/config.yml"}
	place(t, append(hidden, shown...)...)
	place(t, home+"/src/mine/main.go")
	hide := specOf(t, &Local{Dirs: []string{home + "/src/mine"}}).Hide
	covers := func(name string) bool {
		return slices.ContainsFunc(hide, func(dir string) bool { return within(dir, name) })
	}
	for _, name := range hidden {
		if !covers(name) {
			t.Errorf("%s is not hidden", name)
		}
	}
	for _, name := range shown {
		if covers(name) {
			t.Errorf("%s is hidden", name)
		}
	}
}

// TestHomeGranted checks that a command that may write in the home directory cannot plant a program in PATH.
func TestHomeGranted(t *testing.T) {
	home := t.TempDir()
	place(t, home+"/bin/x", home+"/go/bin/x", home+"/venv/bin/x", home+"/venv/pyvenv.cfg", home+"/p/node_modules/.bin/x", home+"/.bashrc")
	t.Setenv("HOME", home)
	t.Setenv("PATH", strings.Join([]string{home + "/bin", home + "/go/bin", home + "/venv/bin", home + "/p/node_modules/.bin", "/usr/local/bin", os.Getenv("PATH")}, ":"))
	l := &Local{Dirs: []string{home}}
	out, _ := l.runConfined(t, permission.ProfileWork, home, "for d in bin go/bin venv/bin p/node_modules/.bin; do echo >$d/git && echo $d; mv $d $d.old; done; echo x >>.bashrc && echo .bashrc; ls -d */bin bin")
	for _, name := range []string{"bin", "go/bin", ".bashrc"} {
		if slices.Contains(strings.Split(out, "\n"), name) && name == ".bashrc" {
			t.Errorf("wrote %s: %s", name, out)
		}
		if _, err := os.Lstat(filepath.Join(home, name, "git")); err == nil {
			t.Errorf("planted in %s", name)
		}
	}
	for _, name := range []string{"venv/bin.old/git", "p/node_modules/.bin.old/git"} {
		if _, err := os.Lstat(filepath.Join(home, name)); err != nil {
			t.Errorf("a package manager could not: %v", err)
		}
	}
}

// TestShadows: a command leaves no program with the name of another one where programs are
// found by name, as who calls the other is not confined.
func TestShadows(t *testing.T) {
	for _, row := range []struct {
		command string
		aside   string
	}{
		{"echo >venv/bin/ls", "venv/bin/ls"},
		{"ln -s /bin/true venv/bin/git", "venv/bin/git"},
		{"echo >venv/bin/python3; echo >venv/bin/new-tool; mkdir venv/bin/sh", ""},
		{"echo >p/node_modules/.bin/ls", "p/node_modules/.bin/ls"},
		{"mkdir tools; echo >tools/ls; echo >tools/mine", "tools/ls"},
		{"mv venv/bin venv/b; mkdir venv/bin; echo >venv/bin/ls", "venv/bin/ls"},
		{"mkdir evil; echo >evil/ls; mv venv/bin venv/b; ln -s ../evil venv/bin", "evil/ls"},
		{"mv venv/bin venv/b; ln -s /usr/bin venv/bin", ""},
		{"echo >venv/bin/ls; chmod 111 venv/bin", "venv/bin/ls"},
		{"mkdir -p venv/bin/ls.untrusted/x; echo >venv/bin/ls; chmod 555 venv/bin", "venv/bin/ls"},
		{"touch pyvenv.cfg; echo >bin/ls", ""},
	} {
		t.Run(row.command, func(t *testing.T) {
			dir := t.TempDir()
			place(t, dir+"/bin/x", dir+"/venv/bin/python3", dir+"/venv/pyvenv.cfg", dir+"/p/node_modules/.bin/x")
			t.Setenv("PATH", strings.Join([]string{dir + "/venv/bin", dir + "/p/node_modules/.bin", dir + "/tools", dir + "/bin", "/usr/bin", "/bin"}, ":"))
			l := &Local{Dirs: []string{dir}}
			_, exit := l.runConfined(t, permission.ProfileWork, dir, row.command)
			os.Chmod(dir+"/venv/bin", 0o755)
			for _, name := range []string{"venv/bin/ls", "venv/bin/git", "p/node_modules/.bin/ls", "tools/ls", "evil/ls", "bin/ls"} {
				at := filepath.Join(dir, name)
				if told := strings.Contains(exit.Denied, at+" (now "+at+".untrusted"); told != (name == row.aside) {
					t.Errorf("%s: %q", name, exit.Denied)
				}
				if real, err := filepath.EvalSymlinks(at); err == nil && real != "/usr/bin/ls" && real != "/usr/bin/git" {
					t.Errorf("%s is there: %s", name, real)
				}
			}
			for name, in := range map[string]string{"venv/bin/new-tool": "new-tool", "venv/bin/python3": "python3", "tools/mine": "mine"} {
				if _, err := os.Lstat(filepath.Join(dir, name)); strings.Contains(row.command, in) && err != nil {
					t.Error(err)
				}
			}
			for _, name := range []string{"/usr/bin/ls", "/usr/bin/git"} {
				if _, err := os.Lstat(name); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestSearchTakesLong checks that a command does not wait long for the search of its directory, and does not run without it.
func TestSearchTakesLong(t *testing.T) {
	old := maxSearch
	t.Cleanup(func() { maxSearch = old })
	dir := t.TempDir()
	place(t, filepath.Join(dir, "a/b/x"))
	l := &Local{Dirs: []string{dir}}
	run := func() error {
		_, err := l.Run(t.Context(), Command{Args: []string{"true"}, Dir: dir, Profile: permission.ProfileWork})
		return err
	}
	maxSearch = 0
	if err := run(); err == nil || !strings.Contains(err.Error(), "before each command: took more than 0s; try again, or use a smaller working directory") {
		t.Error(err)
	}
	maxSearch = old
	if err := run(); err != nil {
		t.Error(err)
	}
}

// TestSearchIsCancelled checks that the searches for secret files, and for what a deny rule covers, end with the call.
func TestSearchIsCancelled(t *testing.T) {
	stopped := errors.New("the user stopped the call")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	dir := t.TempDir()
	place(t, filepath.Join(dir, "a/x"))
	if _, _, err := (&Local{Dirs: []string{dir}}).specFor(ctx, Command{Profile: permission.ProfileWork}); !errors.Is(err, stopped) {
		t.Errorf("secret files: %v", err)
	}
	if found, err := coveredPaths(ctx, []string{dir + "/**/x"}, []string{dir}); !errors.Is(err, stopped) {
		t.Errorf("a deny rule: found %q, %v", found, err)
	}
}

// TestTooManyDirectories checks that no command runs if its directory is too large to be searched.
func TestTooManyDirectories(t *testing.T) {
	old := maxDirs
	t.Cleanup(func() { maxDirs = old })
	maxDirs = 10
	dir := t.TempDir()
	for i := range 12 {
		place(t, filepath.Join(dir, strconv.Itoa(i), "x"))
	}
	for dir, want := range map[string]string{dir: "more than 10 directories", "/": "use a smaller one"} {
		l := &Local{Dirs: []string{dir}}
		for _, profile := range []permission.Profile{permission.ProfileRead, permission.ProfileWork} {
			start := time.Now()
			_, err := l.Run(t.Context(), Command{Args: []string{"true"}, Dir: dir, Profile: profile})
			if took := time.Since(start); err == nil || !strings.Contains(err.Error(), want) || took > time.Minute {
				t.Errorf("%s: %v after %v", dir, err, took)
			}
		}
		if _, err := l.Run(t.Context(), Command{Args: []string{"true"}, Dir: dir, Profile: permission.ProfileOpen}); err != nil {
			t.Error(err)
		}
	}
	maxDirs = 13
	l := &Local{Dirs: []string{dir}}
	if _, err := l.Run(t.Context(), Command{Args: []string{"true"}, Dir: dir, Profile: permission.ProfileWork}); err != nil {
		t.Error(err)
	}
	maxDirs = 10
	_, err := l.Run(t.Context(), Command{Args: []string{"true"}, Dir: dir, Profile: permission.ProfileWork, Except: []string{dir + "/**/*.x"}})
	if err == nil {
		t.Error("want an error: Except has a limit too")
	}
}
