package skill

import (
	"strconv"
	"strings"
)

// quote formats a text from a file for a message, short and on one line.
func quote(text string) string { return strconv.Quote(clip(text, 80)) }

// oneLine joins lines, so that a name cannot look like another line of the message.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// clip cuts text to at most n bytes, at the boundary of a character.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
