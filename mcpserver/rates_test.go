package mcpserver_test

import (
	"context"
	"errors"
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

// A withoutRates is a store in which rates cannot be read.
type withoutRates struct{ mcpserver.Shared }

func (s withoutRates) Get(ctx context.Context, key string) ([]byte, error) {
	if strings.HasPrefix(key, "rate/") {
		return nil, errors.New("no connection")
	}
	return s.Shared.Get(ctx, key)
}

// TestUncheckedRate checks the audit record of a call that was refused because its rate could not be checked.
func TestUncheckedRate(t *testing.T) {
	var records []mcpserver.Record
	s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(named("echo")), Policy: open,
		Rates:    []mcpserver.Rate{{Tools: "*", Calls: 1, Every: time.Hour}},
		Replicas: &mcpserver.Replicas{Shared: withoutRates{mcpserver.NewShared()}, URL: "http://127.0.0.1:1/"},
		Audit:    func(r mcpserver.Record) { records = append(records, r) }})
	var out strings.Builder
	call, _, _ := strings.Cut(twoCalls, "\n")
	if err := s.ServeStdio(t.Context(), strings.NewReader(call), &out); err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 || records[0].Outcome != mcpserver.OutcomeRefused || !strings.HasPrefix(records[0].Reason, "the rate of * cannot be checked: ") {
		t.Errorf("got the records %+v and the output %s", records, out.String())
	}
}
