package builtin

import (
	"errors"

	"github.com/kitbag-go/kitbag/permission"
)

// unreadable is the verdict on input that is not what the schema says: nobody
// can tell what it would do.
var unreadable = permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: errUnreadable.Error()}

var errUnreadable = errors.New("the arguments cannot be read")

// editsAllowed reports whether the mode lets files below the working
// directories be changed without a question.
func editsAllowed(p *permission.Policy) bool {
	return p != nil && (p.Mode == permission.AcceptEdits || p.Mode == permission.DontAsk)
}

func allowRules(tool string, patterns ...string) []permission.Rule {
	var rules []permission.Rule
	for _, pattern := range patterns {
		if pattern != "" {
			rules = append(rules, permission.Rule{Tool: tool, Pattern: pattern, Behavior: permission.Allow, Source: "suggested"})
		}
	}
	return rules
}
