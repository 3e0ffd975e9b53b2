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
	"reflect"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/permission"
)

// restricted returns the part of an untrusted configuration that applies: ask and deny rules, and settings that
// remove access.
func (c *config) restricted() *config {
	r := &config{file: c.file, sandbox: c.sandbox.restricted()}
	for _, rule := range c.policy.Rules {
		if rule.Behavior != permission.Allow {
			r.policy.Rules = append(r.policy.Rules, rule)
		}
	}
	return r
}

// needConsent returns the settings that restricted leaves out, one a line. It formats the parsed values, since blank
// lines and escapes in the file could hide a setting from the user.
func (c *config) needConsent() []string {
	var out []string
	add := func(key, value string) {
		if value != "" {
			out = append(out, key+" = "+shorten(value, maxConfig))
		}
	}
	for _, t := range allSettings {
		v := reflect.Indirect(t.value(&c.settings))
		switch {
		case !v.IsValid() || v.IsZero() && v.Kind() != reflect.Bool:
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				add(t.key, v.Index(i).String())
			}
		default:
			add(t.key, fmt.Sprint(v.Interface()))
		}
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
		var file struct {
			Servers map[string]json.RawMessage `json:"mcpServers"`
		}
		_ = json.Unmarshal(s.data, &file) // cannot fail: readServers has encoded it
		for _, name := range slices.Sorted(maps.Keys(file.Servers)) {
			add("mcpServers."+shorten(name, maxName), string(file.Servers[name]))
		}
	}
	for _, name := range c.labels {
		add("labels", name)
	}
	for _, folder := range c.skills {
		add("skills", folder)
	}
	return out
}

// programSettings are files that name programs for other programs to run or install, such as hooks of git, toolchains
// and registries. Trusting the directory includes their current content; until then commands that would use them need
// approval.
var programSettings = []string{
	".git/config", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".corepack.env", "rust-toolchain", "rust-toolchain.toml",
	".cargo/config", ".cargo/config.toml", "go.work", ".tool-versions", ".mise.toml", "mise.toml", ".nvmrc", ".python-version",
	".ruby-version", ".bundle/config", "pip.conf", ".sdkmanrc",
}

// askConsent restricts the directory's configuration to what the user has agreed to, as the directory may be a clone of
// an unknown repository. The consent is to the directory as a whole: its path, the content of its configuration, its
// guides, its programSettings, and its skill folders. When any of them changes the user is asked again.
//
// Without a prompt a configuration that needs consent is an error, so that a script does not run with fewer settings
// than its author expects. Skills of the directory are skipped, with a warning.
func (f *agentFlags) askConsent(ctx context.Context, c *config, p *prompt, log io.Writer) error {
	settings := c.needConsent()
	if len(f.skills) == 0 || len(settings) > 0 { // with --skills the folders are not used now, but consent covers them
		for _, folder := range c.skillFolders {
			settings = append(settings, "skills = "+shorten(folder, maxConfig))
		}
	}
	for _, g := range c.guides {
		settings = append(settings, "instructions = "+shorten(g.file, maxConfig))
	}
	if f.trust {
		f.trustedDirs = c.dirs()
		return nil
	}
	if len(settings) == 0 {
		return nil
	}
	consent, err := consentFile(c)
	if err == nil && hasConsent(consent) {
		f.trustedDirs = c.dirs()
		return nil
	}
	if p == nil && len(c.needConsent()) > 0 {
		return usage("%s sets more than ask and deny rules, and is not trusted; read it, then add --trust, or start kitbag at a terminal here", c.file)
	}
	if p == nil {
		c.restrictUntrusted(false, true, log)
		return nil
	}
	settings = append(settings, c.programs()...)
	p.discardTyped()
	fmt.Fprintf(p.out, "? This directory has settings that decide how the agent works, in %s or next to it:\n    | %s\n",
		plainLine(c.file), strings.Join(settings, "\n    | "))
	ok, askErr := p.askYesNo(ctx, "  Do you trust it? If not, only its ask and deny rules apply. [y]es / [n]o: ")
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
		err = storeConsent(consent)
	}
	if err != nil { // the user will only be asked again
		fmt.Fprintf(p.out, "! your consent could not be stored: %s\n", plainLine(err.Error()))
	}
	return nil
}

// programs returns a line for each of the programSettings that the directory has.
func (c *config) programs() (out []string) {
	for _, name := range programSettings {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(c.file), name)); err == nil {
			out = append(out, "programs of "+name)
		}
	}
	return out
}

// untrustedConfig returns the merged configurations for a command that does not ask whether the directory is trusted;
// see restrictUntrusted.
func untrustedConfig(trust, warnSkills bool, log io.Writer) (config, error) {
	return readConfigs(func(c *config) error {
		c.restrictUntrusted(trust, warnSkills, log)
		return nil
	})
}

// restrictUntrusted restricts the configuration unless trust is set or the user has already agreed to it. It prints on
// log which parts are skipped, and with warnSkills also which skills and guides.
func (c *config) restrictUntrusted(trust, warnSkills bool, log io.Writer) {
	consent, err := consentFile(c)
	if trust || err == nil && hasConsent(consent) {
		return
	}
	if len(c.needConsent()) > 0 {
		fmt.Fprintf(log, "! %s is not trusted: only its ask and deny rules apply; read it, then add --trust, or say yes in kitbag chat\n", plainLine(c.file))
	}
	skip := func(what string) {
		fmt.Fprintf(log, "! skipped: the %s are not trusted; read them, then add --trust, or say yes in kitbag chat\n", plainLine(what))
	}
	if warnSkills {
		for _, folder := range c.skillFolders {
			skip("skills in " + folder)
		}
		for _, g := range c.guides {
			skip("instructions in " + g.file)
		}
	}
	*c = *c.restricted()
}

// dirs returns the directory of the configuration, and its path with links resolved if that differs.
func (c *config) dirs() []string {
	dir := filepath.Dir(c.file)
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || real == dir {
		return []string{dir}
	}
	return []string{dir, real}
}

// consentFile returns the file whose existence means that the user trusts the configuration. It is in the user's
// configuration directory, where no project can create it, and its name is a hash of what is trusted.
func consentFile(c *config) (string, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(c.file)) // the file itself is not a link
	if err != nil {
		return "", err
	}
	trusted := []string{filepath.Join(dir, configFile), string(c.data)}
	for _, folder := range c.skillFolders { // relative to that directory
		trusted = append(trusted, strings.TrimPrefix(folder, filepath.Dir(c.file)))
	}
	for _, g := range c.guides {
		trusted = append(trusted, fmt.Sprintf("%s %x", g.file, sha256.Sum256([]byte(g.text))))
	}
	for _, name := range programSettings {
		if content := contentOf(filepath.Join(dir, name)); content != "" {
			trusted = append(trusted, name+" "+content)
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(trusted, "\x00")))
	return filepath.Join(base, "kitbag", "trusted", hex.EncodeToString(sum[:])), nil
}

// contentOf returns the hash of a file's content, or what else the file is; "" if there is none. It opens only a regular
// file: the directory may have a pipe, which would block, or a link to an endless device.
func contentOf(file string) string {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return ""
	case !info.Mode().IsRegular():
		return info.Mode().Type().String()
	}
	f, err := os.Open(file)
	if err != nil {
		return "unreadable"
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "unreadable"
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// hasConsent reports whether the file exists and is not a link.
func hasConsent(file string) bool {
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular()
}

// storeConsent creates the file, which is empty: its name has all the information.
func storeConsent(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o600)
}
