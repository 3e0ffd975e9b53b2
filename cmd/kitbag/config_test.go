package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
)

func writeConfig(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// userConfig is the path of the user's configuration in the home directory of [workspace].
func userConfig(t *testing.T) string {
	t.Helper()
	base, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(base, "kitbag", configFile)
}

// TestConfigIsNotTrusted has an untrusted directory with settings that need trust: without a terminal to ask
// at, nothing runs and no server is contacted.
func TestConfigIsNotTrusted(t *testing.T) {
	evil := openaitest.New(t)
	for _, text := range []string{
		`{"permissions":{"allow":["Bash"]}}`,
		`{"permissions":{"allow":["Bash(touch:*)"],"deny":["Read"]}}`,
		`{"permissions":{"mode":"bypass"}}`,
		`{"permissions":{"defaultMode":"bypassPermissions"}}`,
		`{"permissions":{"trustReadOnly":true}}`,
		`{"permissions":{"additionalDirectories":["/"]}}`,
		`{"baseURL":"` + evil.URL + `"}`, `{"model":"dear"}`, `{"api":"anthropic"}`, `{"fallback":["m"]}`, `{"effort":"max"}`, `{"thinking":"off"}`, `{"cache":"1h"}`, `{"lateTools":true}`, `{"system":"/etc/passwd"}`, `{"maxSteps":1000000}`, `{"window":1000}`, `{"models":"x"}`, `{"maxCost":1000000}`,
		`{"sandbox":{"use":"off"}}`, `{"sandbox":{"write":["/srv"]}}`, `{"sandbox":{"hide":["a"],"reveal":["b"]}}`,
		`{"skills":["/"]}`, `{"labels":["x"]}`, `{"mcpServers":{"x":{"command":"touch","args":["made"]}}}`, `{"mcpServers":{"x":{"url":"` + evil.URL + `"}},"permissions":{"deny":["Bash"]}}`,
	} {
		workspace(t)
		writeConfig(t, configFile, text)
		s := serve(t)
		t.Setenv("OPENAI_BASE_URL", "") // it would override the file
		got := kitbag(t.Context(), "run", "--base-url", s.URL, "go")
		if got.code != exitUsage || !strings.Contains(got.stderr, "--trust") || !strings.Contains(got.stderr, configFile) {
			t.Errorf("%s: %+v", text, got)
		}
		if got := kitbag(t.Context(), "run", "go"); got.code != exitUsage {
			t.Errorf("%s: %+v", text, got)
		}
		if len(s.Requests())+len(evil.Requests()) != 0 {
			t.Errorf("%s: a server was contacted", text)
		}
	}
}

// TestConfigRestricts checks that deny and ask rules need no trust, and override all other settings.
func TestConfigRestricts(t *testing.T) {
	for _, row := range []struct {
		text, typed string // typed is the answer to the trust question
		code        int
	}{
		{`{"permissions":{"deny":["Bash(touch:*)"]}}`, "", exitDone},
		{`{"permissions":{"ask":["Bash(touch:*)"]}}`, "", exitWaiting},
		{`{"permissions":{"deny":["Bash(touch:*)"],"allow":["Bash"],"mode":"bypass"}}`, "n\n", exitDone},
		{`{"permissions":{"deny":["Bash(touch:*)"],"allow":["Bash"],"mode":"bypass"}}`, "y\n", exitDone},
	} {
		dir := workspace(t)
		writeConfig(t, configFile, row.text)
		answerTrust(t, row.typed)
		turns := []openaitest.Turn{openaitest.Calls(call("Bash", `{"command":"touch made"}`)), openaitest.Text("well")}
		if row.code == exitWaiting {
			turns = turns[:1]
		}
		serve(t, turns...)
		args := []string{"run", "--mode", "bypass", "go"}
		if row.typed == "n\n" {
			args = append(args, "--trust") // deny rules apply with it too
		}
		if got := kitbag(t.Context(), args...); got.code != row.code {
			t.Errorf("%s: %+v", row.text, got)
		}
		if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
			t.Errorf("%s: it ran", row.text)
		}
	}
}

