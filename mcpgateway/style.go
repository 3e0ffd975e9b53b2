package mcpgateway

import (
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/toolkit"
)

// A Style is the way in which a host's model opens groups. Clients of protocol
// 2026-07-28, whose list must not change, have Discover whatever the style, unless
// it is Full.
type Style string

// The styles. The zero Style is Reset.
const (
	Reset    Style = "reset"     // reset_tools takes all groups that are wanted
	Enable   Style = "enable"    // enable_tools and disable_tools take steps
	PerGroup Style = "per-group" // a tool to open, and one to close, for each group
	Discover Style = "discover"  // the list never changes: search_tools, describe_tools, call_tool
	Full     Style = "full"      // everything is listed
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
