package mcpclient

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxModelName is how long a tool name may be for model APIs, in bytes.
const maxModelName = 64

// legalName replaces the characters that model APIs reject in a tool name by underscores.
func legalName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
}

// maxServerName is how long a server's name may be, in bytes, so that cutting a tool name at maxModelName leaves the
// server's name whole.
const maxServerName = 40

// checkName rejects a server's name if its tools could get the same names as tools of another server: a rule such as
// mcp__a__* must cover the tools of one server only. The servers a and a__b could have tools of the same name, and so
// could a and a_, if a has a tool named _b.
func checkName(name string) error {
	legal := legalName(name)
	if legal != "" && len(legal) <= maxServerName && !strings.Contains("_"+legal+"_", "__") {
		return nil
	}
	better := strings.Join(strings.FieldsFunc(legal, func(r rune) bool { return r == '_' }), "_")
	better = cmp.Or(strings.Trim(better[:min(len(better), maxServerName)], "_"), "server")
	return fmt.Errorf("tool names would contain the server's name as %q; in this form it must have at most %d bytes, must not begin or end with an underscore "+
		"and must not have two in a row, or a rule for one server could cover the tools of another; use a name such as %q", clip(legal, maxServerName), maxServerName, better)
}

// toolNames returns the names that the model sees, by the server's names, which must be distinct. Legal names are kept.
// A name that is too long, or that equals another after legalName has changed it, ends in a hash of the server's name.
func toolNames(prefix string, names []string) map[string]string {
	prefix = legalName(prefix)
	uses := map[string]int{} // of a legal name
	for _, n := range names {
		uses[legalName(n)]++
	}
	modelNames := make(map[string]string, len(names))
	for _, n := range names {
		legal := legalName(n)
		full := prefix + legal
		if (legal == n || uses[legal] == 1) && len(full) <= maxModelName && n != "" {
			modelNames[n] = full
		} else {
			modelNames[n] = hashed(full, n, 8)
		}
	}
	lengthenEqual(prefix, names, modelNames)
	return modelNames
}

// lengthenEqual lengthens the hashes of names that equal another name.
func lengthenEqual(prefix string, names []string, modelNames map[string]string) {
	for digits := 12; digits <= 32; digits += 4 {
		uses := map[string]int{}
		for _, n := range names {
			uses[modelNames[n]]++
		}
		if len(uses) == len(names) {
			return // all are distinct
		}
		for _, n := range names {
			if uses[modelNames[n]] > 1 && modelNames[n] != prefix+n { // a name that was kept stays
				modelNames[n] = hashed(prefix+legalName(n), n, digits)
			}
		}
	}
}

// hashed shortens full and appends the first digits of the hash of name.
func hashed(full, name string, digits int) string {
	sum := sha256.Sum256([]byte(name))
	suffix := "_" + hex.EncodeToString(sum[:])[:digits]
	return full[:min(len(full), maxModelName-len(suffix))] + suffix
}
