package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/internal/mcpgroups"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/permission"
)

// configFile is the name of a configuration, in the project's directory and in the user's configuration directory.
const configFile = "kitbag.json"

// maxConfig limits the size of a configuration, in bytes: the user must be able to read it before trusting it.
const maxConfig = 64 << 10

// A config has the settings of a configuration file, or of several files after a merge. Flags and variables override it.
type config struct {
	file     string
	data     []byte // without a byte order mark; the user's consent is to these bytes
	settings        // with absolute paths
	policy   permission.Policy
	sandbox  sandboxSettings
	servers  []serverFile
	grouping
	skills       []string // absolute paths
	skillFolders []string // absolute paths of the default skill folders that exist
	guides       []guide

	sessions *retention // only the user's configuration may have it
}

// gatewayKeys are the members for "kitbag mcp serve --config", which may use the same file. Agents ignore them.
var gatewayKeys = []string{"perSession", "initial", "style", "search", "credentials", "oauth", "upstreamTokens", "audit", "instructions", "hosts", "origins", "replicas", "rates", "taskAfter"}

// readConfig reads a configuration, which may be missing. If stat is [os.Lstat] the file must not be a link: a project's
// configuration must be in the project.
func readConfig(file string, stat func(string) (fs.FileInfo, error)) (*config, error) {
	c := &config{file: file}
	data, err := readSmall(file, stat)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // a byte order mark, which editors on Windows write
	c.data = data
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, fmt.Errorf("%s: must be a JSON object: %w", file, jsonError(data, err))
	}
	if err := c.readSettings(members); err != nil {
		return nil, err
	}
	return c, errors.Join(c.readServers(members["mcpServers"]), c.readPolicy(members["permissions"]),
		c.readSandbox(members["sandbox"]), c.readGroups(members["groups"]), c.readSessions(members["sessions"]))
}

// readSettings reads the settings, the labels and the skills. A key that no configuration has is an error.
func (c *config) readSettings(members map[string]json.RawMessage) error {
	mustBe := func(key, want string) error {
		return fmt.Errorf("%s: %s must be %s; it is %.40s", c.file, key, want, members[key])
	}
	known := append([]string{"mcpServers", "permissions", "sandbox", "groups", "sessions", "labels", "skills"}, gatewayKeys...)
	for _, t := range allSettings {
		known = append(known, t.key)
		if data, ok := members[t.key]; ok && !t.read(&c.settings, data) {
			return mustBe(t.key, t.want)
		}
	}
	if data, ok := members["labels"]; ok && json.Unmarshal(data, &c.labels) != nil {
		return mustBe("labels", "a list of names of servers")
	}
	if data, ok := members["skills"]; ok && json.Unmarshal(data, &c.skills) != nil {
		return mustBe("skills", "a list of folders")
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%s: unknown key %s%s", c.file, key, suggestion(key, known))
		}
	}
	if c.endpoint.url != "" {
		c.endpoint.vendor = vendorOf(c.api, c.model) // the only vendor whose key may be sent to the endpoint
	}
	for _, path := range []*string{&c.system, &c.modelsFile} {
		if *path != "" {
			*path = c.absolute(*path)
		}
	}
	for i, folder := range c.skills {
		if folder == "" || folder[0] == '~' {
			return fmt.Errorf("%s: skills: %q is not a folder; write its path without ~, absolute or relative to %s", c.file, folder, filepath.Dir(c.file))
		}
		c.skills[i] = c.absolute(folder)
	}
	return nil
}

// absolute resolves a path in the configuration, which is relative to the folder of the file.
func (c *config) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.file), path)
}

// readGroups reads the groups in the order of the file, which is the order that the model sees.
func (c *config) readGroups(data json.RawMessage) error {
	if data == nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return fmt.Errorf("%s: groups must be an object of groups; it is %.40s", c.file, data)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return fmt.Errorf("%s: groups: %w", c.file, err)
		}
		var g struct {
			Description  string   `json:"description"`
			Tools        []string `json:"tools"`
			Instructions string   `json:"instructions"`
			Parents      []string `json:"parents"`
		}
		if err := dec.Decode(&g); err != nil {
			return fmt.Errorf("%s: groups.%v: %w; it has description, tools, instructions and parents", c.file, name, err)
		}
		for _, glob := range g.Tools {
			if _, err := path.Match(glob, ""); err != nil {
				return fmt.Errorf("%s: groups.%v: tools: %q is not a valid glob: %w", c.file, name, glob, err)
			}
		}
		c.groups = append(c.groups, mcpgroups.Group{Name: fmt.Sprint(name), Description: g.Description, Tools: g.Tools, Instructions: g.Instructions, Parents: g.Parents})
	}
	return nil
}

