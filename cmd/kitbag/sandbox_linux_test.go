package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/permission"
)

// sandboxWorkspace makes a workspace with files to protect and to hide, and a file outside it that no command
// may change.
func sandboxWorkspace(t *testing.T) (dir, outside string) {
	t.Helper()
	dir = workspace(t)
	for _, name := range []string{"a.txt", ".env", ".git/config", "sub/b.txt", "notes/n.txt"} {
		writeConfig(t, name, "content of "+name+"\n")
	}
	outside = filepath.Join(t.TempDir(), "outside")
	writeConfig(t, outside, "outside\n")
	return dir, outside
}

// TestSandbox runs real commands, and checks the access of each profile and the messages about denials.
func TestSandbox(t *testing.T) {
	for _, row := range []struct {
		config string // of the user
		flags  string
		script string
		code   int
		out    string // all of standard output
		says   string // part of standard error; "" if it must be empty
	}{
		{"", "", "cat a.txt", 0, "content of a.txt\n", ""},
		{"", "", "exit 7", 7, "", ""},
		{"", "", "kill -9 $$", 137, "", ""},
		{"", "", "echo x >a.txt; cat a.txt", 0, "x\n", ""},
		{"", "", "echo x >@OUTSIDE", 2, "", "its own /tmp"},
		{"", "", "echo x >.git/config", 2, "", "except to protected files"},
		{"", "", "cat .env", 1, "", ".env"},
		{"", "", "wc -l </proc/net/dev", 0, "3\n", ""},
		{"", "", "sleep 100 & true", 0, "", "! a background process was ended"},
		{"", "", "mkdir -p .vscode && echo x >.vscode/settings.json", 0, "", "! the command created"},
		{"", "--profile read", "cat a.txt", 0, "content of a.txt\n", ""},
		{"", "--profile read", "echo x >a.txt", 2, "", "--profile work"},
		{"", "--write sub", "echo x >sub/b.txt && cat sub/b.txt", 0, "x\n", ""},
		{"", "--write sub", "echo x >a.txt", 2, "", "--write DIR"},
		{"", "--write sub --write notes", "echo x >notes/n.txt", 0, "", ""},
		{"", "--profile open", "echo x >@OUTSIDE; cat @OUTSIDE .env", 0, "x\ncontent of .env\n", ""},
		{"", "--profile open", "kill -15 $$", 143, "", ""},
		{`{"sandbox":{"protect":["@DIR/sub"]}}`, "", "echo x >sub/b.txt", 2, "", "except to protected files"},
		{`{"sandbox":{"hide":["@DIR/notes"]}}`, "", "cat notes/n.txt", 1, "", "notes/n.txt"},
		{`{"sandbox":{"reveal":["@DIR/.env"]}}`, "", "cat .env", 0, "content of .env\n", ""},
		{`{"sandbox":{"reveal":["@DIR/.env"]}}`, "", "echo x >.env", 2, "", "except to protected files"},
		{`{"sandbox":{"write":["@PARENT"]}}`, "", "echo x >@OUTSIDE; cat @OUTSIDE", 0, "x\n", ""},
		{`{"sandbox":{"use":"off"}}`, "", "echo x >@OUTSIDE", 2, "", "its own /tmp"}, // use only affects agents
	} {
		dir, outside := sandboxWorkspace(t)
		expand := strings.NewReplacer("@DIR", dir, "@PARENT", filepath.Dir(outside), "@OUTSIDE", outside).Replace
		if row.config != "" {
			writeConfig(t, userConfig(t), expand(row.config))
		}
		args := append([]string{"sandbox"}, strings.Fields(row.flags)...)
		got := kitbag(t.Context(), append(args, "--", "sh", "-c", expand(row.script))...)
		if got.code != row.code || got.out != row.out || row.says == "" && got.stderr != "" || !strings.Contains(got.stderr, row.says) {
			t.Errorf("%s %s: %s: %+v", row.config, row.flags, row.script, got)
		}
	}
}

