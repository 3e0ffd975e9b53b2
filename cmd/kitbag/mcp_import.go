package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/tailscale/hujson"
)

// A hostServer is an entry for an MCP server, in the format of kitbag or of another host such as Cursor.
type hostServer struct {
	Type     string            `json:"type,omitempty"`
	Command  string            `json:"command,omitempty"`
	Args     []string          `json:"args,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Cwd      string            `json:"cwd,omitempty"`
	URL      string            `json:"url,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Disabled bool              `json:"disabled,omitempty"`

	// Only Codex has the following members.
	Enabled     *bool             `json:"enabled,omitempty" toml:"enabled"`
	EnvVars     []string          `json:"-" toml:"env_vars"`
	BearerVar   string            `json:"-" toml:"bearer_token_env_var"`
	TOMLHeaders map[string]string `json:"-" toml:"http_headers"`
	HeaderVars  map[string]string `json:"-" toml:"env_http_headers"`
}

// hostFiles returns the files in which other hosts store their servers.
func hostFiles() []string {
	files := []string{".cursor/mcp.json", ".vscode/mcp.json", ".codex/config.toml"}
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".cursor", "mcp.json"), filepath.Join(home, ".codex", "config.toml"))
	}
	if dir, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(dir, "Claude", "claude_desktop_config.json"), filepath.Join(dir, "Code", "User", "mcp.json"))
	}
	return files
}

// hostServers reads the servers in a host's file, and converts them to kitbag's format.
func hostServers(file string) (map[string]*hostServer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config struct {
		MCPServers map[string]*hostServer `json:"mcpServers" toml:"mcp_servers"`
		Servers    map[string]*hostServer `json:"servers" toml:"-"` // VS Code
	}
	if filepath.Ext(file) == ".toml" {
		err = toml.Unmarshal(data, &config)
	} else if data, err = hujson.Standardize(data); err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if config.MCPServers == nil {
		config.MCPServers = config.Servers
	}
	for name, e := range config.MCPServers {
		if e == nil {
			return nil, fmt.Errorf("%s: server %q must be an object", file, name)
		}
		e.normalize()
	}
	return config.MCPServers, nil
}

// inputRef matches a reference to a value for which VS Code asks the user.
var inputRef = regexp.MustCompile(`\$\{input:([^}]*)\}`)

// normalize replaces the members of Codex and the references of VS Code by those of kitbag.
func (e *hostServer) normalize() {
	if e.Enabled != nil {
		e.Disabled, e.Enabled = !*e.Enabled, nil
	}
	for _, name := range e.EnvVars {
		put(&e.Env, name, "${"+name+"}")
	}
	for name, value := range e.TOMLHeaders {
		put(&e.Headers, name, value)
	}
	for name, variable := range e.HeaderVars {
		put(&e.Headers, name, "${"+variable+"}")
	}
	if e.BearerVar != "" {
		put(&e.Headers, "Authorization", "Bearer ${"+e.BearerVar+"}")
	}
	e.EnvVars, e.TOMLHeaders, e.HeaderVars, e.BearerVar = nil, nil, nil, ""
	e.replaceValues(func(_, value string) string {
		return inputRef.ReplaceAllStringFunc(value, func(ref string) string { return "${" + variableName(inputRef.FindStringSubmatch(ref)[1]) + "}" })
	})
}

func put(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

// replaceValues replaces every value that may contain a secret by the result of change. key is the name of the variable,
// header, flag or parameter that has the value; "" for an argument without a flag.
func (e *hostServer) replaceValues(change func(key, value string) string) {
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		e.Env[name] = change(name, e.Env[name])
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		e.Headers[name] = change(name, e.Headers[name])
	}
	flag := "" // the flag before arg
	for i, arg := range e.Args {
		e.Args[i] = changeArg(flag, arg, change)
		if flag = ""; strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") {
			flag = strings.TrimLeft(arg, "-")
		}
	}
	e.URL = queryParameter.ReplaceAllStringFunc(change("url", e.URL), func(parameter string) string {
		name, value, _ := strings.Cut(parameter, "=")
		return name + "=" + change(name[1:], value)
	})
}

// changeArg changes the VALUE in arg: VALUE, --flag=VALUE, NAME=VALUE or --env=NAME=VALUE. flag is the flag before arg.
func changeArg(flag, arg string, change func(key, value string) string) string {
	name, value, ok := strings.Cut(arg, "=")
	if !ok || !argName.MatchString(name) || secretName.MatchString(flag) {
		return change(flag, arg) // all of arg is the value of flag
	}
	key := strings.TrimLeft(name, "-")
	if secretName.MatchString(key) {
		return name + "=" + change(key, value)
	}
	return name + "=" + changeArg(key, value, change)
}

