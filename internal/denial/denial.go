// Package denial has the texts that a model gets as the result of a call that may not run.
package denial

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

//go:embed denied.txt
var denied string

//go:embed refused.txt
var refused string

// Denied returns the text for a call that the policy denies, with the reason of the decision.
func Denied(tool, reason string) string {
	text := fmt.Sprintf(strings.TrimSpace(denied), tool, reason)
	return strings.Replace(text, " was denied: denied by ", " was denied by ", 1)
}

// An Error means that a rule denies every call of a tool. Its text is that of [Denied].
type Error struct {
	Tool     string
	Decision permission.Decision
}

func (e *Error) Error() string { return Denied(e.Tool, e.Decision.Reason) }

// Hidden returns the error for a call of a tool that the model does not see: an [*Error] if it is hidden because a rule
// denies every call of it, or else err. If the call is of call_tool, it is about the tool named in the arguments.
func Hidden(p *permission.Policy, tool string, err error) error {
	if hidden, ok := errors.AsType[*toolkit.HiddenError](err); ok {
		tool = hidden.Tool
	}
	// Decided without the mode and without rules that have patterns, each of which could be the reason in place of the rule.
	every := &permission.Policy{Rules: slices.DeleteFunc(slices.Clone(p.Rules), func(r permission.Rule) bool { return r.Pattern != "" })}
	if d := permission.Decide(every, &permission.Call{Tool: tool}); d.Behavior == permission.Deny && d.Rule != nil {
		return &Error{tool, d}
	}
	return err
}

// Refused returns the text for a call that the user refuses, with the user's reason if there is one.
func Refused(tool, reason string) string {
	if reason != "" {
		return fmt.Sprintf("The user refused this call of %s. Reason: %s", tool, reason)
	}
	return fmt.Sprintf(strings.TrimSpace(refused), tool)
}
