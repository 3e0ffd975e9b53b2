package mcpserver_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestTogetherOneGivesUp checks that the client still gets the other function's question if the function that
// asks last has given up.
func TestTogetherOneGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := tool.Must(tool.New("pair", "Asks twice.", func(ctx context.Context, _ none) (string, error) {
			return "", mcpserver.Together(ctx,
				func(ctx context.Context) error { _, err := mcpserver.Roots(ctx); return err },
				func(ctx context.Context) error {
					time.Sleep(time.Second) // until the other function has asked
					ctx, cancel := context.WithCancel(ctx)
					cancel()
					_, err := mcpserver.Roots(ctx)
					return err
				})
		}))
		s := serve(t, mcpserver.Config{Toolkit: toolkit.Of(pair), Policy: open})
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		go func() { _ = s.ServeStdio(context.Background(), inR, outW); _ = outW.Close() }()
		output := make(chan string)
		go func() {
			all, _ := io.ReadAll(outR)
			output <- string(all)
		}()
		const calls = 20
		for i := range calls {
			fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"pair","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}}`+"\n", i)
		}
		time.Sleep(time.Minute)
		_ = inW.Close()
		if got := <-output; strings.Count(got, "input_required") != calls {
			t.Errorf("%d of %d calls asked: %s", strings.Count(got, "input_required"), calls, got)
		}
	})
}
