package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestAmbiguous checks that a message that two readers could interpret as different calls is rejected, over
// HTTP and stdio, in revisions with and without sessions.
func TestAmbiguous(t *testing.T) {
	ran := new(atomic.Int64)
	count := tool.Must(tool.New("count", "Counts.", func(context.Context, map[string]json.RawMessage) (string, error) {
		ran.Add(1)
		return "counted", nil
	}))
	s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(count), Policy: open})
	w := newWire(t, listen(t, s))
	w.initialize(`{}`)
	const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for _, row := range []struct {
		params, rest string
		runs         int64
	}{
		{`"name":"count","arguments":{"a":{"x":1},"b":{"x":1},"A":1}`, ``, 1},
		{`"name":"count","arguments":null`, ``, 1},
		{`"name":"count"`, ``, 1},
		{`"name":"count","arguments":{},` + modern, ``, 1},
		{`"name":"count","arguments":{}`, `,"method":"tools/call"`, 0},
		{`"name":"count","arguments":{}`, `,"Method":"ping"`, 0},
		{`"name":"count","arguments":{}`, `,"param\u017f":{}`, 0},
		{`"name":"count","arguments":{}`, `,"paramſ":{}`, 0},
		{`"name":"count","arguments":{}`, `,"ID":8`, 0},
		{`"name":"count","name":"count"`, ``, 0},
		{`"name":"count","Name":"other"`, ``, 0},
		{`"Name":"count"`, ``, 0},
		{`"name":"count","argumentſ":{"a":1}`, ``, 0},
		{`"name":"count","arguments":{},"argument\u0073":{}`, ``, 0},
		{`"name":"count","arguments":{"a":{"b":[{"c":1,"c":2}]}}`, ``, 0},
		{`"name":"count","_meta":{},"_META":{}`, ``, 0},
		{`"name":"count","_meta":{"ProgressToken":1}`, ``, 0},
		{`"name":"count","arguments":{},"Arguments":{},` + modern, ``, 0},
		{`"name":"count","arguments":{"a":1,"a":2},` + modern, ``, 0},
	} {
		body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + row.params + `}` + row.rest + `}`
		if w.header = nil; strings.Contains(row.params, modern) {
			w.header = map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "count"}
		}
		ran.Store(0)
		if status, got := w.post(t.Context(), body); ran.Load() != row.runs || row.runs == 0 && !strings.Contains(strings.Join(got, ""), `"error"`) {
			t.Errorf("HTTP: %s: ran %d times: %d %s", body, ran.Load(), status, got)
		}
		ran.Store(0)
		var out bytes.Buffer
		if err := s.ServeStdio(t.Context(), strings.NewReader(body+"\n"), &out); err != nil || ran.Load() != row.runs {
			t.Errorf("stdio: %s: ran %d times: %v %s", body, ran.Load(), err, out.String())
		}
	}
}
