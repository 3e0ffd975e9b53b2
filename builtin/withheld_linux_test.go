package builtin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
)

// TestSecretsStaySecret runs pairs of commands like an agent: the first prepares the second's attempt to read a
// secret.
func TestSecretsStaySecret(t *testing.T) {
	for _, row := range [][]string{
		{"mkdir node_modules; mv sub node_modules/", "cat node_modules/sub/dir/.env"},
		{"mv sub .git/sub", "cat .git/sub/dir/.env"},
		{"touch -r . old; mv sub sub2; touch -r old .", "cat sub2/dir/.env"},
		{"touch -r sub old; mv sub/dir sub/dir2; touch -r old sub", "cat sub/dir2/.env"},
		{"chmod 300 . sub sub/dir; mkdir x", "chmod 700 . sub sub/dir; cat .env sub/dir/.env"},
		{"rm -f .env; ln -f sub/dir/.env y; cp sub/dir/.env z", "cat .env y z"},
	} {
		dir := t.TempDir()
		for _, name := range []string{".env", "sub/dir/.env", ".git/config"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte("GUARDED\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l := &Local{Dirs: []string{dir}}
		for range 2 { // the second time the finder uses its cache
			for _, command := range row {
				if out, _ := l.runConfined(t, permission.ProfileWork, dir, command); strings.Contains(out, "GUARDED") && strings.Contains(command, ".env") {
					t.Errorf("%q reads a secret: %s", row, out)
				}
			}
		}
		os.Chmod(dir, 0o755)
	}
}

// TestUnreadableDirectory checks a directory that cannot be listed. It forges the listing, since root can list
// every directory.
func TestUnreadableDirectory(t *testing.T) {
	l := new(listing)
	l.unreadable = true
	dir := t.TempDir()
	f := &finder{listings: map[string]*listing{}}
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.changed, l.readAt = lastChange(info), lastChange(info).Add(2*settled)
	f.listings[dir] = l
	if _, secret, err := f.findBelow(t.Context(), []string{dir}); err != nil || len(secret) != 1 || secret[0] != dir {
		t.Errorf("%q, want the directory as a whole", secret)
	}
}

// TestGitStaysTrusted runs commands that manipulate a repository and its working trees so that the user's next
// git command would run their program.
func TestGitStaysTrusted(t *testing.T) {
	for _, command := range []string{
		"echo $PWD/evil > .git/worktrees/other/commondir",
		"echo $PWD/evil > .git/commondir",
		"mv .git/worktrees .git/w; mkdir -p .git/worktrees/other; cp .git/w/other/* .git/worktrees/other; echo $PWD/evil > .git/worktrees/other/commondir",
		"rm -rf .git/hooks; mkdir -p .git/hooks; cp evil/hooks/* .git/hooks",
		"rm -f .git/config; cp evil/config .git/config",
	} {
		top := t.TempDir()
		dir, other, proof := filepath.Join(top, "repo"), filepath.Join(top, "other"), filepath.Join(top, "proof")
		shell := func(script string) {
			t.Helper()
			cmd := exec.Command("bash", "-ec", script)
			cmd.Dir = top
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v %s", script, err, out)
			}
		}
		shell("git init -q repo; cd repo; rm -rf .git/hooks; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a; git worktree add -q ../other; cp -r .git evil; rm -rf evil/worktrees; mkdir evil/hooks; " +
			"printf '[core]\\n\\tfsmonitor = touch " + proof + "; false\\n' >> evil/config; printf '#!/bin/sh\\ntouch " + proof + "\\n' > evil/hooks/post-checkout; chmod +x evil/hooks/*")
		l := &Local{Dirs: []string{dir}}
		out, _ := l.runConfined(t, permission.ProfileWork, dir, command)
		shell("git -C " + dir + " status; git -C " + other + " status; git -C " + dir + " checkout -q -b new")
		if _, err := os.Lstat(proof); err == nil {
			t.Errorf("%s: git ran the program; the command printed %s", command, out)
		}
	}
}

// TestOtherRepositories checks that git runs nothing that a command wrote into a bare repository, or into one
// separate from its working tree.
func TestOtherRepositories(t *testing.T) {
	for _, c := range []struct{ make, command, use string }{
		{"git init -q --bare dir/bare.git", "git config --file bare.git/config core.fsmonitor 'touch PROOF; false'; printf '[core]\n\tbare = false\n\tfsmonitor = touch PROOF\n' >bare.git/config", "git -C dir/bare.git --work-tree . status"},
		{"git init -q --bare dir/bare.git", "mkdir -p bare.git/hooks; printf '#!/bin/sh\ntouch PROOF\n' >bare.git/hooks/post-checkout; chmod +x bare.git/hooks/*", "git -C dir/bare.git hook run --ignore-missing post-checkout"},
		{"git init -q --separate-git-dir dir/store dir/tree", "printf '[core]\n\tfsmonitor = touch PROOF\n' >store/config", "git -C dir/tree status"},
		{"git init -q --bare dir; rm -rf dir/hooks", "printf '[core]\n\tbare = false\n\tfsmonitor = touch PROOF\n' >config; mkdir hooks; printf '#!/bin/sh\ntouch PROOF\n' >hooks/post-checkout; chmod +x hooks/*", "git -C dir hook run --ignore-missing post-checkout"},
		{"git init -q --bare dir/bare.git; rm -rf dir/bare.git/hooks", "mkdir bare.git/hooks; printf '#!/bin/sh\ntouch PROOF\n' >bare.git/hooks/post-checkout; chmod +x bare.git/hooks/*", "git -C dir/bare.git hook run --ignore-missing post-checkout"},
		{"git init -q --bare dir/bare.git; rm -rf dir/bare.git/hooks", "mkdir -p bare.git/hooks.untrusted/x bare.git/hooks; printf '#!/bin/sh\ntouch PROOF\n' >bare.git/hooks/post-checkout; chmod +x bare.git/hooks/*", "git -C dir/bare.git hook run --ignore-missing post-checkout"},
		{"git init -q --bare dir/bare.git; rm -rf dir/bare.git/hooks", "mkdir bare.git/hooks; printf '#!/bin/sh\ntouch PROOF\n' >bare.git/hooks/post-checkout; chmod +x bare.git/hooks/*; chmod 555 bare.git", "chmod 755 dir/bare.git; git -C dir/bare.git hook run --ignore-missing post-checkout"},
	} {
		top := t.TempDir()
		dir, proof := filepath.Join(top, "dir"), filepath.Join(top, "proof")
		shell := func(script string) {
			t.Helper()
			cmd := exec.Command("bash", "-c", script)
			cmd.Dir = top
			out, err := cmd.CombinedOutput()
			t.Logf("%s: %v %s", script, err, out)
		}
		shell("mkdir dir; " + c.make)
		l := &Local{Dirs: []string{dir}}
		out, _ := l.runConfined(t, permission.ProfileWork, dir, strings.ReplaceAll(c.command, "PROOF", proof))
		shell(c.use)
		if _, err := os.Lstat(proof); err == nil {
			t.Errorf("%s; %s: git ran its program; the command said %s", c.make, c.command, out)
		}
	}
}

// TestLinkedWorkingTree checks that git can commit in a working tree whose repository is in another directory,
// while what git runs or trusts there is protected. A file that merely names a repository grants nothing.
func TestLinkedWorkingTree(t *testing.T) {
	top := t.TempDir()
	shell := func(script string) string {
		t.Helper()
		cmd := exec.Command("bash", "-ec", script)
		cmd.Dir = top
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v %s", script, err, out)
		}
		return string(out)
	}
	const gitWithUser = "git -c user.name=a -c user.email=a@b "
	shell("git init -q main; cd main; " + gitWithUser + "commit -q --allow-empty -m a; git worktree add -q ../linked; git worktree add -q ../third; mkdir ../forged; cp ../linked/.git ../forged/.git")
	linked := filepath.Join(top, "linked")
	l := &Local{Dirs: []string{linked}}
	if out, exit := l.runConfined(t, permission.ProfileWork, linked, "echo x >x && git add x && "+gitWithUser+"commit -qm b && git log --oneline | wc -l"); exit.Code != 0 || out != "2\n" {
		t.Errorf("%+v %s", exit, out)
	}
	before := shell("cat main/.git/config main/.git/worktrees/third/commondir; ls main/.git/hooks main")
	for _, command := range []string{
		"git config core.fsmonitor false", "echo >../main/.git/hooks/pre-commit", "echo x >../main/.git/worktrees/third/commondir", "mv ../main/.git/hooks ../main/.git/h",
	} {
		if out, exit := l.runConfined(t, permission.ProfileWork, linked, command); exit.Code == 0 {
			t.Errorf("%s: %s", command, out)
		}
	}
	if after := shell("cat main/.git/config main/.git/worktrees/third/commondir; ls main/.git/hooks main"); after != before {
		t.Errorf("the repository has changed:\n%s", after)
	}
	forged := filepath.Join(top, "forged")
	l = &Local{Dirs: []string{forged}}
	if out, exit := l.runConfined(t, permission.ProfileWork, forged, "echo x >../main/.git/objects/x"); exit.Code == 0 {
		t.Errorf("a forged link grants the repository: %s", out)
	}
}
