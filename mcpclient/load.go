package mcpclient

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/internal/envref"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// A Server is an entry of a configuration file: the arguments of [New].
type Server struct {
	Name      string
	Transport Transport
	Options   Options

	// WantsRoots is set if the entry says "roots": true: the host should set Options.Roots.
	WantsRoots bool
}

// Load reads the servers of a JSON file in the form that MCP hosts use, sorted by name:
//
//	{"mcpServers": {
//		"files":  {"command": "npx", "args": ["-y", "some-server", "${HOME}"], "env": {"KEY": "${KEY:-none}"}},
//		"remote": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
//	}}
//
// It reads the variants of common hosts: "servers", "context_servers" or "mcp" instead of "mcpServers", or none
// of them; "httpUrl", "serverUrl", "cwd", "environment", a command that is a list, timeouts, tool lists,
// "disabled" and "enabled", comments and trailing commas. Only kitbag has "trustReadOnly", "roots", "sandbox",
// "write" and "network"; see [Options], [Server] and [Sandbox]. Unknown members are ignored. ${VAR} and
// ${env:VAR} are replaced from the environment and must be set; ${VAR:-default} may be unset.
//
// Load returns the valid servers even if it also returns an error, which joins a [*LoadError] for each of the
// others. If the file has a secret, such as a token in a header, and other users can read it, a warning is
// logged to [slog.Default].
func Load(path string) ([]Server, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("MCP servers: %w", err)
	}
	return Parse(path, data)
}

// Parse reads servers as [Load] does, from the data of the file at the path. Errors name the file, and its directory
// replaces ${workspaceFolder}.
func Parse(path string, data []byte) ([]Server, error) {
	entries, key, err := serverEntries(plainJSON(data))
	if err != nil {
		return nil, &LoadError{File: path, Key: key, Err: err}
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("MCP servers: %w", err)
	}
	var servers []Server
	var errs []error
	var secrets []string
	nameOf := map[string]string{} // servers' names as written, by their form in tool names without regard to case
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		where := strings.TrimPrefix(key+"."+name, ".") // key is empty if the file has only servers
		x := &expander{dir: dir}
		server, enabled, err := readEntry(name, entries[name], x)
		for _, at := range x.secrets {
			secrets = append(secrets, where+"."+at)
		}
		if err == nil && !enabled {
			continue
		}
		if err == nil {
			_, err = newConfig(server.Name, server.Transport, &server.Options)
		}
		inTools := strings.ToLower(legalName(name))
		if other := nameOf[inTools]; err == nil && other != "" {
			err = fmt.Errorf("its tools would have the same names as those of %q, ignoring case; rename one of the two", other)
		}
		if err != nil {
			errs = append(errs, &LoadError{File: path, Key: where, Server: name, Err: err})
			continue
		}
		nameOf[inTools] = name
		servers = append(servers, server)
	}
	warnIfReadable(path, secrets)
	return servers, errors.Join(errs...)
}

// A LoadError is an error in a file, and the place of the error.
type LoadError struct {
	File   string
	Key    string // such as "mcpServers.github"; empty for the whole file
	Server string // such as "github"; empty for the whole file
	Err    error
}

func (e *LoadError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.File, e.Key, e.Err)
}

func (e *LoadError) Unwrap() error { return e.Err }

// serverEntries finds the object that maps names to servers, and the key of that object. key is "" for the root, which
// must then have only servers.
func serverEntries(data []byte) (entries map[string]json.RawMessage, key string, err error) {
	var root map[string]json.RawMessage
	if err := json.Unmarshal(data, &root); err != nil {
		return nil, "", fmt.Errorf("not a JSON object: %w", err)
	}
	for _, k := range []string{"mcpServers", "mcp_servers", "servers", "context_servers", "mcp"} {
		raw, ok := root[k]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, &entries); err != nil {
			return nil, k, fmt.Errorf("must be an object of servers: %w", err)
		}
		if nested, ok := entries["servers"]; k == "mcp" && ok { // VS Code writes {"mcp": {"servers": …}}
			entries = nil
			if err := json.Unmarshal(nested, &entries); err != nil {
				return nil, "mcp.servers", fmt.Errorf("must be an object of servers: %w", err)
			}
			k = "mcp.servers"
		}
		return entries, k, nil
	}
	for _, raw := range root {
		var e struct {
			Command, URL json.RawMessage
		}
		if json.Unmarshal(raw, &e) != nil || e.Command == nil && e.URL == nil {
			return nil, "", errors.New(`the file has no "mcpServers"; write the servers under that key, by name`)
		}
	}
	return root, "", nil
}

// A looseString is a string that may be written as a number or a boolean. null, which some programs write for an unset
// value, is the empty string.
type looseString string

func (l *looseString) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '"':
		return json.Unmarshal(data, (*string)(l))
	case '{', '[':
		return errors.New("must be a string, not an object or a list") // which may contain a secret
	}
	if *l = looseString(data); *l == "null" {
		*l = ""
	}
	return nil
}

