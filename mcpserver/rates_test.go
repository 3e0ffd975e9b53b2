package mcpserver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/toolkit"
)

const twoCalls = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{}}}
`

// TestRatesOverStdio checks that rates also limit the calls of a client over stdio.
func TestRatesOverStdio(t *testing.T) {
	for _, each := range []bool{false, true} {
		s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(named("echo")), Policy: open,
			Rates: []mcpserver.Rate{{Tools: "*", Calls: 1, Every: time.Hour, Each: each}}})
		var out strings.Builder
		if err := s.ServeStdio(t.Context(), strings.NewReader(twoCalls), &out); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Count(got, `"result"`) != 2 || strings.Count(got, "there were more than 1 calls of * in 1h0m0s") != 1 {
			t.Errorf("each %v: one of the two calls must be refused:\n%s", each, got)
		}
	}
}