// TestSandboxUsage checks the messages about wrong usage.
func TestSandboxUsage(t *testing.T) {
	workspace(t)
	for _, row := range []struct {
		args string
		code int
		says string
	}{
		{"", exitDone, ""},
		{"ls", exitUsage, "put -- before the command: kitbag sandbox -- ls"},
		{"ls -- x", exitUsage, `"ls" is before --`},
		{"--network", exitUsage, "no command"},
		{"--", exitUsage, "no command"}, // as of a script whose variable with the command is empty
		{"--profile writ -- true", exitUsage, `--profile "writ": the profiles are read, work, open`},
		{"--write missing -- true", exitUsage, "--write missing: "},
		{"--write kitbag.json -- true", exitUsage, "--write kitbag.json: not a directory"},
		{"--write / -- true", exitUsage, "--write /: the root cannot be made writable"},
		{"--profile read --write . -- true", exitUsage, "--profile read cannot write"},
		{"--profile open --network -- true", exitUsage, "--profile open confines nothing"},
		{"-- no-such-program-here", exitError, "no-such-program-here"},
		{"status x", exitUsage, `takes no argument "x"`},
	} {
		writeConfig(t, configFile, "{}")
		got := kitbag(t.Context(), append([]string{"sandbox"}, strings.Fields(row.args)...)...)
		if got.code != row.code || !strings.Contains(got.stderr, row.says) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}

// TestSandboxSignal checks that SIGTERM reaches the command, which may handle it.
func TestSandboxSignal(t *testing.T) {
	workspace(t)
	cmd := exec.Command(os.Args[0], "sandbox", "--", "sh", "-c", `trap "echo bye; exit 3" TERM; echo ready; while :; do sleep 0.01; done`)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }).Stop()
	buf := make([]byte, 6)
	if _, err := out.Read(buf); err != nil || string(buf) != "ready\n" {
		t.Fatalf("%q, %v", buf, err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	var rest bytes.Buffer
	rest.ReadFrom(out)
	cmd.Wait()
	if rest.String() != "bye\n" || cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%q, %v", rest.String(), cmd.ProcessState)
	}
}

// status returns the report of "kitbag sandbox status --json".
func status(t *testing.T, args ...string) *sandboxReport {
	t.Helper()
	got := kitbag(t.Context(), append([]string{"sandbox", "status", "--json"}, args...)...)
	r := &sandboxReport{}
	if err := json.Unmarshal([]byte(got.out), r); err != nil || got.code != exitDone {
		t.Fatalf("%v: %+v", err, got)
	}
	return r
}

func TestSandboxStatus(t *testing.T) {
	dir, outside := sandboxWorkspace(t)
	has := func(list []coveredPath, path string, exists bool) bool {
		return slices.Contains(list, coveredPath{path, exists})
	}
	r := status(t)
	if !r.Confines || r.Use != "auto" || len(r.Layers) < 5 || !has(r.Writable, dir, true) || !has(r.Protected, filepath.Join(dir, ".git/config"), true) ||
		!has(r.Protected, filepath.Join(dir, ".vscode"), false) || !has(r.Hidden, filepath.Join(dir, ".env"), true) || has(r.Protected, filepath.Join(dir, "sub"), true) || len(r.Caches) == 0 {
		t.Errorf("%+v", r)
	}
	for _, l := range r.Layers {
		if !l.OK {
			t.Errorf("%+v", l) // the test needs all of them
		}
	}
	text := `{"sandbox":{"protect":["sub"],"hide":["notes"],"reveal":[".env"],"write":["` + filepath.Dir(outside) + `"],"use":"off"}}`
	writeConfig(t, configFile, text)
	r = status(t) // an untrusted file may only restrict
	if r.Use != "auto" || !has(r.Protected, filepath.Join(dir, "sub"), true) || !has(r.Hidden, filepath.Join(dir, "notes"), true) || !has(r.Hidden, filepath.Join(dir, ".env"), true) || len(r.Writable) != 1 {
		t.Errorf("not trusted: %+v", r)
	}
	r = status(t, "--trust")
	if r.Use != "off" || has(r.Hidden, filepath.Join(dir, ".env"), true) || len(r.Writable) != 2 {
		t.Errorf("trusted: %+v", r)
	}
	got := kitbag(t.Context(), "sandbox", "status")
	for _, want := range []string{"yes  namespaces", "Commands are confined.", "Writable", "  " + filepath.Join(dir, "sub") + "\n", "that do not exist now"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is not in:\n%s", want, got.out)
		}
	}
	if !strings.Contains(got.stderr, "is not trusted") {
		t.Errorf("%s", got.stderr)
	}
}

