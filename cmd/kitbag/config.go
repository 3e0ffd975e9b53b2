package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/permission"
)

// configFile is the name of a configuration: that of a project is in its directory,
// that of a person in the directory that the system has for it.
const configFile = "kitbag.json"

// maxConfig is how large a configuration may be, in bytes: a person who is asked
// about one has to read it.
const maxConfig = 64 << 10

// config is what a file says where no flag and no variable does.
type config struct {
	file    string
	data    []byte
	model   string
	baseURL string
	system  string // absolute
	steps   int    // 0 for none
	policy  permission.Policy
}

// gatewayKeys are for "kitbag mcp serve --config", which reads the same file. That
// servers are not started because the current directory names them is the point:
// --mcp kitbag.json does it.
var gatewayKeys = []string{"mcpServers", "groups", "labels", "perSession", "initial", "style", "credentials", "audit", "instructions", "hosts", "origins"}

// readConfig reads a configuration. One that is missing says nothing. With [os.Lstat]
// it must not be a link: what a project says is in the project.
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
		return nil, fmt.Errorf("%s: must be a JSON object: %w", file, err)
	}
	own := map[string]any{"model": &c.model, "baseURL": &c.baseURL, "system": &c.system, "maxSteps": &c.steps}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		to, ok := own[key]
		switch {
		case ok:
			if err := json.Unmarshal(members[key], to); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, key, err)
			}
		case key != "permissions" && !slices.Contains(gatewayKeys, key):
			return nil, fmt.Errorf("%s: %s means nothing; the members are %s, permissions, and those of kitbag mcp serve: %s",
				file, key, strings.Join(slices.Sorted(maps.Keys(own)), ", "), strings.Join(gatewayKeys, ", "))
		}
	}
	if c.steps < 0 {
		return nil, fmt.Errorf("%s: maxSteps: %d is negative; write how many model calls a task may take", file, c.steps)
	}
	if c.system != "" && !filepath.IsAbs(c.system) {
		c.system = filepath.Join(filepath.Dir(file), c.system)
	}
	return c, c.readPolicy(members["permissions"])
}

func (c *config) readPolicy(permissions json.RawMessage) error {
	s, err := permission.ParseSettings(c.file, c.data)
	if err != nil {
		return err
	}
	c.policy = s.Policy
	for _, dir := range c.policy.Dirs {
		if !filepath.IsAbs(dir) { // ParseSettings lets ~/ through, which nobody here expands
			return fmt.Errorf("%s: permissions.additionalDirectories: %q is not absolute; write the whole path", c.file, dir)
		}
	}
	for _, key := range s.Unknown() {
		if key != "permissions.trustReadOnly" {
			return fmt.Errorf("%s: %s means nothing; the members are mode, allow, ask, deny, trustReadOnly, additionalDirectories", c.file, key)
		}
		var more struct {
			TrustReadOnly bool `json:"trustReadOnly"`
		}
		if err := json.Unmarshal(permissions, &more); err != nil {
			return fmt.Errorf("%s: permissions: %w", c.file, err)
		}
		c.policy.TrustReadOnly = more.TrustReadOnly
	}
	return nil
}

// readSmall reads a file that stat calls regular and that is not too large.
func readSmall(file string, stat func(string) (fs.FileInfo, error)) ([]byte, error) {
	named, err := stat(file)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() { // to open a pipe would be to wait
		return nil, errors.New("it is not a regular file; put the configuration itself there, not a link")
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
		err = fmt.Errorf("it has more than %d bytes", maxConfig)
	}
	return data, err
}

// restricted returns what a configuration may do that nobody trusts: make calls that
// would run be asked about or denied.
func (c *config) restricted() *config {
	r := &config{file: c.file}
	for _, rule := range c.policy.Rules {
		if rule.Behavior != permission.Allow {
			r.policy.Rules = append(r.policy.Rules, rule)
		}
	}
	return r
}

// wants returns what the configuration says more than that, a line each, as it is
// understood and not as it is written: blank lines and members that are there twice
// would hide from a person what is about to count.
func (c *config) wants() []string {
	var out []string
	add := func(key, value string) {
		if value != "" {
			out = append(out, key+" = "+shorten(value, maxConfig))
		}
	}
	add("model", c.model)
	add("baseURL", c.baseURL)
	add("system", c.system)
	if c.steps != 0 {
		add("maxSteps", fmt.Sprint(c.steps))
	}
	add("permissions.mode", string(c.policy.Mode))
	for _, rule := range c.policy.Rules {
		if rule.Behavior == permission.Allow {
			add("permissions.allow", rule.String())
		}
	}
	for _, dir := range c.policy.Dirs {
		add("permissions.additionalDirectories", dir)
	}
	if c.policy.TrustReadOnly {
		add("permissions.trustReadOnly", "true")
	}
	return out
}

// configure takes from the configurations what no flag says, first from that of the
// current directory. What that one needs trust for it gets only from a person.
func (f *agentFlags) configure(ctx context.Context, cmd *cobra.Command, p *prompt) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	project, err := readConfig(filepath.Join(dir, configFile), os.Lstat)
	if err != nil {
		return err
	}
	if err := f.trusted(ctx, project, p); err != nil {
		return err
	}
	// The directory of the person may be unknown; then there is no file in it.
	person := &config{}
	if base, err := os.UserConfigDir(); err == nil {
		if person, err = readConfig(filepath.Join(base, "kitbag", configFile), os.Stat); err != nil {
			return err
		}
	}
	f.take(cmd, project.over(person))
	return nil
}

// over returns what c says, and where it says nothing what other does. Rules and
// directories of both are in force: a denial by one of them stands.
func (c *config) over(other *config) *config {
	return &config{
		model:   cmp.Or(c.model, other.model),
		baseURL: cmp.Or(c.baseURL, other.baseURL),
		system:  cmp.Or(c.system, other.system),
		steps:   cmp.Or(c.steps, other.steps),
		policy: permission.Policy{
			Mode:          cmp.Or(c.policy.Mode, other.policy.Mode),
			Rules:         slices.Concat(c.policy.Rules, other.policy.Rules),
			Dirs:          slices.Concat(c.policy.Dirs, other.policy.Dirs),
			TrustReadOnly: c.policy.TrustReadOnly || other.policy.TrustReadOnly,
		},
	}
}

// take fills in from c what neither a flag nor a variable says.
func (f *agentFlags) take(cmd *cobra.Command, c *config) {
	unset := func(flag string) bool { return !cmd.Flags().Changed(flag) }
	if c.model != "" && unset("model") && os.Getenv("KITBAG_MODEL") == "" {
		f.model = c.model
	}
	if c.baseURL != "" && unset("base-url") && os.Getenv("OPENAI_BASE_URL") == "" {
		f.baseURL = c.baseURL
	}
	if c.system != "" && unset("system") {
		f.system = c.system
	}
	if c.policy.Mode != "" && unset("mode") {
		f.mode = string(c.policy.Mode)
	}
	if c.steps != 0 && unset("max-steps") {
		f.maxSteps = c.steps
	}
	f.more = c.policy
}
