package skill

import (
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// quote formats a text from a file for a message: quoted, at most 80 bytes, on one line.
func quote(text string) string { return strconv.Quote(visible.Cut(text, 80, "…")) }

// oneLine joins lines, so that a name cannot look like another line of the message.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