// withoutNamespaces runs kitbag in a sandbox in which it cannot create namespaces.
func withoutNamespaces(t *testing.T, args ...string) output {
	t.Helper()
	s := sandbox.Spec{Profile: permission.ProfileRead, Network: true}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cleanup, err := s.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Run()
	if _, err := cleanup(); err != nil {
		t.Fatal(err)
	}
	return output{cmd.ProcessState.ExitCode(), out.String(), stderr.String()}
}

// TestSandboxMissing checks what happens if the kernel lacks namespaces.
func TestSandboxMissing(t *testing.T) {
	dir, _ := sandboxWorkspace(t)
	got := withoutNamespaces(t, "sandbox", "status")
	if got.code != exitDone || !strings.Contains(got.out, "no   namespaces") || !strings.Contains(got.out, "No command is confined") {
		t.Errorf("%+v", got)
	}
	if got = withoutNamespaces(t, "sandbox", "--", "true"); got.code != exitError || !strings.Contains(got.stderr, "namespaces") {
		t.Errorf("%+v", got)
	}
	if got = withoutNamespaces(t, "sandbox", "--profile", "open", "--", "sh", "-c", "exit 5"); got.code != 5 {
		t.Errorf("%+v", got)
	}
	const making = `{"command":"make"}`
	serve(t, openaitest.Calls(call("Bash", making)))
	got = withoutNamespaces(t, "run", "--mode", "sandboxed", "go")
	if got.code != exitWaiting || !strings.Contains(got.stderr, "! mode sandboxed asks like accept-edits") || !strings.Contains(got.stderr, "namespaces") {
		t.Errorf("%+v", got)
	}
	writeConfig(t, userConfig(t), `{"sandbox":{"use":"required"}}`)
	s := serve(t)
	if got = withoutNamespaces(t, "run", "go"); got.code != exitError || !strings.Contains(got.stderr, `"use": "auto"`) || len(s.Requests()) != 0 {
		t.Errorf("%+v", got)
	}
	writeConfig(t, filepath.Join(dir, "Makefile"), "all:\n\t@echo made >made\n")
	serve(t, openaitest.Calls(call("Bash", making)), openaitest.Text("done"))
	if got = kitbag(t.Context(), "run", "--mode", "sandboxed", "go"); got.code != exitDone || strings.Contains(got.stderr, "!") {
		t.Errorf("with all parts: %+v", got)
	}
	if _, err := os.Stat("made"); err != nil {
		t.Error(err)
	}
}

// TestSandboxSettings runs an agent's commands with settings of the directory, trusted or not, and of the user.
func TestSandboxSettings(t *testing.T) {
	for _, row := range []struct {
		project, user string
		trust         bool
		command       string
		runs          bool
	}{
		{"", "", false, "cat sub/b.txt", true},
		{"", "", false, "echo x >a.txt", true},
		{"", "", false, "echo x >@OUTSIDE", false},
		{"", `{"sandbox":{"use":"off"}}`, false, "echo x >@OUTSIDE", true},
		{"", `{"sandbox":{"write":["@PARENT"]}}`, false, "echo x >@OUTSIDE", true},
		{`{"sandbox":{"write":["@PARENT"]}}`, "", true, "echo x >@OUTSIDE", true},
		{`{"sandbox":{"use":"off"}}`, `{"sandbox":{"use":"required"}}`, true, "echo x >@OUTSIDE", false},
		{`{"sandbox":{"use":"required"}}`, `{"sandbox":{"use":"off"}}`, false, "echo x >@OUTSIDE", false},
		{`{"sandbox":{"use":"auto"}}`, `{"sandbox":{"use":"off"}}`, false, "echo x >@OUTSIDE", false},
		{`{"sandbox":{"hide":["notes"]}}`, "", false, "cat notes/n.txt", false},
		{`{"sandbox":{"hide":["notes"]}}`, `{"sandbox":{"reveal":["@DIR/notes"]}}`, false, "cat notes/n.txt", true},
		{`{"sandbox":{"protect":["sub"]}}`, "", false, "echo x >sub/b.txt", false},
		{"", `{"sandbox":{"hide":["~/notes"]}}`, false, "cat ~/notes", false},
		{"", "", false, "cat ~/notes", true},
	} {
		dir, outside := sandboxWorkspace(t)
		expand := strings.NewReplacer("@DIR", dir, "@PARENT", filepath.Dir(outside), "@OUTSIDE", outside).Replace
		writeConfig(t, filepath.Join(os.Getenv("HOME"), "notes"), "notes\n")
		args := []string{"run", "--mode", "bypass", "go"}
		if row.project != "" {
			writeConfig(t, configFile, expand(row.project))
		}
		if row.user != "" {
			writeConfig(t, userConfig(t), expand(row.user))
		}
		if row.trust {
			args = append(args, "--trust")
		}
		input, err := json.Marshal(map[string]string{"command": expand(row.command)})
		if err != nil {
			t.Fatal(err)
		}
		serve(t, openaitest.Calls(call("Bash", string(input))), openaitest.Text("done"))
		got := kitbag(t.Context(), args...)
		if got.code != exitDone || strings.Contains(got.stderr, "✓ Bash") != row.runs || strings.Contains(got.stderr, "✗ Bash") == row.runs {
			t.Errorf("%s, %s: %s: %+v", row.project, row.user, row.command, got)
		}
	}
}