// argName matches what can be before the = of an argument: a flag or the name of a variable.
var argName = regexp.MustCompile(`^-*[A-Za-z_][\w.-]*$`)

// queryParameter matches a parameter with its ? or &.
var queryParameter = regexp.MustCompile(`[?&][^=&#]+=[^&#]*`)

// secretName matches names of variables, headers and flags whose values are secrets.
var secretName = regexp.MustCompile(`(?i)token|secret|passw|credential|authorization|cookie|api.?key|(^|[-_])(key|pat|auth)$`)

var notAlphanumeric = regexp.MustCompile(`[^A-Z0-9]+`)

// variableName makes s the name of an environment variable.
func variableName(s string) string {
	return strings.Trim(notAlphanumeric.ReplaceAllString(strings.ToUpper(s), "_"), "_")
}

// removeSecrets replaces secrets by references to environment variables, whose names it returns.
func (e *hostServer) removeSecrets(server string) (variables []string, err error) {
	redact, err := newRedactor()
	if err != nil {
		return nil, err
	}
	e.replaceValues(func(key, value string) string {
		looksSecret := secretName.MatchString(key) || redact.Text(value) != value
		if value == "" || strings.Contains(value, "${") || !looksSecret {
			return value
		}
		name := variableName(server + "_" + key)
		if _, isEnv := e.Env[key]; isEnv {
			name = key // the name that the server documents
		}
		for base, n := name, 2; slices.Contains(variables, name); n++ {
			name = fmt.Sprintf("%s_%d", base, n)
		}
		variables = append(variables, name)
		// Keep the scheme of an Authorization header, so that the variable has the token only.
		if scheme, _, ok := strings.Cut(value, " "); ok && (strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "basic")) {
			return scheme + " ${" + name + "}"
		}
		return "${" + name + "}"
	})
	return variables, nil
}

// A serverEditor changes a file with servers. It keeps the comments and the order of members.
type serverEditor struct {
	file    string
	content hujson.Value
	servers map[string]json.RawMessage // the entries of mcpServers
}

// newServerEditor reads a file, which may be missing.
func newServerEditor(file string) (*serverEditor, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte("{}"), nil
	}
	if err != nil {
		return nil, err
	}
	s := &serverEditor{file: file, servers: map[string]json.RawMessage{}}
	if s.content, err = hujson.Parse(data); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	standard := s.content.Clone()
	standard.Standardize()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(standard.Pack(), &members); err != nil {
		return nil, fmt.Errorf("%s: must be a JSON object: %w", file, err)
	}
	if members["mcpServers"] == nil {
		if len(members) > 0 && filepath.Base(file) == defaultServers { // members may be servers; adding mcpServers would hide them
			return nil, fmt.Errorf("%s: mcpServers is missing; add \"mcpServers\": {} first", file)
		}
		return s, s.patch("add", "", json.RawMessage("{}"))
	}
	if err := json.Unmarshal(members["mcpServers"], &s.servers); err != nil {
		return nil, fmt.Errorf("%s: mcpServers must be an object: %w", file, err)
	}
	return s, nil
}