// merge returns g with the groups of other whose names g does not have, and the labels of g and other.
func (g grouping) merge(other grouping) grouping {
	for _, group := range other.groups {
		if !slices.ContainsFunc(g.groups, func(known mcpgroups.Group) bool { return known.Name == group.Name }) {
			g.groups = append(slices.Clip(g.groups), group)
		}
	}
	if g.labels == nil {
		g.labels = other.labels // stays [] for no servers, or nil for all
	} else {
		g.labels = append(slices.Clip(g.labels), other.labels...)
	}
	return g
}

// readServers decodes the servers and encodes them again, so that the question about trust does not show escape
// sequences, which could hide a name.
func (c *config) readServers(data json.RawMessage) error {
	var servers map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // keeps all digits
	if data != nil && dec.Decode(&servers) != nil {
		return fmt.Errorf("%s: mcpServers must be an object of servers; it is %.40s", c.file, data)
	}
	if len(servers) == 0 {
		return nil
	}
	file, err := strictjson.Encode(map[string]any{"mcpServers": servers})
	c.servers = []serverFile{{path: c.file, data: file}}
	return err
}

// readPolicy reads the rules. An unknown member of permissions is an error, since a deny rule under a mistyped name
// would have no effect.
func (c *config) readPolicy(permissions json.RawMessage) error {
	s, err := permission.ParseSettings(c.file, c.data)
	if err != nil {
		return err
	}
	c.policy = s.Policy
	// A gateway that uses the same file calls a tool SERVER__TOOL. An agent calls it mcp__SERVER__TOOL.
	for _, rule := range s.Policy.Rules {
		if strings.Contains(rule.Tool, "__") && !strings.HasPrefix(rule.Tool, "mcp__") {
			rule.Tool = "mcp__" + rule.Tool
			c.policy.Rules = append(c.policy.Rules, rule)
		}
	}
	for _, dir := range c.policy.Dirs {
		if !filepath.IsAbs(dir) { // ParseSettings accepts ~/, which is not expanded here
			return fmt.Errorf("%s: permissions.additionalDirectories: %q is not absolute; write an absolute path", c.file, dir)
		}
	}
	for _, key := range s.Unknown() {
		if key != "permissions.trustReadOnly" { // a key that only kitbag has, so ParseSettings does not read it
			return fmt.Errorf("%s: unknown key %s; the keys are mode, allow, ask, deny, trustReadOnly, additionalDirectories", c.file, key)
		}
		var extension struct {
			TrustReadOnly bool `json:"trustReadOnly"`
		}
		if err := json.Unmarshal(permissions, &extension); err != nil {
			return fmt.Errorf("%s: permissions: %w", c.file, err)
		}
		c.policy.TrustReadOnly = extension.TrustReadOnly
	}
	return nil
}

