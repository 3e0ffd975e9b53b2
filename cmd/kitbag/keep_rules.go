package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/kitbag-go/kitbag/internal/replacefile"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/permission"
)

// keepRules adds allow rules, which the user has accepted, to the kitbag.json of the current directory. The rest of the
// file must already be trusted: storing a rule must not make settings trusted that a model may have written there.
func (f *agentFlags) keepRules(ctx context.Context, p *prompt, rules []permission.Rule) error {
	c, err := readProjectConfig()
	if err != nil {
		return err
	}
	consent, err := consentFile(c)
	if err != nil {
		return err
	}
	trusted := f.trust || hasConsent(consent)
	if !trusted && len(c.needConsent())+len(c.skillFolders)+len(c.guides) > 0 {
		return fmt.Errorf("the settings of this directory are not trusted, so an allow rule in %s would have no effect; answer y or s, then start kitbag again to trust the directory", configFile)
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
	// The consent also covers the settings of other programs. If these have changed since the question, the user has not
	// seen them: store nothing, so that the next start asks again.
	if current, err := consentFile(c); err != nil || current != consent {
		return err
	}
	c.data = data
	if consent, err = consentFile(c); err != nil {
		return err
	}
	return storeConsent(consent)
}

// askTrustPrograms asks for consent to the settings of other programs in the directory, if there are any.
func (p *prompt) askTrustPrograms(ctx context.Context, c *config) error {
	programs := c.programs()
	if len(programs) == 0 {
		return nil
	}
	p.discardTyped()
	fmt.Fprintf(p.out, "? A rule in %s only applies if you trust this directory, which has settings of other programs:\n    | %s\n",
		plainLine(c.file), strings.Join(programs, "\n    | "))
	ok, err := p.askYesNo(ctx, "  Do you trust it? [y]es / [n]o: ")
	if err == nil && !ok {
		err = errors.New("the rule is not stored, since you do not trust the directory")
	}
	return err
}

// addAllowRules returns the configuration data with the rules, except those it already has, before the other allow
// rules. The rest of the data stays as it is.
func addAllowRules(data []byte, rules []permission.Rule) ([]byte, error) {
	isNew := len(bytes.TrimSpace(data)) == 0
	if isNew {
		data = []byte("{}")
	}
	settings, err := permission.ParseSettings(configFile, data)
	if err != nil {
		return nil, err
	}
	rules = slices.DeleteFunc(slices.Clone(rules), func(r permission.Rule) bool {
		return slices.ContainsFunc(settings.Policy.Rules, func(old permission.Rule) bool {
			return old.Behavior == permission.Allow && old.String() == r.String()
		})
	})
	if len(rules) == 0 {
		return data, nil
	}
	file, err := hujson.Parse(data)
	if err != nil {
		return nil, err
	}
	if file.Find("/permissions") == nil {
		err = patchJSON(&file, "add", "/permissions", struct{}{})
	}
	if file.Find("/permissions/allow") == nil {
		err = errors.Join(err, patchJSON(&file, "add", "/permissions/allow", []string{}))
	}
	for _, r := range slices.Backward(rules) {
		err = errors.Join(err, patchJSON(&file, "add", "/permissions/allow/0", r.String()))
	}
	if isNew {
		formatJSON(&file)
	}
	return file.Pack(), err
}

// patchJSON changes a file by an operation of JSON Patch. value is nil for an operation without a value, such as remove.
func patchJSON(file *hujson.Value, op, path string, value any) error {
	change := map[string]any{"op": op, "path": path}
	if value != nil {
		change["value"] = value
	}
	data, err := strictjson.Encode([]any{change})
	if err != nil {
		return err
	}
	return file.Patch(data)
}

// formatJSON indents a file. Standard JSON stays standard, since not every program can read trailing commas.
func formatJSON(file *hujson.Value) {
	standard := file.IsStandard()
	file.Format()
	if standard {
		file.Standardize()
	}
}

// replaceFile replaces or creates a file. A replaced file keeps its mode.
func replaceFile(file string, data []byte) error {
	mode := os.FileMode(0o644) // of a new file
	if info, err := os.Lstat(file); err == nil {
		mode = info.Mode().Perm()
	}
	if err := replacefile.Write(file, data, mode); err != nil {
		return fmt.Errorf("%s: %w", file, err) // the error itself names a temporary file
	}
	return nil
}