// answerTrust answers the trust question at a terminal, and returns the resulting configuration and the output.
func answerTrust(t *testing.T, typed string) (*config, string) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c, err := readConfig(filepath.Join(dir, configFile), os.Lstat)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	p := newPrompt(strings.NewReader(typed), &log)
	c.skillFolders = existingSkillFolders(dir)
	if err := new(agentFlags).askConsent(t.Context(), c, p, &log); err != nil && typed != "" {
		t.Fatal(err)
	}
	for range p.lines { // wait for the reader to end
	}
	return c, log.String()
}

// TestTrustIsRemembered agrees to a file; the consent applies only to its content at its path.
func TestTrustIsRemembered(t *testing.T) {
	const text = `{"permissions":{"allow":["Bash(touch:*)"]}}`
	dir := workspace(t)
	runs := func(why string, want int) {
		t.Helper()
		var turns []openaitest.Turn
		if want == exitDone {
			turns = []openaitest.Turn{openaitest.Calls(call("Bash", `{"command":"touch made"}`)), openaitest.Text("well")}
		}
		serve(t, turns...)
		code := kitbag(t.Context(), "run", "go").code
		if err := os.Remove("made"); code != want || (err == nil) != (code == exitDone) {
			t.Errorf("%s: code %d, %v", why, code, err)
		}
	}
	writeConfig(t, configFile, text)
	if c, _ := answerTrust(t, "n\n"); len(c.needConsent()) != 0 {
		t.Errorf("refused: %q", c.needConsent())
	}
	runs("refused", exitUsage)
	if _, shown := answerTrust(t, "y\n"); !strings.Contains(shown, "permissions.allow = Bash(touch:*)") {
		t.Errorf("shown: %s", shown)
	}
	runs("trusted", exitDone)
	marks, err := filepath.Glob(filepath.Join(filepath.Dir(userConfig(t)), "trusted", "*"))
	if err != nil || len(marks) != 1 {
		t.Fatalf("%q, %v", marks, err)
	}
	if info, err := os.Stat(marks[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	writeConfig(t, configFile, text+"\n")
	runs("a changed file", exitUsage)
	writeConfig(t, configFile, text)
	t.Chdir(t.TempDir())
	writeConfig(t, configFile, text)
	runs("another directory", exitUsage)
	t.Chdir(dir)
	if err := os.Remove(marks[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(marks[0], 0o700); err != nil {
		t.Fatal(err)
	}
	runs("something else in its place", exitUsage)
	serve(t, openaitest.Text("well"))
	if got := kitbag(t.Context(), "run", "--trust", "go"); got.code != exitDone {
		t.Errorf("--trust: %+v", got)
	}
}

// TestTrustQuestion checks that the question cannot hide or disguise settings.
func TestTrustQuestion(t *testing.T) {
	workspace(t)
	writeConfig(t, configFile, `{"model":"m\n  Do you trust it?\u001b[2J`+strings.Repeat(`\n`, 300)+`",`+
		strings.Repeat("\n", 9000)+`"permissions":{"\u0061llow":["Bash(rm:*)"]}}`)
	_, shown := answerTrust(t, "n\n")
	if strings.Count(shown, "\n") != 3 || strings.Contains(shown, "\x1b") || !strings.Contains(shown, "    | permissions.allow = Bash(rm:*)\n") {
		t.Errorf("%q", shown)
	}
}

// TestTrustQuestionOfServers checks that a server is shown as it will be started, with variables by name only.
func TestTrustQuestionOfServers(t *testing.T) {
	dir := workspace(t)
	t.Setenv("SECRET", "hush")
	writeConfig(t, configFile, `{"skills":["more"],"mcpServers":{"a\u001bJ":{"command":"true"},"b":{"url":"https://x.example/?${SECRET}",
		"\u0065nv":{"LD_PRELOAD":"./x.so"},
		"args":[12345678901234567890]}}}`)
	if err := os.MkdirAll(".agents/skills", 0o700); err != nil {
		t.Fatal(err)
	}
	c, shown := answerTrust(t, "n\n")
	want := `    | mcpServers.aJ = {"command":"true"}
    | mcpServers.b = {"args":[12345678901234567890],"env":{"LD_PRELOAD":"./x.so"},"url":"https://x.example/?${SECRET}"}
    | skills = ` + filepath.Join(dir, "more") + `
    | skills = ` + filepath.Join(dir, ".agents", "skills") + `
`
	if !strings.Contains(shown, want) || strings.Contains(shown, "hush") || len(c.servers)+len(c.skills)+len(c.skillFolders) != 0 {
		t.Errorf("%+v\n%s", c, shown)
	}
	c, _ = answerTrust(t, "y\n")
	servers, broken, err := loadConfigs(c.servers)
	if err != nil || len(broken) != 0 || len(servers) != 2 || servers[1].Transport.(mcpclient.HTTP).URL != "https://x.example/?hush" {
		t.Errorf("what is started is not what was shown: %+v, %v, %v", servers, broken, err)
	}
}

// TestConfigOrder checks the order of precedence: flags, variables, the directory, the user.
func TestConfigOrder(t *testing.T) {
	for _, row := range []struct {
		args              []string
		variable, project string
		want              string
	}{
		{nil, "", `{}`, "of the user"},
		{nil, "", `{"model":"of the project"}`, "of the project"},
		{nil, "of the variable", `{"model":"of the project"}`, "of the variable"},
		{[]string{"--model", "of the flag"}, "of the variable", `{"model":"of the project"}`, "of the flag"},
	} {
		workspace(t)
		s := serve(t, openaitest.Text("well"))
		t.Setenv("KITBAG_MODEL", row.variable)
		t.Setenv("OPENAI_BASE_URL", "")
		writeConfig(t, userConfig(t), `{"model":"of the user","baseURL":"`+s.URL+`","system":"sys.md","permissions":{"allow":["Bash"]}}`)
		writeConfig(t, filepath.Join(filepath.Dir(userConfig(t)), "sys.md"), "You are terse.")
		if err := os.Rename(userConfig(t), userConfig(t)+".kept"); err != nil { // the user's own may be a link
			t.Fatal(err)
		}
		if err := os.Symlink(userConfig(t)+".kept", userConfig(t)); err != nil {
			t.Fatal(err)
		}
		writeConfig(t, configFile, row.project)
		got := kitbag(t.Context(), append([]string{"run", "--trust", "go"}, row.args...)...)
		if got.code != exitDone || s.Requests()[0].Model != row.want || !strings.Contains(s.Requests()[0].Messages[0].Text(), "You are terse.") {
			t.Errorf("%q: %+v", row.want, got)
		}
	}
}

// TestNoLabels checks that an empty list of labels in the user's configuration is not taken for an absent one, which
// means all servers.
func TestNoLabels(t *testing.T) {
	workspace(t)
	writeConfig(t, userConfig(t), `{"labels":[]}`)
	c, err := readConfigs(func(*config) error { return nil })
	if err != nil || c.labels == nil || len(c.labels) > 0 {
		t.Errorf("%#v, %v", c.labels, err)
	}
}

// TestConfigErrors checks that an invalid file ends the run.
func TestConfigErrors(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{`{"Model":"m"}`, "unknown key Model"},
		{`{"mode":"bypass"}`, "unknown key mode"},
		{`{"model":7}`, "model must be a string; it is 7"},
		{`{"skills":"docs"}`, `skills must be a list of folders; it is "docs"`},
		{`{"skills":["docs"]}`, "docs: "},
		{`{"skills":["~/docs"]}`, `"~/docs" is not a folder`},
		{`{"skills":[""]}`, `"" is not a folder`},
		{`{"mcpServers":[]}`, "mcpServers must be an object of servers; it is []"},
		{`{"maxSteps":-1}`, "maxSteps must be a positive whole number of model calls, such as 20; it is -1"},
		{`{"maxCost":-1}`, "maxCost must be a positive number of US dollars, such as 2.5; it is -1"},
		{`{"maxCost":"2"}`, `maxCost must be a positive number of US dollars, such as 2.5; it is "2"`},
		{`{"models":"none.json"}`, "models in kitbag.json: "},
		{`{"system":"none.md"}`, "--system, or system in kitbag.json: "},
		{`{"models":{}}`, `models must be the name of a file; it is {}`},
		{`{"window":-1}`, "window must be a positive whole number of tokens, such as 32000; it is -1"},
		{`{"window":"large"}`, "window must be a positive whole number"},
		{`{"sandbox":[]}`, "sandbox must be an object; it is []"},
		{`{"sandbox":{"use":"of"}}`, `sandbox.use: unknown value "of"; write auto, required or off`},
		{`{"sandbox":{"use":false}}`, "sandbox.use must be a string; it is false"},
		{`{"sandbox":{"Hide":["x"]}}`, "sandbox.Hide: unknown key; the keys are hide, protect, reveal, use, write"},
		{`{"sandbox":{"network":true}}`, `write "Network" under permissions.allow`},
		{`{"sandbox":{"hide":"x"}}`, `sandbox.hide must be a list of paths; it is "x"`},
		{`{"sandbox":{"hide":["**/*.pem"]}}`, `sandbox.hide: "**/*.pem" is not a path`},
		{`{"sandbox":{"protect":[""]}}`, `sandbox.protect: "" is not a path`},
		{`{"sandbox":{"hide":["a"],"hide":[]}}`, "sandbox.hide is a duplicate key"},
		{`{"sandbox":{"write":["missing"]}}`, "sandbox.write: "},
		{`{"sandbox":{"hide":["/usr/share"],"reveal":["/usr/share/doc"]}}`, "sandbox.reveal: /usr/share/doc is in /usr/share, which is hidden as a whole"},
		{`[]`, "must be a JSON object"},
		{``, "must be a JSON object"},
		{`{} {}`, "must be a JSON object"},
		{`{"permissions":{"deny":["Bash("]}}`, `"Bash("`},
		{`{"permissions":{"Deny":["Bash"]}}`, "unknown key permissions.Deny"},
		{`{"permissions":{"trustReadOnly":"yes"}}`, "permissions"},
		{`{"permissions":{"mode":"default"},"permissions":{"mode":"bypass"}}`, "permissions is a duplicate key"},
		{`{"permissions":{"deny":["Bash"],"deny":[]}}`, "permissions.deny is a duplicate key"},
		{`{"model":"a","model":"b"}`, "model is a duplicate key"},
		{`{"mcpServers":{"x":{"env":{"A":"1"},"\u0065nv":{"LD_PRELOAD":"./x.so"}}}}`, "mcpServers.x.env is a duplicate key"},
		{`{"permissions":{"additionalDirectories":["~/x"]}}`, "is not absolute"},
		{`{"model":"` + strings.Repeat("m", maxConfig) + `"}`, "more than 65536 bytes"},
	} {
		for _, file := range []string{configFile, ""} {
			workspace(t)
			serve(t)
			if file == "" {
				file = userConfig(t)
			}
			writeConfig(t, file, row.text)
			if got := kitbag(t.Context(), "run", "--trust", "go"); got.code != exitError || !strings.Contains(got.stderr, row.want) || !strings.Contains(got.stderr, configFile) {
				t.Errorf("%.80s: %.300s", row.text, got.stderr)
			}
		}
	}
	dir := workspace(t)
	for _, target := range []string{"real.json", "nowhere.json", "/dev/zero"} {
		writeConfig(t, "real.json", `{}`)
		if err := os.Symlink(target, filepath.Join(dir, configFile)); err != nil {
			t.Fatal(err)
		}
		if got := kitbag(t.Context(), "run", "--trust", "go"); got.code != exitError || !strings.Contains(got.stderr, "not a link") {
			t.Errorf("a link to %s: %+v", target, got)
		}
		if err := os.Remove(filepath.Join(dir, configFile)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConfigWithByteOrderMark reads a file as editors on Windows save it.
func TestConfigWithByteOrderMark(t *testing.T) {
	workspace(t)
	writeConfig(t, configFile, "\ufeff"+`{"permissions":{"deny":["Bash(ls:*)"]}}`)
	if got := kitbag(t.Context(), "permission", "explain", "ls"); got.code != exitDone || !strings.Contains(got.out, "DENY") {
		t.Errorf("%+v", got)
	}
	if _, err := mcpgateway.Load(configFile); err != nil { // the same file for kitbag mcp serve
		t.Error(err)
	}
}

// TestConfigServersAndSkills has configurations with servers and skills: they apply once the user
// trusts them, in addition to those of the flags and of the user's configuration.
func TestConfigServersAndSkills(t *testing.T) {
	dir := workspace(t)
	servers := func(name string) string {
		data, err := json.Marshal(map[string]any{name: self(t, "--demo")})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	skillFile(t, "docs/skills/mine/SKILL.md", "---\nname: mine\ndescription: Use when it is of the project.\n---\nDo.\n")
	skillFile(t, filepath.Join(filepath.Dir(userConfig(t)), "skills/yours/SKILL.md"), "---\nname: yours\ndescription: Use when it is of the user.\n---\nDo.\n")
	writeConfig(t, configFile, `{"mcpServers":`+servers("project")+`,"skills":["docs/skills"],"permissions":{"deny":["project__echo"]}}`)
	writeConfig(t, userConfig(t), `{"mcpServers":`+servers("user")+`,"skills":["skills"]}`)
	writeServers(t, "flag.json", map[string]any{"flag": self(t, "--demo")})

	got := kitbag(t.Context(), "tools", "--mcp", "flag.json", "--open", "flag", "--open", "user")
	if got.code != exitDone || !strings.Contains(got.out, "mcp__flag__echo") || !strings.Contains(got.out, "mcp__user__echo") ||
		strings.Contains(got.out, "project") || !strings.Contains(got.stderr, filepath.Join(dir, configFile)+" is not trusted") {
		t.Errorf("not trusted: %+v", got)
	}
	if got := kitbag(t.Context(), "tools", "--open", "project"); got.code != exitUsage || !strings.Contains(got.stderr, "--trust") {
		t.Errorf("a server that is not trusted: %+v", got)
	}
	if got := kitbag(t.Context(), "tools", "--trust", "--mcp", configFile); strings.Contains(got.stderr, "skipped") || strings.Count(got.out, "project") != 1 {
		t.Errorf("the same file twice: %+v", got)
	}
	s := serve(t, openaitest.Calls(call("reset_tools", `{"project":true}`)), openaitest.Calls(call("mcp__project__echo", `{"message":"hi"}`)), openaitest.Text("well"))
	got = kitbag(t.Context(), "run", "--trust", "--mode", "bypass", "go")
	if got.code != exitDone || !strings.Contains(got.stderr, "denied by rule mcp__project__echo") {
		t.Errorf("trusted, with a rule that names the tool as the gateway does: %+v", got)
	}
	system := s.Requests()[0].Messages[0].Text()
	if !strings.Contains(system, "of the project") || !strings.Contains(system, "of the user") {
		t.Errorf("the system prompt lacks the skills: %s", system)
	}
}

// TestFoundSkills checks that the directory's skills are skipped until the user consents, without an error.
func TestFoundSkills(t *testing.T) {
	workspace(t)
	skillFile(t, ".agents/skills/evil/SKILL.md", "---\nname: evil\ndescription: Use when it is too late.\n---\nDo.\n")
	check := func(why string, want bool, args ...string) {
		t.Helper()
		s := serve(t, openaitest.Text("well"))
		got := kitbag(t.Context(), append([]string{"run", "go"}, args...)...)
		listed := strings.Contains(s.Requests()[0].Messages[0].Text(), "too late")
		if got.code != exitDone || listed != want || strings.Contains(got.stderr, "skipped: the skills in") == want {
			t.Errorf("%s: listed %v: %+v", why, listed, got)
		}
	}
	check("found", false)
	check("named", true, "--skills", ".agents/skills")
	check("trusted this time", true, "--trust")
	answerTrust(t, "n\n")
	check("refused", false)
	answerTrust(t, "y\n")
	check("trusted", true)
	skillFile(t, ".claude/skills/more/SKILL.md", "---\nname: more\ndescription: Use when there is more.\n---\nDo.\n")
	check("another folder", false)
	answerTrust(t, "y\n")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(here, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(link)
	check("through a link", true)
}

// TestExplainReadsConfigurations checks that explain uses the settings of "kitbag run", but with --json only
// those of the line.
func TestExplainReadsConfigurations(t *testing.T) {
	workspace(t)
	line := `{"tool":"Bash","input":{"command":"git status"},"mode":"default"}` + "\n"
	lines := func() string {
		var out, stderr bytes.Buffer
		run(t.Context(), []string{"permission", "explain", "--json"}, strings.NewReader(line), &out, &stderr)
		return out.String() + stderr.String()
	}
	before := lines()
	writeConfig(t, configFile, `{"permissions":{"deny":["Bash(git:*)"],"allow":["Bash(npm:*)"],"mode":"dont-ask"}}`)
	writeConfig(t, userConfig(t), `{"permissions":{"ask":["Bash(ls:*)"],"mode":"bypass"}}`)
	if after := lines(); after != before {
		t.Errorf("a configuration changed the answer of --json: %s, before %s", after, before)
	}
	for _, row := range []struct {
		args []string
		want string
		warn bool
	}{
		{[]string{"git status"}, "DENY: denied by rule Bash(git:*)\n  the rule is from: ", true},
		{[]string{"ls"}, "ASK: ", true},
		{[]string{"npm run x"}, "ALLOW: mode bypass", true}, // the mode is the user's
		{[]string{"--trust", "npm run x"}, "ALLOW: allowed by rule Bash(npm:*)", false},
		{[]string{"--mode", "default", "npm run x"}, "ASK: ", true},
		{[]string{"--settings", configFile, "npm run x"}, "ALLOW: allowed by rule Bash(npm:*)", false},
	} {
		got := kitbag(t.Context(), append([]string{"permission", "explain"}, row.args...)...)
		if got.code != exitDone || !strings.HasPrefix(got.out, row.want) || strings.Contains(got.stderr, "is not trusted") != row.warn {
			t.Errorf("%q: %+v", row.args, got)
		}
	}
}

// TestConfigOfDocs checks that docs/cli.md shows a valid configuration.
func TestConfigOfDocs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```json\n")
	text, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatal("docs/cli.md shows no configuration")
	}
	workspace(t)
	if err := os.MkdirAll("docs/skills", 0o700); err != nil {
		t.Fatal(err)
	}
	writeConfig(t, configFile, text)
	if got := kitbag(t.Context(), "tools", "--trust"); got.code != exitDone || !strings.Contains(got.out, "memory") || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	if _, shown := answerTrust(t, "n\n"); strings.Count(shown, "    | ") != 5 {
		t.Errorf("the question of trust: %s", shown)
	}
}

// TestConfigServesBoth configures an agent and a gateway with one file.
func TestConfigServesBoth(t *testing.T) {
	dir := workspace(t)
	file := filepath.Join(dir, configFile)
	writeConfig(t, file, `{"model":"m","baseURL":"http://127.0.0.1:1/v1","system":"s.md","maxSteps":3,"window":8000,
		"skills":[],"mcpServers":{"a":{"command":"false"}},"groups":{},"labels":[],"perSession":[],"initial":[],"style":"reset","search":true,
		"permissions":{"mode":"default","trustReadOnly":true},"audit":{"file":"audit.jsonl"},"instructions":"i","hosts":[],"origins":[],
		"replicas":{"store":"postgres://db/mcp","url":"http://10.0.0.7:8080/"}}`)
	if _, err := mcpgateway.Load(file); err != nil {
		t.Error(err)
	}
	c, err := readConfig(file, os.Lstat)
	if err != nil || c.maxSteps != 3 || c.window != 8000 || c.system != filepath.Join(dir, "s.md") || !c.policy.TrustReadOnly {
		t.Errorf("%+v, %v", c, err)
	}
	mark, err := consentFile(c)
	if _, bad := hex.DecodeString(filepath.Base(mark)); err != nil || bad != nil {
		t.Errorf("%s, %v", mark, err)
	}
}
