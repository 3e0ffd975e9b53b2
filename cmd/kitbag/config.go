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

// maxConfig is the size of the largest configuration, in bytes: the user must be able to read it before trusting
// it.
const maxConfig = 64 << 10

// A config has the settings of a configuration file, which flags and variables override.
type config struct {
	file     string
	data     []byte // as read; the user's consent is to these bytes
	settings        // with absolute paths
	policy   permission.Policy
	sandbox  sandboxSettings
	servers  []serverFile
	grouping
	skills       []string // absolute paths
	skillFolders []string // absolute paths of the default skill folders that exist
	guides       []guide

	sessions *retention // of the user's configuration only
}

// gatewayKeys are the members that only "kitbag mcp serve --config" uses. They may be in the same file, so that a
// project needs only one.
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
	c.data = data
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, fmt.Errorf("%s: must be a JSON object: %w", file, jsonError(data, err))
	}
	var servers map[string]json.RawMessage
	mustBe := func(key, want string) error {
		return fmt.Errorf("%s: %s must be %s; it is %.40s", file, key, want, members[key])
	}
	known := append([]string{"permissions", "sandbox", "groups", "sessions"}, gatewayKeys...)
	for _, t := range allSettings {
		known = append(known, t.key)
		if data, ok := members[t.key]; ok && !t.read(&c.settings, data) {
			return nil, mustBe(t.key, t.want)
		}
	}
	for _, m := range []struct {
		key, want string
		to        any
	}{{"labels", "a list of names of servers", &c.labels}, {"skills", "a list of folders", &c.skills}, {"mcpServers", "an object of servers", &servers}} {
		known = append(known, m.key)
		if data, ok := members[m.key]; ok && json.Unmarshal(data, m.to) != nil {
			return nil, mustBe(m.key, m.want)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("%s: unknown key %s%s", file, key, suggestion(key, known))
		}
	}
	if c.endpoint.url != "" {
		c.endpoint.vendor = vendorOf(c.api, c.model)
	}
	if c.system != "" {
		c.system = c.absolute(c.system)
	}
	if c.modelsFile != "" {
		c.modelsFile = c.absolute(c.modelsFile)
	}
	for i, folder := range c.skills {
		if c.skills[i] = c.absolute(folder); folder == "" || folder[0] == '~' {
			return nil, fmt.Errorf("%s: skills: %q is not a folder; write its path, absolute or relative to %s", file, folder, filepath.Dir(file))
		}
	}
	return c, errors.Join(c.readServers(members["mcpServers"], len(servers)), c.readPolicy(members["permissions"]), c.readSandbox(members["sandbox"]), c.readGroups(members["groups"]), c.readSessions(members["sessions"]))
}

// absolute resolves a path relative to the file that contains it.
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
		g.labels = other.labels
	} else {
		g.labels = append(slices.Clip(g.labels), other.labels...)
	}
	return g
}

// readServers decodes the servers and encodes them again, so that the question about trust does not show escape
// sequences, which could hide a name.
func (c *config) readServers(servers json.RawMessage, n int) error {
	if n == 0 {
		return nil
	}
	var value any
	dec := json.NewDecoder(bytes.NewReader(servers))
	dec.UseNumber() // arguments may be long numbers
	if err := dec.Decode(&value); err != nil {
		return err
	}
	data, err := strictjson.Encode(map[string]any{"mcpServers": value})
	c.servers = []serverFile{{path: c.file, data: data}}
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
	for _, rule := range s.Policy.Rules { // the gateway's names are SERVER__TOOL, an agent's mcp__SERVER__TOOL
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

// projectConfig returns the configuration of the current directory.
func projectConfig() (*config, error) {
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

// configurations returns the current directory's configuration merged with the user's. Before the merge, restrict
// removes the directory's settings that must not apply.
func configurations(restrict func(*config) error) (config, error) {
	project, err := projectConfig()
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
	if base, err := os.UserConfigDir(); err == nil {
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

// merge returns c with the settings of other that c does not have. It joins lists, so that a deny rule of either applies.
func (c *config) merge(other *config) config {
	return config{
		settings:     c.settings.merge(other.settings),
		policy:       mergePolicies(&c.policy, &other.policy),
		sandbox:      c.sandbox.merge(other.sandbox),
		servers:      slices.Concat(c.servers, other.servers),
		grouping:     c.grouping.merge(other.grouping),
		skills:       slices.Concat(c.skills, other.skills),
		skillFolders: c.skillFolders,
		guides:       c.guides,
		sessions:     other.sessions,
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

// configure reads the configurations and applies the settings for which no flag is set. The current directory's
// configuration has precedence over the user's, but its settings that need consent apply only if the user agrees.
func (f *agentFlags) configure(ctx context.Context, cmd *cobra.Command, p *prompt) (err error) {
	f.config, err = configurations(func(project *config) error {
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
