package mcpclient

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestServerNames checks which names servers may have, and that a proposed replacement for a refused name is
// valid itself.
func TestServerNames(t *testing.T) {
	for name, better := range map[string]string{
		"github": "", "a-b.c d": "", "a_b_c": "", "Grün": "", strings.Repeat("a", 40): "",
		"Größe": "Gr_e", "evil__good": "evil_good", "evil_": "evil", "_evil": "evil", "evil._good": "evil_good", "evil. good": "evil_good", "evil (2)": "evil_2",
		"раypal": "ypal", "日本": "server", "evil\u200b": "evil", "evil\x00_": "evil",
		strings.Repeat("a", 41): strings.Repeat("a", 40), strings.Repeat("a", 39) + ".b": strings.Repeat("a", 39),
	} {
		_, err := New(name, Command{Path: "x"}, nil)
		if (err == nil) != (better == "") || err != nil && !strings.HasSuffix(err.Error(), `use a name such as "`+better+`"`) {
			t.Errorf("%q: error %v, want the proposed name %q (none if empty)", name, err, better)
		}
	}
}

// TestToolNamesBelongToOneServer checks that the full name of a tool starts with the prefix of its own server, and
// with that of no other server.
func TestToolNamesBelongToOneServer(t *testing.T) {
	server := rapid.Custom(func(t *rapid.T) string {
		name := rapid.StringMatching(`[ab_. é]{1,8}|[ab_]{35,45}`).Filter(func(s string) bool { return checkName(s) == nil }).Draw(t, "name")
		return "mcp__" + legalName(name) + "__"
	})
	rapid.Check(t, func(t *rapid.T) {
		mine, other := server.Draw(t, "mine"), server.Draw(t, "other")
		tool := rapid.StringMatching(`[ab_. é]{1,10}|[ab_]{50,70}`).Draw(t, "tool")
		full := toolNames(mine, []string{tool, "a", "_"})[tool]
		if !strings.HasPrefix(full, mine) || mine != other && strings.HasPrefix(full, other) {
			t.Fatalf("%s of %s", full, mine)
		}
	})
}
