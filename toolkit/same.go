package toolkit

import (
	"reflect"

	"github.com/kitbag-go/kitbag/tool"
)

// sameTool reports whether two registrations are of the same tool, which is then in both
// groups. Values that are not comparable are different tools.
func sameTool(a, b tool.Tool) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// sameOrigin reports whether two tools from sources are the same tool of the same server. A server is listed
// separately for each of its groups, and may change its definitions in between.
func sameOrigin(a, b tool.Tool) bool {
	type origin interface{ Origin() (server, name string) } // implemented by the tools of package mcpclient
	x, ok := tool.As[origin](a)
	y, also := tool.As[origin](b)
	if !ok || !also {
		return false
	}
	xServer, xName := x.Origin()
	yServer, yName := y.Origin()
	return xServer == yServer && xName == yName
}
