package mcpclient

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// maxName is how long a tool name may be for model APIs.
const maxName = 64

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

// maxServer is how long a server's name may be. Tool names, which are cut at maxName, then contain it completely.
const maxServer = 40

// checkName rejects a name of a server whose tools could get the same names as tools of another server, so that
// a rule such as mcp__a__* covers the tools of one server only. Examples of such pairs are the servers a and
// a__b, or a and a_ with a tool named _b.
func checkName(name string) error {
	legal := legalName(name)
	if legal != "" && len(legal) <= maxServer && !strings.Contains("_"+legal+"_", "__") {
		return nil
	}
	better := strings.Join(strings.FieldsFunc(legal, func(r rune) bool { return r == '_' }), "_")
	better = cmp.Or(strings.Trim(better[:min(len(better), maxServer)], "_"), "server")
	return fmt.Errorf("the names of its tools would contain %q; it must have at most %d bytes, must not begin or end with an underscore "+
		"and must not have two in a row, or a rule for one server could cover the tools of another; use a name such as %q", clip(legal, maxServer), maxServer, better)
}

// toolNames returns the name that the model sees for each of the server's names, which must be distinct. The result does
// not depend on their order. Legal names are kept; a changed name that collides with another, or one that is too long,
// ends in a hash of the original name.
func toolNames(prefix string, names []string) map[string]string {
	prefix = legalName(prefix)
	wanted := map[string][]string{}
	for _, n := range names {
		full := prefix + legalName(n)
		wanted[full] = append(wanted[full], n)
	}
	out := make(map[string]string, len(names))
	for _, n := range names {
		full := prefix + legalName(n)
		alone := len(wanted[full]) == 1 || legalName(n) == n
		if alone && len(full) <= maxName && n != "" {
			out[n] = full
		} else {
			out[n] = hashed(full, n, 8)
		}
	}
	lengthenEqual(prefix, names, out)
	return out
}

// lengthenEqual gives more digits to hashed names that equal another name.
func lengthenEqual(prefix string, names []string, out map[string]string) {
	for digits := 12; digits <= 32; digits += 4 {
		users := map[string][]string{}
		for _, n := range names {
			users[out[n]] = append(users[out[n]], n)
		}
		done := true
		for _, same := range users {
			if len(same) < 2 {
				continue
			}
			done = false
			slices.Sort(same)
			for _, n := range same {
				if out[n] != prefix+n { // a name that was kept stays
					out[n] = hashed(prefix+legalName(n), n, digits)
				}
			}
		}
		if done {
			return
		}
	}
}

// hashed shortens full and appends hex digits of the hash of name.
func hashed(full, name string, digits int) string {
	sum := sha256.Sum256([]byte(name))
	suffix := "_" + hex.EncodeToString(sum[:])[:digits]
	return full[:min(len(full), maxName-len(suffix))] + suffix
}
