package mcpgateway

import (
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/toolkit"
)

// A Style is how the host's model opens groups. Clients of protocol 2026-07-28, whose list must
// not change, always have Discover, unless the style is Full.
type Style string

// The styles. The zero Style is Reset.
const (
	Reset    Style = "reset"     // reset_tools opens the given groups and closes the others
	Enable   Style = "enable"    // enable_tools and disable_tools open and close groups
	PerGroup Style = "per-group" // a tool to open, and one to close, for each group
	Discover Style = "discover"  // the list never changes: search_tools, describe_tools, call_tool
	Full     Style = "full"      // all tools are listed
)

// Styles returns all styles.
func Styles() []Style { return []Style{Reset, Enable, PerGroup, Discover, Full} }

// ParseStyle reads the name of a style.
func ParseStyle(s string) (Style, error) {
	var names []string
	for _, st := range Styles() {
		if s == string(st) {
			return st, nil
		}
		names = append(names, string(st))
	}
	return "", fmt.Errorf("style %q is unknown; the styles are %s", s, strings.Join(names, ", "))
}

// control returns the control tools of the style.
func (s Style) control() toolkit.Control {
	switch s {
	case Enable:
		return toolkit.EnableDisable()
	case PerGroup:
		return toolkit.PerGroup()
	case Discover:
		return toolkit.Discover()
	case Full:
		return toolkit.NoControl()
	default:
		return toolkit.ResetTools()
	}
}
