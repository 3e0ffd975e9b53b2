package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/permission"
)

// restricted returns the part of an untrusted configuration that applies: ask and deny rules, and what removes
// access.
func (c *config) restricted() *config {
	r := &config{file: c.file, sandbox: c.sandbox.restricted()}
	for _, rule := range c.policy.Rules {
		if rule.Behavior != permission.Allow {
			r.policy.Rules = append(r.policy.Rules, rule)
		}
	}
	return r
}

// wants returns the other settings, one a line. It formats the parsed values, since blank lines and escapes in
// the file could hide a setting from the user.
func (c *config) wants() []string {
	var out []string
	add := func(key, value string) {
		if value != "" {
			out = append(out, key+" = "+shorten(value, maxConfig))
		}
	}
	c.modelSettings.wants(add)
	add("system", c.system)
	if c.steps != 0 {
		add("maxSteps", fmt.Sprint(c.steps))
	}
	if c.window != 0 {
		add("window", fmt.Sprint(c.window))
	}
	add("models", c.models)
	if c.cost != 0 {
		add("maxCost", fmt.Sprint(c.cost))
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
	if c.sandbox.Use == useOff {
		add("sandbox.use", useOff)
	}
	for _, path := range c.sandbox.Write {
		add("sandbox.write", path)
	}
	for _, path := range c.sandbox.Reveal {
		add("sandbox.reveal", path)
	}
	for _, g := range c.groups {
		add("groups."+g.Name, strings.TrimSpace(fmt.Sprintf("%s %q %s", g.Description, g.Tools, g.Instructions)))
	}
	for _, s := range c.servers {
		// Variables appear by name only: the user must see that a secret is sent to a server, but not the secret.
		for _, server := range s.entries() {
			add("mcpServers."+shorten(server.name, maxName), server.text)
		}
	}
	for _, folder := range c.skills {
		add("skills", folder)
	}
	return out
}

// A serverEntry is a server of a configuration.
type serverEntry struct{ name, text string }

// entries returns the servers of a configuration, sorted by name.
func (s serverFile) entries() (out []serverEntry) {
	var file struct {
		Servers map[string]json.RawMessage `json:"mcpServers"`
	}
	_ = json.Unmarshal(s.data, &file) // cannot fail: readServers has encoded it
	for _, name := range slices.Sorted(maps.Keys(file.Servers)) {
		out = append(out, serverEntry{name, string(file.Servers[name])})
	}
	return out
}

// programSettings are files of a directory that make other programs run what they name: filters and hooks of
// git, registries, toolchains and versions. Trusting the directory includes their current content; until then
// commands that would use them need approval.
var programSettings = []string{
	".git/config", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".corepack.env", "rust-toolchain", "rust-toolchain.toml",
	".cargo/config", ".cargo/config.toml", "go.work", ".tool-versions", ".mise.toml", "mise.toml", ".nvmrc", ".python-version",
	".ruby-version", ".bundle/config", "pip.conf", ".sdkmanrc",
}

// trusted restricts the directory's configuration to what the user has agreed to, as the
// directory may be a clone of an unknown repository. The consent is to the directory as a whole:
// the content of its configuration, its path, its guides, programSettings, and its skill folders. When any
// of it changes the user is asked again.
//
// Without a prompt a configuration that needs consent is an error, so that a script does not run
// with fewer settings than its author saw. Skills of the directory are left out, with a warning.
func (f *agentFlags) trusted(ctx context.Context, c *config, p *prompt, log io.Writer) error {
	wants := c.wants()
	if len(f.skills) == 0 || len(wants) > 0 {
		for _, folder := range c.found {
			wants = append(wants, "skills = "+shorten(folder, maxConfig))
		}
	}
	for _, g := range c.guides {
		wants = append(wants, "instructions = "+shorten(g.file, maxConfig))
	}
	if f.trust {
		f.trustedDirs = c.dirs()
		return nil
	}
	if len(wants) == 0 {
		return nil
	}
	mark, err := trustMark(c)
	if err == nil && isMark(mark) {
		f.trustedDirs = c.dirs()
		return nil
	}
	if p == nil && len(c.wants()) > 0 {
		return usage("%s sets more than ask and deny rules, and is not trusted; read it, then add --trust, or start kitbag at a terminal here", c.file)
	}
	if p == nil {
		c.restrict(false, true, log)
		return nil
	}
	wants = append(wants, c.programs()...)
	p.discardTyped()
	fmt.Fprintf(p.out, "? This directory has settings that decide how the agent works, in %s or next to it:\n    | %s\n",
		plainLine(c.file), strings.Join(wants, "\n    | "))
	ok, askErr := p.yesNo(ctx, "  Do you trust it? If not, only its ask and deny rules apply. [y]es / [n]o: ")
	switch {
	case ctx.Err() != nil:
		return &exit{code: exitInterrupted}
	case askErr != nil:
		return fmt.Errorf("%s: the trust question was not answered: %w; answer y or n, or add --trust", c.file, askErr)
	}
	if !ok {
		*c = *c.restricted()
		return nil
	}
	f.trustedDirs = c.dirs()
	if err == nil {
		err = writeMark(mark)
	}
	if err != nil { // the user will only be asked again
		fmt.Fprintf(p.out, "! your consent could not be stored: %s\n", plainLine(err.Error()))
	}
	return nil
}

// programs says which of programSettings the directory has.
func (c *config) programs() (out []string) {
	for _, name := range programSettings {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(c.file), name)); err == nil {
			out = append(out, "programs of "+name)
		}
	}
	return out
}

