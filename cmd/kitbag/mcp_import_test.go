package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
)

// TestImport reads a file of each host. The sources of the forms are the hosts' own pages, named in docs/gateway-hosts.md.
func TestImport(t *testing.T) {
	dir := workspace(t)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("HOME", filepath.Join(dir, "home"))
	const secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	write := func(file, data string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config/Claude/claude_desktop_config.json", `{"globalShortcut":"","mcpServers":{"github":{"command":"npx","args":["-y","server","--api-key","`+secret+`"],"env":{"GITHUB_TOKEN":"`+secret+`","MODE":"fast"}}}}`)
	write("home/.cursor/mcp.json", `{"mcpServers":{"remote":{"url":"https://example.com/mcp","headers":{"Authorization":"Bearer `+secret+`"}},"own":{"command":"other"}}}`)
	write(".vscode/mcp.json", "{\n\t// asked once\n\t\"inputs\": [{\"id\": \"api-key\", \"type\": \"promptString\"}],\n\t\"servers\": {\"code\": {\"type\": \"stdio\", \"command\": \"code-server\", \"env\": {\"KEY\": \"${input:api-key}\"},},},\n}")
	write("home/.codex/config.toml", "model = \"x\"\n[mcp_servers.docs]\ncommand = \"docs\"\nargs = [\"--all\"]\nenv_vars = [\"HOME\"]\nenabled = false\nstartup_timeout_sec = 20\n[mcp_servers.docs.env]\nDB_PASSWORD = \"hunter2\"\n[mcp_servers.web]\nurl = \"https://example.org/mcp\"\nbearer_token_env_var = \"WEB_TOKEN\"\nenv_http_headers = { X-Team = \"TEAM\" }\n")
	write(".mcp.json", "{\n\t// ours\n\t\"mcpServers\": {\"own\": {\"command\": \"own\"}}\n}\n")

	shown := kitbag(t.Context(), "mcp", "import")
	if data, err := os.ReadFile(".mcp.json"); err != nil || shown.code != exitDone || strings.Contains(string(data), "github") || !strings.Contains(shown.out, "--write to add 5 servers") {
		t.Fatalf("import: %+v %v %s", shown, err, data)
	}
	got := kitbag(t.Context(), "mcp", "import", "--write")
	data, err := os.ReadFile(".mcp.json")
	if err != nil || got.code != exitDone {
		t.Fatalf("import --write: %+v %v", got, err)
	}
	for _, text := range []string{shown.out, got.out, string(data)} {
		if strings.Contains(text, secret) || strings.Contains(text, "hunter2") {
			t.Errorf("a secret was copied: %s", text)
		}
	}
	for _, want := range []string{"// ours", `"own"`, `"GITHUB_TOKEN":"${GITHUB_TOKEN}"`, `"MODE":"fast"`, `"Authorization":"Bearer ${REMOTE_AUTHORIZATION}"`,
		`"--api-key","${GITHUB_API_KEY}"`, `"KEY":"${API_KEY}"`, `"DB_PASSWORD":"${DB_PASSWORD}"`, `"HOME":"${HOME}"`, `"disabled":true`,
		`"Authorization":"Bearer ${WEB_TOKEN}"`, `"X-Team":"${TEAM}"`} {
		if !strings.Contains(strings.Join(strings.Fields(string(data)), ""), strings.Join(strings.Fields(want), "")) {
			t.Errorf("no %s in\n%s", want, data)
		}
	}
	if !strings.Contains(got.out, "! skipped: ") || !strings.Contains(got.out, "! set the environment variable GITHUB_TOKEN;") {
		t.Errorf("output: %s", got.out)
	}
	for _, name := range []string{"GITHUB_TOKEN", "GITHUB_API_KEY", "REMOTE_AUTHORIZATION", "API_KEY", "DB_PASSWORD", "WEB_TOKEN", "TEAM"} {
		t.Setenv(name, "x")
	}
	if servers, err := mcpclient.Load(".mcp.json"); err != nil || len(servers) != 5 { // docs is disabled
		t.Errorf("%d servers: %v", len(servers), err)
	}
	if again := kitbag(t.Context(), "mcp", "import", "--write"); !strings.Contains(again.out, "no servers to add") {
		t.Errorf("again: %s", again.out)
	}
}

func TestAddAndRemove(t *testing.T) {
	workspace(t)
	for _, row := range []struct {
		args []string
		code int
		want string // in the file, or of the error
	}{
		{[]string{"add", "a", "--env", "MODE=x", "--env", "A_TOKEN=0123456789", "--", "npx", "-y", "server"}, exitDone, `{"mcpServers":{"a": {"command": "npx", "args": ["-y", "server"], "env": {"A_TOKEN": "${A_TOKEN}", "MODE": "x"}}}}`},
		{[]string{"add", "b/c~d", "--url", "https://example.com/mcp", "--header", "Authorization: Bearer ${B}"}, exitDone, `"Bearer ${B}"`},
		{[]string{"add", "joined", "--", "npx", "--api-key=0123456789", "-p=8080"}, exitDone, `"args": ["--api-key=${JOINED_API_KEY}", "-p=8080"]`},
		{[]string{"add", "boxed", "--", "docker", "-e", "GITHUB_TOKEN=0123456789", "--env=API_KEY=012=", "-e", "MODE=a=b", "--password", "a=b"}, exitDone, `"args": ["-e", "GITHUB_TOKEN=${BOXED_GITHUB_TOKEN}", "--env=API_KEY=${BOXED_API_KEY}", "-e", "MODE=a=b", "--password", "${BOXED_PASSWORD}"]`},
		{[]string{"add", "form", "--env", "PAT=ghp_0123456789abcdefghijABCDEFGHIJ012345", "--env", "OTHER=ghp_0123456789abcdefghijABCDEFGHIJ012345", "--", "npx", "ghp_0123456789abcdefghijABCDEFGHIJ012345"}, exitDone, `"args": ["${FORM}"], "env": {"OTHER": "${OTHER}", "PAT": "${PAT}"}`},
		{[]string{"add", "same", "--env", "SAME_TOKEN_2=012", "--", "x", "--token", "345", "--token", "678", "--token", "9"}, exitDone, `"args": ["--token", "${SAME_TOKEN}", "--token", "${SAME_TOKEN_3}", "--token", "${SAME_TOKEN_4}"]`},
		{[]string{"add", "page", "--url", "https://x.example/mcp?team=a&api_key=0123456789"}, exitDone, `"url": "https://x.example/mcp?team=a&api_key=${PAGE_API_KEY}"`},
		{[]string{"add", "login", "--url", "https://me:0123456789@x.example/mcp"}, exitDone, `"url": "${LOGIN_URL}"`},
		{[]string{"add", "a", "npx"}, exitError, "kitbag mcp remove a"},
		{[]string{"add", "x"}, exitUsage, "either a command or a URL"},
		{[]string{"add", "x", "--env", "Y", "z"}, exitUsage, "NAME=VALUE"},
		{[]string{"remove", "x"}, exitError, `no server "x"; choose from a, b/c~d, boxed, form, joined, login, page, same`},
		{[]string{"remove", "b/c~d"}, exitDone, `"a"`},
	} {
		got := kitbag(t.Context(), append([]string{"mcp"}, row.args...)...)
		data, _ := os.ReadFile(defaultServers)
		if text := strings.Join(strings.Fields(string(data)+got.stderr), ""); got.code != row.code || !strings.Contains(text, strings.Join(strings.Fields(row.want), "")) {
			t.Errorf("%q: %d %s\n%s", row.args, got.code, got.stderr, data)
		}
	}
	// An entry that was not stored is not printed, and the error names the file, not a temporary one.
	if got := kitbag(t.Context(), "mcp", "add", "--mcp", "none/x.json", "y", "--", "z"); got.code != exitError || got.out != "" || !strings.Contains(got.stderr, "none/x.json: ") {
		t.Errorf("%+v", got)
	}
	if data, err := os.ReadFile(defaultServers); err != nil || strings.Contains(string(data), "b/c~d") {
		t.Errorf("%v %s", err, data)
	}
}

// TestHostsPage reads the configurations in docs/gateway-hosts.md.
func TestHostsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/gateway-hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for kind, ext := range map[string]string{"json": "x.json", "toml": "x.toml"} {
		for _, rest := range strings.Split(string(page), "```"+kind+"\n")[1:] {
			text, _, _ := strings.Cut(rest, "```")
			file := filepath.Join(t.TempDir(), ext)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			entries, err := hostServers(file)
			if err != nil || entries["kitbag"] == nil || (entries["kitbag"].Command == "") == (entries["kitbag"].URL == "") {
				t.Errorf("%v in\n%s", err, text)
			}
			blocks++
		}
	}
	if blocks != 5 {
		t.Errorf("%d blocks", blocks)
	}
}
