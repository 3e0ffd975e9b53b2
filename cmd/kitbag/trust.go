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

// restricted returns what a configuration may do that nobody trusts: make calls that
// would run be asked about or denied, and reach less.
func (c *config) restricted() *config {
	r := &config{file: c.file, sandbox: c.sandbox.restricted()}
	for _, rule := range c.policy.Rules {
		if rule.Behavior != permission.Allow {
			r.policy.Rules = append(r.policy.Rules, rule)
		}
	}
	return r
}

// wants returns what the configuration says more than that, a line each, as it is
// understood and not as it is written: blank lines and names in escapes would hide from
// a person what is about to count.
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
	if c.window != 0 {
		add("window", fmt.Sprint(c.window))
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
	for _, s := range c.servers {
		// Variables are shown by name: that a secret goes to a server is for the
		// person to see, the secret is not.
		for _, server := range s.entries() {
			add("mcpServers."+shorten(server.name, maxName), server.text)
		}
	}
	for _, folder := range c.skills {
		add("skills", folder)
	}
	return out
}

// A serverEntry is a server as a configuration names it.
type serverEntry struct{ name, text string }

// entries returns the servers of a configuration, by name.
func (s serverFile) entries() (out []serverEntry) {
	var file struct {
		Servers map[string]json.RawMessage `json:"mcpServers"`
	}
	_ = json.Unmarshal(s.data, &file) // which readServers has written
	for _, name := range slices.Sorted(maps.Keys(file.Servers)) {
		out = append(out, serverEntry{name, string(file.Servers[name])})
	}
	return out
}

// programSettings are files with which a directory has other programs run what it names:
// filters and hooks of git, registries, toolchains and versions. Who trusts the directory
// trusts them as they are; until then commands that would follow them are asked about.
var programSettings = []string{
	".git/config", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".corepack.env", "rust-toolchain", "rust-toolchain.toml",
	".cargo/config", ".cargo/config.toml", "go.work", ".tool-versions", ".mise.toml", "mise.toml", ".nvmrc", ".python-version",
	".ruby-version", ".bundle/config", "pip.conf", ".sdkmanrc",
}

// trusted sees to it that what a directory brings does nothing that no person has
// agreed to: it may be a clone of anybody's. What was agreed to is the directory as a
// whole: the content of its configuration at that place and of programSettings, and which
// folders of skills lie beside it; when any of it changes it is asked about again.
//
// Without anybody to ask, a configuration that wants more is an error, not one that
// silently counts for less: a script should not behave otherwise than its author saw
// it. Skills that merely lie there are left out, and that is told.
func (f *agentFlags) trusted(ctx context.Context, c *config, p *prompt, log io.Writer) error {
	wants := c.wants()
	if len(f.skills) == 0 || len(wants) > 0 {
		for _, folder := range c.found {
			wants = append(wants, "skills = "+shorten(folder, maxConfig))
		}
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
		return usage("%s sets more than ask and deny rules, and nobody has agreed to it; read it, then add --trust, or start kitbag at a terminal here", c.file)
	}
	if p == nil {
		c.restrict(false, true, log)
		return nil
	}
	for _, name := range programSettings {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(c.file), name)); err == nil {
			wants = append(wants, "programs of "+name)
		}
	}
	p.forget()
	fmt.Fprintf(p.out, "? This directory came with settings that decide how the agent works, in %s or beside it:\n    | %s\n",
		plainLine(c.file), strings.Join(wants, "\n    | "))
	ok, askErr := p.yesNo(ctx, "  Do you trust it? Without, only ask and deny rules count. [y]es / [n]o: ")
	switch {
	case ctx.Err() != nil:
		return &exit{code: exitInterrupted}
	case askErr != nil:
		return fmt.Errorf("%s: whether it is trusted: %w; say y or n, or add --trust", c.file, askErr)
	}
	if !ok {
		*c = *c.restricted()
		return nil
	}
	f.trustedDirs = c.dirs()
	if err == nil {
		err = writeMark(mark)
	}
	if err != nil { // it costs no more than to be asked again
		fmt.Fprintf(p.out, "! that you trust it could not be remembered: %s\n", plainLine(err.Error()))
	}
	return nil
}

// restrict is [agentFlags.trusted] for commands that only look: they do not ask, and
// show what is so as long as nobody has agreed. What is gone of the configuration is
// told on log; of the skills, if the command has to do with them.
func (c *config) restrict(trust, skills bool, log io.Writer) {
	mark, err := trustMark(c)
	if trust || err == nil && isMark(mark) {
		return
	}
	if len(c.wants()) > 0 {
		fmt.Fprintf(log, "! nobody has agreed to %s: only its ask and deny rules count; read it, then add --trust, or say yes in kitbag chat\n", plainLine(c.file))
	}
	if skills {
		for _, folder := range c.found {
			fmt.Fprintf(log, "! left out: the skills in %s: nobody has agreed to them; read them, then add --trust, or say yes in kitbag chat\n", plainLine(folder))
		}
	}
	*c = *c.restricted()
}

// dirs returns the directory that the configuration was found in, also as it is without
// links, which is how commands see it.
func (c *config) dirs() []string {
	dir := filepath.Dir(c.file)
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || real == dir {
		return []string{dir}
	}
	return []string{dir, real}
}

// trustMark is the file whose existence says that a person trusts the configuration.
// It is in the person's own directory, and its name is made of what is trusted, so
// that nothing in a project can pass for it.
func trustMark(c *config) (string, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(c.file)) // the file itself is no link
	if err != nil {
		return "", err
	}
	what := []string{filepath.Join(dir, configFile), string(c.data)}
	for _, folder := range c.found { // from there, however one came there
		what = append(what, strings.TrimPrefix(folder, filepath.Dir(c.file)))
	}
	for _, name := range programSettings {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			what = append(what, fmt.Sprintf("%s %x", name, sha256.Sum256(data)))
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(what, "\x00")))
	return filepath.Join(base, "kitbag", "trusted", hex.EncodeToString(sum[:])), nil
}

// isMark reports whether the file is one: no link, which something else may have left.
func isMark(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular()
}

// writeMark makes the file. It is empty: its name says it all.
func writeMark(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o600)
}