// patch applies a JSON Patch operation to a server, or to mcpServers if name is empty.
func (s *serverEditor) patch(op, name string, value any) error {
	path := "/mcpServers"
	if name != "" {
		path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return patchJSON(&s.content, op, path, value)
}

func (s *serverEditor) save() error {
	formatJSON(&s.content)
	return replaceFile(s.file, s.content.Pack())
}

// add adds a server without its secrets, and prints the name with a note, the entry, and the variables to set.
func (s *serverEditor) add(out io.Writer, name, note string, e *hostServer) error {
	if _, ok := s.servers[name]; ok {
		return fmt.Errorf("%s has a server %q; remove it first with: kitbag mcp remove %s", s.file, name, name)
	}
	if (e.Command == "") == (e.URL == "") {
		return fmt.Errorf("server %q needs either a command or a URL", name)
	}
	variables, err := e.removeSecrets(name)
	if err != nil {
		return err
	}
	if err := s.patch("add", name, e); err != nil {
		return err
	}
	s.servers[name] = nil // a second server of the same name is an error
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s%s: %s\n", plainLine(name), note, indented(string(data)))
	for _, v := range variables {
		fmt.Fprintf(out, "! set the environment variable %s; the value was not copied\n", v)
	}
	return nil
}

func mcpImportCommand() *cobra.Command {
	var file string
	var write bool
	cmd := &cobra.Command{
		Use:   "import [FILE...]",
		Short: "Copy the servers of Claude Desktop, Cursor, VS Code and Codex",
		Long: `Show the servers that the files of other hosts have and this project's file
lacks; with --write, add them. Without FILE, the files that Claude Desktop, Cursor,
VS Code and Codex keep in their usual places are read, those of the project first.
Secrets are not copied: the entry refers to an environment variable instead.`,
		Example: "  kitbag mcp import\n  kitbag mcp import ~/.codex/config.toml --write",
		RunE: func(cmd *cobra.Command, args []string) error {
			return importServers(cmd.OutOrStdout(), file, args, write)
		},
	}
	cmd.Flags().StringVar(&file, "mcp", defaultServers, "the `FILE` to add servers to")
	cmd.Flags().BoolVar(&write, "write", false, "write the file")
	return cmd
}

// importServers adds the servers of the files in from to file. Without from it uses those of hostFiles that exist.
func importServers(out io.Writer, file string, from []string, write bool) error {
	searchAll := len(from) == 0
	if searchAll {
		from = hostFiles()
	}
	editor, err := newServerEditor(file)
	if err != nil {
		return err
	}
	added := 0
	for _, source := range from {
		entries, err := hostServers(source)
		switch {
		case searchAll && errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			if err := editor.add(out, name, " (from "+plainLine(source)+")", entries[name]); err != nil {
				fmt.Fprintf(out, "! skipped: %s: %s\n", plainLine(source), indented(err.Error()))
				continue
			}
			added++
		}
	}
	switch {
	case added == 0:
		fmt.Fprintln(out, "no servers to add")
	case !write:
		fmt.Fprintf(out, "%s was not changed; run this again with --write to add %d servers to it\n", file, added)
	default:
		return editor.save()
	}
	return nil
}

func mcpAddCommand() *cobra.Command {
	var file, url string
	var env, headers []string
	cmd := &cobra.Command{
		Use:   "add NAME {--url URL | COMMAND [ARG...]}",
		Short: "Add a server to the project's file",
		Example: `  kitbag mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
  kitbag mcp add docs --url https://example.com/mcp --header 'X-Key: ${DOCS_KEY}'`,
		Args: between(1, math.MaxInt, "NAME and a URL or COMMAND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e := &hostServer{URL: url}
			if (len(args) > 1) == (url != "") {
				return usage("server %q needs either a command or a URL: kitbag mcp add %[1]s -- COMMAND, or --url URL", args[0])
			}
			if len(args) > 1 {
				e.Command, e.Args = args[1], args[2:]
			}
			for _, variable := range env {
				name, value, ok := strings.Cut(variable, "=")
				if !ok {
					return usage("--env %s: it must be NAME=VALUE", variable)
				}
				put(&e.Env, name, value)
			}
			for _, header := range headers {
				name, value, ok := strings.Cut(header, ":")
				if !ok {
					return usage("--header: it must be NAME: VALUE") // without the header, which may be a secret
				}
				put(&e.Headers, strings.TrimSpace(name), strings.TrimSpace(value))
			}
			if err := checkURL(url); err != nil && url != "" {
				return usage("--url %s: %w", url, err)
			}
			editor, err := newServerEditor(file)
			if err != nil {
				return err
			}
			var added bytes.Buffer // printed once it is true
			if err := editor.add(&added, args[0], "", e); err != nil {
				return err
			}
			if err := editor.save(); err != nil {
				return err
			}
			_, err = added.WriteTo(cmd.OutOrStdout())
			return err
		},
	}
	cmd.Flags().StringVar(&file, "mcp", defaultServers, "the `FILE` to add the server to")
	cmd.Flags().StringVar(&url, "url", "", "the server's `URL`")
	cmd.Flags().StringArrayVar(&env, "env", nil, "an environment variable `NAME=VALUE` of the command, repeatable")
	cmd.Flags().StringArrayVar(&headers, "header", nil, "a header `NAME: VALUE` for the URL, repeatable")
	return cmd
}

func mcpRemoveCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a server from the project's file",
		Example: "  kitbag mcp remove files",
		Args:    between(1, 1, "the NAME of a server"),
		RunE: func(_ *cobra.Command, args []string) error {
			editor, err := newServerEditor(file)
			if err != nil {
				return err
			}
			if _, ok := editor.servers[args[0]]; !ok {
				return fmt.Errorf("%s has no server %q%s", file, args[0], suggestion(args[0], slices.Sorted(maps.Keys(editor.servers))))
			}
			if err := editor.patch("remove", args[0], nil); err != nil {
				return err
			}
			return editor.save()
		},
	}
	cmd.Flags().StringVar(&file, "mcp", defaultServers, "the `FILE` to remove the server from")
	return cmd
}
