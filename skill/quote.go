package skill

import (
	"strconv"
	"strings"
)

// quote shows a text from a file in a message, short and on one line.
func quote(text string) string { return strconv.Quote(clip(text, 80)) }

// oneLine keeps a name from passing for another line of what is told.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// clip cuts text to at most n bytes, at the boundary of a character.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
