package mcpgateway_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/tool"
)

// BenchmarkCall compares a call through the gateway, from the host's line to the line of its answer, with a
// call through our client alone, to a separate process and over a pipe in memory. The two alternate, so that
// other load on the machine affects both; the metric is the ratio of their medians. The issue that requested
// the gateway allows 1.5.
func BenchmarkCall(b *testing.B) {
	for name, server := range map[string]func() mcpclient.Server{
		"process": func() mcpclient.Server { return process(b, "a") },
		"pipe":    func() mcpclient.Server { return behind(b, "a", echo()).Server },
	} {
		b.Run(name, func(b *testing.B) {
			w := newWire(b, newGateway(b, mcpgateway.Config{Servers: []mcpclient.Server{server()}, Initial: []string{"a"}}))
			cfg := server()
			c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			text := strings.Repeat("x", 500)
			alone := clientCall(b, c, text)
			body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__echo","arguments":{"message":"` + text + `"}}}`
			through := func() {
				if got := w.ask(body); !strings.Contains(string(got), text) {
					b.Fatalf("%s", got)
				}
			}
			through() // lists
			var direct, gateway []time.Duration
			measure := func(into *[]time.Duration, call func()) {
				start := time.Now()
				call()
				*into = append(*into, time.Since(start))
			}
			b.ReportAllocs()
			for b.Loop() {
				measure(&direct, alone)
				measure(&gateway, through)
			}
			slices.Sort(direct)
			slices.Sort(gateway)
			b.ReportMetric(float64(gateway[len(gateway)/2])/float64(direct[len(direct)/2]), "gateway/client")
			b.ReportMetric(0, "ns/op") // of both calls on this machine, so it would be meaningless
		})
	}
}

// clientCall returns a call of echo through our client.
func clientCall(b *testing.B, c *mcpclient.Client, text string) func() {
	tools, err := c.Tools(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	i := slices.IndexFunc(tools, func(t tool.Tool) bool { return strings.HasSuffix(t.Info().Name, "__echo") })
	call := tool.Call{ID: "1", Name: tools[i].Info().Name, Input: json.RawMessage(`{"message":"` + text + `"}`)}
	return func() {
		col := tool.NewCollector(call)
		for chunk, err := range tool.Run(b.Context(), tools[i], call) {
			if err != nil {
				b.Fatal(err)
			}
			col.Add(chunk)
		}
		if col.Result().Text() != text {
			b.Fatal(col.Result().Text())
		}
	}
}
