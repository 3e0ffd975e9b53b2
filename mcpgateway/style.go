package mcpgateway

import (
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/toolkit"
)

// A Style determines how the host's model opens groups. Clients of protocol 2026-07-28, whose list must not
// change, always have [StyleDiscover], unless the style is [StyleFull].
type Style string

// The styles. The zero Style is StyleReset.
const (
	StyleReset    Style = "reset"     // reset_tools opens the given groups and closes the others
	StyleEnable   Style = "enable"    // enable_tools and disable_tools open and close groups
	StylePerGroup Style = "per-group" // each group has a tool that opens it and one that closes it
	StyleDiscover Style = "discover"  // the list never changes: search_tools, describe_tools, call_tool
	StyleFull     Style = "full"      // all tools are listed
)

// Styles returns all styles.
func Styles() []Style {
	return []Style{StyleReset, StyleEnable, StylePerGroup, StyleDiscover, StyleFull}
}

// ParseStyle reads the name of a style.
func ParseStyle(s string) (Style, error) {
	var names []string
	for _, st := range Styles() {
		if s == string(st) {
			return st, nil
		}
		names = append(names, string(st))
	}
	return "", fmt.Errorf("unknown style %q; the styles are %s", s, strings.Join(names, ", "))
}

// control returns the control tools of the style.
func (s Style) control() *toolkit.Control {
	switch s {
	case StyleEnable:
		return toolkit.EnableDisable()
	case StylePerGroup:
		return toolkit.PerGroup()
	case StyleDiscover:
		return toolkit.Discover()
	case StyleFull:
		return new(toolkit.Control) // no control tools
	default:
		return toolkit.ResetTools(nil)
	}
}
