package mcpgateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/tracecontext"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/tool"
)

// TestTraceContext: the W3C trace context of a call reaches the server that has the tool, in both eras.
func TestTraceContext(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	trace := tool.Must(tool.New("trace", "Returns its trace context.", func(ctx context.Context, _ none) (string, error) {
		return fmt.Sprintf("%+v", tracecontext.From(ctx)), nil
	}))
	for _, protocol := range []string{"2025-11-25", "2026-07-28"} {
		u := behind(t, "a", trace).Server
		u.Options.Protocol = protocol
		w := newWire(t, newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{u}, Initial: []string{"a"}}))
		w.ask(listBody)
		for meta, want := range map[string]string{
			`{"traceparent":"` + parent + `","tracestate":"a=1","baggage":"tenant=7"}`: "{Parent:" + parent + " State:a=1 Baggage:tenant=7}",
			`{}`: "{Parent: State: Baggage:}",
		} {
			got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__trace","arguments":{},"_meta":` + meta + `}}`)
			if !strings.Contains(string(got), want) {
				t.Errorf("%s %s: %s", protocol, meta, got)
			}
		}
	}
}