// A stringList is a list of strings, or a single string.
type stringList []looseString

func (l *stringList) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	if data[0] == '[' {
		return json.Unmarshal(data, (*[]looseString)(l))
	}
	*l = make(stringList, 1)
	return json.Unmarshal(data, &(*l)[0])
}

// An entry is a server's entry in the file. It has the members that any of the hosts reads.
type entry struct {
	commandEntry
	webEntry
	toolsEntry
	timeoutEntry

	Disabled bool  `json:"disabled"`
	Enabled  *bool `json:"enabled"`
	Roots    bool  `json:"roots"`
}

// A commandEntry says how a server is started.
type commandEntry struct {
	Command     json.RawMessage        `json:"command"`
	Args        stringList             `json:"args"`
	Env         map[string]looseString `json:"env"`
	Environment map[string]looseString `json:"environment"`
	Dir         string                 `json:"cwd"`
	Sandbox     looseString            `json:"sandbox"`
	Write       stringList             `json:"write"`
	Network     json.RawMessage        `json:"network"`
}

// A webEntry says how a server is reached by a URL.
type webEntry struct {
	Type        string                 `json:"type"`
	Transport   string                 `json:"transport"`
	URL         string                 `json:"url"`
	HTTPURL     string                 `json:"httpUrl"`
	ServerURL   string                 `json:"serverUrl"`
	Headers     map[string]looseString `json:"headers"`
	HTTPHeaders map[string]looseString `json:"http_headers"`
	TokenEnv    string                 `json:"bearer_token_env_var"`
}

// A toolsEntry says which tools of a server are used.
type toolsEntry struct {
	Include        stringList `json:"includeTools"`
	EnabledTools   stringList `json:"enabled_tools"`
	Tools          stringList `json:"tools"`
	Exclude        stringList `json:"excludeTools"`
	DisabledTools  stringList `json:"disabledTools"`
	DisabledTools2 stringList `json:"disabled_tools"`
	TrustReadOnly  bool       `json:"trustReadOnly"`
}

type timeoutEntry struct {
	Timeout        float64 `json:"timeout"` // see hostTimeout
	StartupSeconds float64 `json:"startup_timeout_sec"`
	ToolSeconds    float64 `json:"tool_timeout_sec"`
}

// memberNames lists the names of an entry's members, without their values, which may be secrets.
func memberNames(raw json.RawMessage) string {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || len(members) == 0 {
		return "nothing"
	}
	return strings.Join(slices.Sorted(maps.Keys(members)), ", ")
}

// readEntry returns the server of an entry. enabled is false if the entry is disabled.
func readEntry(name string, raw json.RawMessage, x *expander) (server Server, enabled bool, err error) {
	var e entry
	if raw[0] != '{' {
		return server, false, errors.New(`must be an object with a "command" or a "url"`) // raw may be a secret
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return server, false, err
	}
	if e.Disabled || e.Enabled != nil && !*e.Enabled {
		return server, false, nil
	}
	command, err := e.command(x)
	if err != nil {
		return server, false, err
	}
	if command.Sandbox, err = e.sandbox(x); err != nil {
		return server, false, err
	}
	web := e.http(x)
	if (command.Path == "") == (web.URL == "") {
		return server, false, fmt.Errorf(`give either "command" or "url"; the entry has %s`, memberNames(raw))
	}
	server = Server{Name: name, Transport: command, WantsRoots: e.Roots, Options: Options{
		IncludeTools: x.list("includeTools", slices.Concat(e.Include, e.EnabledTools, e.Tools)),
		ExcludeTools: x.list("excludeTools", slices.Concat(e.Exclude, e.DisabledTools, e.DisabledTools2)),
		// The hosts' timeout is not Timeouts.Call, so that a call which reports progress may take longer.
		Timeouts:      Timeouts{Start: seconds(e.StartupSeconds), Idle: cmp.Or(seconds(e.ToolSeconds), hostTimeout(e.Timeout))},
		TrustReadOnly: e.TrustReadOnly,
	}}
	kind, err := e.wire(web.URL)
	switch {
	case err != nil:
		return server, false, err
	case web.URL == "" && (kind == wireSSE || kind == wireHTTP):
		return server, false, errors.New(`the type needs a "url"; a "command" has the type stdio`)
	case web.URL == "":
		return server, true, x.err
	case kind == wireLines:
		return server, false, errors.New(`the type stdio needs a "command"; a "url" has the type http or sse`)
	case command.Sandbox.Profile != "":
		return server, false, errors.New(`"sandbox" is only for a server with a "command"; remove it from this entry with a "url"`)
	}
	web.SSE = kind == wireSSE
	server.Transport = web
	return server, true, x.err
}

// http reads the members for a server with a URL.
func (e *webEntry) http(x *expander) HTTP {
	address := cmp.Or(e.URL, e.HTTPURL, e.ServerURL)
	x.noteSecret("url", "url", address)
	web := HTTP{URL: x.expand("url", address), Headers: x.values("headers", e.Headers, e.HTTPHeaders)}
	if e.TokenEnv != "" {
		if web.Headers == nil {
			web.Headers = map[string]string{}
		}
		web.Headers["Authorization"] = "Bearer " + x.expand("bearer_token_env_var", "${"+e.TokenEnv+"}")
	}
	return web
}

