package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/replacefile"
	"github.com/kitbag-go/kitbag/permission"
)

// keepRules adds allow rules, which the user has accepted, to the kitbag.json of the current directory. The rest of the
// file must already be trusted, so that this does not make changes by a model trusted.
func (f *agentFlags) keepRules(ctx context.Context, p *prompt, rules []permission.Rule) error {
	c, err := projectConfig()
	if err != nil {
		return err
	}
	consent, err := consentFile(c)
	if err != nil {
		return err
	}
	trusted := f.trust || hasConsent(consent)
	if !trusted && len(c.needConsent())+len(c.skillFolders)+len(c.guides) > 0 {
		return fmt.Errorf("the settings of this directory are not trusted, so its %s could not allow anything; answer y or s, and start kitbag again to trust it", configFile)
	}
	if !trusted {
		if err := p.askTrustPrograms(ctx, c); err != nil {
			return err
		}
	}
	data, err := addAllowRules(c.data, rules)
	if err != nil {
		return fmt.Errorf("%s: %w; add the rule by hand", c.file, err)
	}
	if err := replaceFile(c.file, data); err != nil {
		return err
	}
	if f.trust { // --trust is not stored
		return nil
	}
	// The consent also covers the settings of other programs. If they have changed meanwhile, the user is asked again.
	if same, err := consentFile(c); err != nil || same != consent {
		return err
	}
	c.data = data
	if consent, err = consentFile(c); err != nil {
		return err
	}
	return storeConsent(consent)
}

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

// askTrustPrograms asks for consent to the settings of other programs in the directory, if there are any.
func (p *prompt) askTrustPrograms(ctx context.Context, c *config) error {
	programs := c.programs()
	if len(programs) == 0 {
		return nil
	}
	fmt.Fprintf(p.out, "? A rule in %s only applies if you trust this directory, which has settings of other programs:\n    | %s\n",
		plainLine(c.file), strings.Join(programs, "\n    | "))
	ok, err := p.yesNo(ctx, "  Do you trust it? [y]es / [n]o: ")
	if err == nil && !ok {
		err = errors.New("the rule is not stored, since you do not trust the directory")
	}
	return err
}

// addAllowRules returns the configuration with the rules at the beginning of its allow rules. All other bytes stay the
// same.
func addAllowRules(data []byte, rules []permission.Rule) ([]byte, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}\n")
	}
	at, inside, err := allowList(data)
	if err != nil {
		return nil, err
	}
	old, err := permission.ParseSettings(configFile, data)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, r := range rules {
		if slices.ContainsFunc(old.Policy.Rules, func(o permission.Rule) bool { return o.Behavior == permission.Allow && o.String() == r.String() }) {
			continue
		}
		text, err := compactJSON(r.String())
		if err != nil {
			return nil, err
		}
		list = append(list, string(text))
	}
	if len(list) == 0 {
		return data, nil
	}
	text := strings.Join(list, ", ")
	switch inside {
	case "permissions":
		text = `"allow": [` + text + "]"
	case "":
		text = "\n  \"permissions\": {\"allow\": [" + text + "]}"
	}
	if next := bytes.TrimLeft(data[at:], " \t\r\n"); len(next) > 0 && next[0] != ']' && next[0] != '}' {
		text += ","
		if inside != "" {
			text += " "
		}
	} else if inside == "" {
		text += "\n"
	}
	out := append(append(bytes.Clone(data[:at]), text...), data[at:]...)
	_, err = permission.ParseSettings(configFile, out)
	return out, err
}

// allowList returns the offset after the opening bracket of the list of allow rules. If there is no list it returns the
// offset after the opening bracket of the object in which the list belongs. inside is the name of the list or object:
// "allow", "permissions" or, for the whole file, "".
func allowList(data []byte) (at int, inside string, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	enter := func(want json.Delim) error {
		t, err := dec.Token()
		if err == nil && t != want {
			err = fmt.Errorf("found %v instead of %v", t, want)
		}
		return err
	}
	if err := enter('{'); err != nil {
		return 0, "", err
	}
	at = int(dec.InputOffset())
	for _, name := range []string{"permissions", "allow"} {
		found := false
		for !found && dec.More() {
			key, err := dec.Token()
			if err != nil {
				return 0, "", err
			}
			if found = key == name; !found {
				var skip json.RawMessage
				if err := dec.Decode(&skip); err != nil {
					return 0, "", err
				}
			}
		}
		if !found {
			return at, inside, nil
		}
		want := json.Delim('{')
		if name == "allow" {
			want = '['
		}
		if err := enter(want); err != nil {
			return 0, "", fmt.Errorf("%s: %w", name, err)
		}
		at, inside = int(dec.InputOffset()), name
	}
	return at, inside, nil
}

// replaceFile replaces a file, and keeps its mode.
func replaceFile(file string, data []byte) error {
	mode := os.FileMode(0o644)
	if info, err := os.Lstat(file); err == nil {
		mode = info.Mode().Perm()
	}
	return replacefile.Write(file, data, mode)
}
