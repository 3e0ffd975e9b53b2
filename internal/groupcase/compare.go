package groupcase

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Same returns the difference between a value and JSON; "" if they are equal.
func Same(got any, want json.RawMessage) string {
	data, err := json.Marshal(got)
	if err != nil {
		return err.Error()
	}
	var g, w any
	if json.Unmarshal(data, &g) != nil || json.Unmarshal(want, &w) != nil {
		return "not JSON"
	}
	if !reflect.DeepEqual(g, w) {
		return fmt.Sprintf("got %s, want %s", data, want)
	}
	return ""
}

// Result returns the difference between a structured answer and that of wags, or "". Texts of errors are compared with
// [Says]. With whole, got must have no further members.
func Result(got map[string]any, want json.RawMessage, whole bool) string {
	var w map[string]any
	if json.Unmarshal(want, &w) != nil {
		return "cannot be read: " + string(want)
	}
	if whole && len(got) != len(w) {
		return fmt.Sprintf("got %v, want %v", got, w)
	}
	for k, v := range w {
		if k != "errors" {
			if d := Same(got[k], encoded(v)); d != "" {
				return k + ": " + d
			}
			continue
		}
		theirs, _ := v.([]any)
		ours, _ := got[k].([]any)
		if len(theirs) != len(ours) {
			return fmt.Sprintf("errors: got %q, want %q", ours, theirs)
		}
		for i := range theirs {
			if !Says(fmt.Sprint(theirs[i]), fmt.Sprint(ours[i])) {
				return fmt.Sprintf("errors: got %q, want our text for %q", ours[i], theirs[i])
			}
		}
	}
	return ""
}

func encoded(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return data
}

var wordings = []wording{
	{`Unknown group: (.*)`, `group "$1"`},
	{`Group already enabled: (.*)`, `group "$1" is already enabled`},
	{`Group not enabled: (.*)`, `group "$1" is not enabled`},
	{`Group '(.*)' not visible. Enable parent '(.*)' first.`, `group "$1" needs .*$2 to be open too; nothing was changed: open .*$2, then $1`},
	{`Cannot enable '(.*)': would result in (\d+) tools, exceeding max_tools=(\d+).*`, `group "$1": that would make $2 tools, and $3 are allowed`},
	{`Cannot initially enable '(.*)': parent '(.*)' not enabled`, `initial group "$1": put its parent "$2" before it`},
	{`Group '(.*)' has unknown parent '(.*)'`, `group "$1": parent "$2" does not exist`},
	{`Handler '(.*)' references unknown group '(.*)'\. .*`, `tool "$1": group "$2" of its setting does not exist`},

	{`GroupNotFound:(.*)`, `(there is no group "$1"|(group|parent) "$1" does not exist)`},
	{`GroupInactive:(.*):(.*)`, `group "$1" needs .*$2 to be open too; nothing was changed: open .*$2, then $1`},
	{`Other:hook failed: ([+-])(.*)`, `group "$2" could not be opened or closed, and nothing was changed: hook failed: [$1]$2`},
	{`InvalidConfiguration:group already registered: (.*)`, `two groups have the name "$1"`},
	{`InvalidConfiguration:group name is empty`, `a group has no name`},
	{`InvalidConfiguration:invalid group segment: `, `a part of the name, which is a path, is empty`},
	{`InvalidConfiguration:group '(.*)' must be nested under parent '(.*)'`, `group "$1": the name must start with that of its parent, "$2\."`},
	{`InvalidConfiguration:tool already registered: (.*)`, `tool "$1" in .*: another tool in .* has this name`},

	{`Invalid group name\(s\): (.*)\. The current available groups are: (.*)`, `there is no group "$1"; the groups are $2$`},
	{`Invalid arguments: the argument '(.*)' should be a bool value.*`, `group "$1": the value must be true or false`},
	{`description is required for tool group '(.*)'`, `group "$1" has no description`},

	{`Tool '(.*)' field must be a list of strings`, `tools\[\d+\]\.$1: got .*, want array`},
	{`All group names must be strings`, `\.group\[\d+\]: got .*, want string`},
	{`All state names must be strings`, `states\[\d+\]: got .*, want string`},

	{`Group (.*) is already registered`, `two groups have the name "$1"`},
}

// A wording maps the error texts of one of the systems to those of package toolkit. Both are patterns; in ours, $1 and so
// on are the texts that upstream's groups matched.
type wording struct{ upstream, ours string }

// Says reports whether our text has the meaning of theirs, by wordings. For a text without a wording it must at least
// mention the names in theirs.
func Says(theirs, ours string) bool {
	for _, w := range wordings {
		re := regexp.MustCompile("^(?s:" + w.upstream + ")$")
		m := re.FindStringSubmatch(theirs)
		if m == nil {
			continue
		}
		pattern := w.ours
		for i, group := range m[1:] {
			pattern = strings.ReplaceAll(pattern, fmt.Sprintf("$%d", i+1), regexp.QuoteMeta(group))
		}
		return regexp.MustCompile(pattern).MatchString(ours)
	}
	for _, m := range regexp.MustCompile(`'([^']*)'|:([^: ]+)$`).FindAllStringSubmatch(theirs, -1) {
		if !strings.Contains(ours, m[1]+m[2]) {
			return false
		}
	}
	return true
}