// command reads the members for a server that is started. The member "command" may be "npx", ["npx", "-y", …] or
// {"path": "npx", "args": […], "env": {…}}; an "env" beside "command" replaces the one inside.
func (e *commandEntry) command(x *expander) (c Command, err error) {
	c = Command{Dir: x.expand("cwd", e.Dir), Env: x.values("env", e.Env, e.Environment)}
	var parts stringList
	var object struct {
		Path string                 `json:"path"`
		Args stringList             `json:"args"`
		Env  map[string]looseString `json:"env"`
	}
	switch raw := e.Command; {
	case len(raw) == 0, string(raw) == "null":
	case raw[0] == '{':
		if err := json.Unmarshal(raw, &object); err != nil {
			return c, fmt.Errorf("command: %w", err)
		}
		parts = append(stringList{looseString(object.Path)}, object.Args...)
		if c.Env == nil {
			c.Env = x.values("command.env", object.Env)
		}
	default:
		if err := json.Unmarshal(raw, &parts); err != nil {
			return c, fmt.Errorf("command: %w", err)
		}
	}
	all := x.list("command", parts)
	if len(all) > 0 {
		c.Path = all[0]
		c.Args = append(all[1:], x.list("args", e.Args)...)
	}
	return c, nil
}

// wire returns the kind of transport, which is wireAuto for a server with a command and no type.
func (e *webEntry) wire(url string) (wire, error) {
	switch t := strings.ToLower(cmp.Or(e.Type, e.Transport)); t {
	case "", "remote":
		if e.HTTPURL == "" && strings.HasSuffix(strings.TrimRight(url, "/"), "/sse") { // httpUrl is for streamable HTTP
			return wireSSE, nil
		}
		return wireAuto, nil
	case "stdio", "local":
		return wireLines, nil
	case "sse":
		return wireSSE, nil
	case "http", "streamablehttp", "streamable-http", "streamable_http":
		return wireHTTP, nil
	default:
		return wireAuto, fmt.Errorf("type %q is unknown; use stdio, http or sse", t)
	}
}

// seconds returns a duration of at most 30 years. Some hosts write the largest number for no timeout, which would overflow.
func seconds(f float64) time.Duration { return time.Duration(min(f, 1e9) * float64(time.Second)) }

// hostTimeout reads a timeout that some hosts write in seconds and others in milliseconds: 1000 and more is milliseconds.
func hostTimeout(f float64) time.Duration {
	if f >= 1000 {
		f /= 1000
	}
	return seconds(f)
}

// An expander replaces variables in an entry, and keeps the first error.
type expander struct {
	dir     string // of the file, for ${workspaceFolder} and relative directories
	err     error
	secrets []string // the places of secrets that are not references to variables
}

// noteSecret records where if the value with that name looks like a secret.
func (x *expander) noteSecret(where, name, value string) {
	if looksSecret(name, value) {
		x.secrets = append(x.secrets, where)
	}
}

func (x *expander) expand(where, s string) string {
	s, err := envref.Expand(s, x.dir)
	if err != nil && x.err == nil {
		x.err = fmt.Errorf("%s: %w", where, err)
	}
	return s
}

// values merges and expands the sources; of values with the same name the last counts.
func (x *expander) values(where string, sources ...map[string]looseString) map[string]string {
	var out map[string]string
	for _, m := range sources {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = x.expand(where+"."+k, string(m[k]))
			x.noteSecret(where+"."+k, k, string(m[k]))
		}
	}
	return out
}

func (x *expander) list(where string, values stringList) []string {
	var out []string
	flag := "" // the preceding argument, if it is a flag without a value
	for i, v := range values {
		at := fmt.Sprintf("%s[%d]", where, i)
		out = append(out, x.expand(at, string(v)))
		x.noteSecret(at, flag, string(v))
		flag = ""
		if strings.HasPrefix(string(v), "-") && !strings.Contains(string(v), "=") {
			flag = string(v)
		}
	}
	return out
}

// What editors accept in JSON. Both expressions also match whole strings, so that what looks like a comment or a comma in
// a string is kept.
var (
	comment       = lazy.Regexp(`"(?:[^"\\]|\\.)*"|//[^\n]*|(?s:/\*.*?\*/)`)
	trailingComma = lazy.Regexp(`"(?:[^"\\]|\\.)*"|,\s*[}\]]`)
)

// plainJSON returns data without the comments, trailing commas and byte order mark that editors accept.
func plainJSON(data []byte) []byte {
	data = comment().ReplaceAllFunc(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), func(m []byte) []byte {
		if m[0] == '/' {
			return []byte(" ")
		}
		return m
	})
	return trailingComma().ReplaceAllFunc(data, func(m []byte) []byte { return bytes.TrimPrefix(m, []byte(",")) })
}