// restrict is [agentFlags.trusted] for commands that only show something: they do not ask, and show what
// applies without consent. It prints on log which parts of the configuration are left out, and also which
// skills if skills is set.
func (c *config) restrict(trust, skills bool, log io.Writer) {
	mark, err := trustMark(c)
	if trust || err == nil && isMark(mark) {
		return
	}
	if len(c.wants()) > 0 {
		fmt.Fprintf(log, "! %s is not trusted: only its ask and deny rules apply; read it, then add --trust, or say yes in kitbag chat\n", plainLine(c.file))
	}
	if skills {
		for _, folder := range c.found {
			fmt.Fprintf(log, "! left out: the skills in %s are not trusted; read them, then add --trust, or say yes in kitbag chat\n", plainLine(folder))
		}
		for _, g := range c.guides {
			fmt.Fprintf(log, "! left out: the instructions in %s are not trusted; read them, then add --trust, or say yes in kitbag chat\n", plainLine(g.file))
		}
	}
	*c = *c.restricted()
}

// dirs returns the directory of the configuration, also with links resolved, which is how commands see it.
func (c *config) dirs() []string {
	dir := filepath.Dir(c.file)
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || real == dir {
		return []string{dir}
	}
	return []string{dir, real}
}

// trustMark returns the file whose existence means that the user trusts the configuration. It is in the user's
// configuration directory, and its name is a hash of what is trusted, so that no file of a project can replace
// it.
func trustMark(c *config) (string, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(c.file)) // the file itself is not a link
	if err != nil {
		return "", err
	}
	trusted := []string{filepath.Join(dir, configFile), string(c.data)}
	for _, folder := range c.found { // relative to that directory
		trusted = append(trusted, strings.TrimPrefix(folder, filepath.Dir(c.file)))
	}
	for _, g := range c.guides {
		trusted = append(trusted, fmt.Sprintf("%s %x", g.file, sha256.Sum256([]byte(g.text))))
	}
	for _, name := range programSettings {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			trusted = append(trusted, fmt.Sprintf("%s %x", name, sha256.Sum256(data)))
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(trusted, "\x00")))
	return filepath.Join(base, "kitbag", "trusted", hex.EncodeToString(sum[:])), nil
}

// isMark reports whether the file is a mark: a regular file, not a link.
func isMark(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular()
}

// writeMark creates an empty file: its name has all information.
func writeMark(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o600)
}