// readSmall reads a file that is regular according to stat, and not too large.
func readSmall(file string, stat func(string) (fs.FileInfo, error)) ([]byte, error) {
	named, err := stat(file)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() { // opening a pipe would block
		return nil, errors.New("it is not a regular file; replace it by a regular file, not a link")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if opened, err := f.Stat(); err != nil || !os.SameFile(named, opened) {
		return nil, errors.Join(err, errors.New("it was replaced while it was read; try again"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(data) > maxConfig {
		err = fmt.Errorf("it has more than %d bytes; make it smaller", maxConfig)
	}
	return data, err
}

// defaultSkillFolders are the folders of a project's skills: one for several agents, and one for Claude Code.
var defaultSkillFolders = []string{".agents/skills", ".claude/skills"}

// existingSkillFolders returns the default skill folders that exist in dir.
func existingSkillFolders(dir string) []string {
	var out []string
	for _, d := range defaultSkillFolders {
		if abs, err := existingDir(filepath.Join(dir, d)); err == nil {
			out = append(out, abs)
		}
	}
	return out
}

// readProjectConfig reads the configuration of the current directory, and finds its skill folders and guides.
func readProjectConfig() (*config, error) {
	dir, err := currentDir()
	if err != nil {
		return nil, err
	}
	c, err := readConfig(filepath.Join(dir, configFile), os.Lstat)
	if err == nil {
		c.skillFolders = existingSkillFolders(dir)
		c.guides, err = projectGuides(dir)
	}
	return c, err
}

// readConfigs reads the project's and the user's configurations and merges them. Before the merge, restrict removes the
// project's settings that must not apply.
func readConfigs(restrict func(*config) error) (config, error) {
	project, err := readProjectConfig()
	if err != nil {
		return config{}, err
	}
	if project.sessions != nil {
		return config{}, fmt.Errorf("%s: a project cannot set sessions; move it to the kitbag.json in your configuration directory", project.file)
	}
	if err := restrict(project); err != nil {
		return config{}, err
	}
	if err := project.checkFolders(); err != nil {
		return config{}, err
	}
	user := &config{}
	if base, err := os.UserConfigDir(); err == nil { // without a home directory the user has no configuration
		if user, err = readConfig(filepath.Join(base, "kitbag", configFile), os.Stat); err != nil {
			return config{}, err
		}
	}
	return project.merge(user), user.checkFolders()
}

// checkFolders fails if a folder that the configuration names does not exist.
func (c *config) checkFolders() error {
	for _, folder := range c.skills {
		if _, err := existingDir(folder); err != nil {
			return fmt.Errorf("%s: skills: %s: %w; create the folder, or remove it from the list", c.file, folder, err)
		}
	}
	for _, dir := range c.sandbox.Write {
		if _, err := existingDir(dir); err != nil {
			return fmt.Errorf("%s: sandbox.write: %s: %w; create the directory, or remove it from the list", c.file, dir, err)
		}
	}
	return nil
}

// merge returns the project's configuration c with those of the user's settings that c does not have. It joins lists, so
// that the deny rules of both files apply.
func (c *config) merge(user *config) config {
	return config{
		settings:     c.settings.merge(user.settings),
		policy:       mergePolicies(&c.policy, &user.policy),
		sandbox:      c.sandbox.merge(user.sandbox),
		servers:      slices.Concat(c.servers, user.servers),
		grouping:     c.grouping.merge(user.grouping),
		skills:       slices.Concat(c.skills, user.skills),
		skillFolders: c.skillFolders,
		guides:       c.guides,
		sessions:     user.sessions,
	}
}

// mergePolicies returns p with the settings of other that p does not have, and the lists of both.
func mergePolicies(p, other *permission.Policy) permission.Policy {
	return permission.Policy{
		Mode:          cmp.Or(p.Mode, other.Mode),
		Rules:         slices.Concat(p.Rules, other.Rules),
		Dirs:          slices.Concat(p.Dirs, other.Dirs),
		TrustReadOnly: p.TrustReadOnly || other.TrustReadOnly,
	}
}

// configure reads the configurations and applies the settings for which no flag is set. The project's settings that need
// consent apply only if the user agrees.
func (f *agentFlags) configure(ctx context.Context, cmd *cobra.Command, p *prompt) (err error) {
	f.config, err = readConfigs(func(project *config) error {
		return f.askConsent(ctx, project, p, cmd.ErrOrStderr())
	})
	if err == nil {
		f.applyConfig(cmd)
	}
	return err
}

// applyConfig takes over the settings of the configuration for which neither a flag nor a variable is set.
func (f *agentFlags) applyConfig(cmd *cobra.Command) {
	f.settings.apply(cmd, f.config.settings)
	if mode := string(f.config.policy.Mode); mode != "" && !cmd.Flags().Changed("mode") {
		f.mode = mode
	}
}

// jsonError adds the line to a syntax error of [encoding/json], and shortens a type error to the JSON type that was found.
func jsonError(data []byte, err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:min(e.Offset, int64(len(data)))], []byte("\n")), err)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("it is a JSON %s", e.Value)
	}
	return err
}