// TestConfinedServers starts real servers, which try to exceed the access that their entry grants.
func TestConfinedServers(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const attempts = `exec 2>/dev/null; (echo x >a.txt); (echo x >sub/b.txt); (echo x >.git/config); (echo x >@OUTSIDE); (cat .env >sub/env); (wc -l </proc/net/dev >sub/net); (ls /proc/self/fd | tr '\n' ' ' >sub/fds); (env >sub/envs); exec "$0" mcp serve --demo`
	for _, row := range []struct {
		entry  map[string]any
		wrote  string // which of a.txt, sub/b.txt, .git/config and outside it changed
		secret bool   // it has read .env
		net    string // lines of /proc/net/dev; "" if it could not store them
	}{
		{map[string]any{}, "a.txt sub/b.txt .git/config @OUTSIDE", true, "?"},
		{map[string]any{"sandbox": "read"}, "", false, ""},
		{map[string]any{"sandbox": "work", "write": []string{"bin"}}, "", false, ""},
		{map[string]any{"sandbox": "work", "write": []string{"bin", "sub"}}, "sub/b.txt", false, "3"},
		{map[string]any{"sandbox": "work", "write": "."}, "a.txt sub/b.txt", false, "3"},
		{map[string]any{"sandbox": "work", "write": ".", "network": true}, "a.txt sub/b.txt", false, "?"},
	} {
		for _, way := range []string{"call", "run", "serve"} {
			dir, outside := sandboxWorkspace(t)
			expand := strings.NewReplacer("@OUTSIDE", outside).Replace
			if err := errors.Join(os.Mkdir("bin", 0o700), os.Link(exe, "bin/kitbag")); err != nil {
				t.Fatal(err)
			}
			entry := maps.Clone(row.entry)
			entry["command"], entry["args"] = "sh", []string{"-c", expand(attempts), filepath.Join(dir, "bin/kitbag")}
			writeServers(t, defaultServers, map[string]any{"demo": entry})
			t.Setenv("OPENAI_API_KEY", "secret-of-the-caller")
			t.Setenv("SECRET_NAME", "secret-of-the-caller")
			switch way {
			case "call":
				if got := kitbag(t.Context(), "mcp", "call", "--mcp", defaultServers, "demo", "echo", `{"message":"hello"}`); got.out != "hello\n" {
					t.Errorf("%v: %+v", row.entry, got)
				}
			case "run":
				serve(t, openaitest.Calls(call("reset_tools", `{"demo":true}`)), openaitest.Calls(call("mcp__demo__echo", `{"message":"hello"}`)), openaitest.Text("done"))
				if got := kitbag(t.Context(), "run", "--mcp", defaultServers, "--mode", "bypass", "go"); got.code != exitDone || !strings.Contains(got.stderr, "✓ mcp__demo__echo") {
					t.Errorf("%v: %+v", row.entry, got)
				}
			case "serve":
				c := gatewayClient(t, "", "--mcp", defaultServers, "--mode", "bypass", "--style", "full")
				find(t, c, "demo__echo")
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			var wrote []string
			for _, name := range []string{"a.txt", "sub/b.txt", ".git/config", outside} {
				if data, err := os.ReadFile(name); err != nil || string(data) == "x\n" {
					wrote = append(wrote, name)
				}
			}
			if got := strings.Join(wrote, " "); got != expand(row.wrote) {
				t.Errorf("%s: %v: it wrote %s, want %s", way, row.entry, got, expand(row.wrote))
			}
			if data, _ := os.ReadFile("sub/env"); (len(data) > 0) != row.secret {
				t.Errorf("%s: %v: it read %q", way, row.entry, data)
			}
			// 3 is that of ls. A server without a sandbox also has those that this program has got from others.
			if fds, err := os.ReadFile("sub/fds"); err == nil && row.entry["sandbox"] != nil && len(fds) > 0 && string(fds) != "0 1 2 3 " {
				t.Errorf("%s: %v: it has the descriptors %s", way, row.entry, fds)
			}
			if env, err := os.ReadFile("sub/envs"); err == nil && strings.Contains(string(env), "secret-of-the-caller") {
				t.Errorf("%s: %v: it has the environment of the caller", way, row.entry)
			}
			net, _ := os.ReadFile("sub/net")
			if got := strings.TrimSpace(string(net)); got != row.net && (row.net != "?" || got == "" || got == "3") {
				t.Errorf("%s: %v: %s lines of networks, want %s", way, row.entry, got, row.net)
			}
		}
	}
}

// TestServerWithoutSandbox checks that a server that must be confined does not run without a sandbox.
func TestServerWithoutSandbox(t *testing.T) {
	workspace(t)
	entry := self(t, "--demo")
	for _, profile := range []string{"read", "work"} {
		entry["sandbox"] = profile
		writeServers(t, defaultServers, map[string]any{"demo": entry})
		got := withoutNamespaces(t, "mcp", "call", "--mcp", defaultServers, "demo", "echo", `{"message":"hello"}`)
		if got.code != exitError || got.out != "" || !strings.Contains(got.stderr, "requires a sandbox") || !strings.Contains(got.stderr, "namespaces") {
			t.Errorf("%s: %+v", profile, got)
		}
	}
}

// TestReachIsShown checks that the access of a command is shown before it runs.
func TestReachIsShown(t *testing.T) {
	workspace(t)
	for _, row := range []struct {
		flags, command string
		want           string // "" if the sandbox must not be mentioned
		off            bool
	}{
		{"", "ls", "ALLOW", false},
		{"", "ls", "in the sandbox, without the network, read-only", false},
		{"--mode sandboxed", "make", "ALLOW: mode sandboxed", false},
		{"--mode sandboxed", "make", "in the sandbox, without the network, writing in the working directories", false},
		{"", "npm install", "in the sandbox, with the network", false},
		{"--mode sandboxed --deny Network", "npm install", "in the sandbox, without the network", false},
		{"--mode sandboxed", "make", "ASK", true},
		{"--mode sandboxed", "make", "", true},
		{"--deny Bash", "make", "", false},
	} {
		writeConfig(t, userConfig(t), "{}")
		if row.off {
			writeConfig(t, userConfig(t), `{"sandbox":{"use":"off"}}`)
		}
		args := append([]string{"permission", "explain"}, strings.Fields(row.flags)...)
		got := kitbag(t.Context(), append(args, row.command)...)
		if got.code != exitDone || !strings.Contains(got.out, row.want) || row.want == "" && strings.Contains(got.out, "in the sandbox") {
			t.Errorf("%s %s: %+v does not say %q", row.flags, row.command, got, row.want)
		}
	}
	q := &event.Approval{Name: "Bash", Input: json.RawMessage(`{"command":"npm install"}`), Reason: "no rule covers the call"}
	for _, row := range []struct {
		profile permission.Profile
		network bool
		want    string
	}{
		{"", false, ""},
		{permission.ProfileWork, true, "in the sandbox, with the network"},
		{permission.ProfileWork, false, "in the sandbox, without the network"},
		{permission.ProfileOpen, false, "outside the sandbox"},
	} {
		q.Profile, q.Network = row.profile, row.network
		got := new(painter).question(q)
		if !strings.Contains(got, row.want) || row.want == "" && strings.Contains(got, "sandbox") {
			t.Errorf("%s\ndoes not say %q", got, row.want)
		}
	}
}
