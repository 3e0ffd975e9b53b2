// Package denial has what a model reads in place of the result of a call that may not run.
package denial

import (
	_ "embed"
	"fmt"
	"strings"
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

// Refused returns the text for a call that the user refuses. A reason says what the user wants instead.
func Refused(tool, reason string) string {
	if reason != "" {
		return fmt.Sprintf("The user refused this call of %s. Reason: %s", tool, reason)
	}
	return fmt.Sprintf(strings.TrimSpace(refused), tool)
}
