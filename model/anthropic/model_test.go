package anthropic_test

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served returns a model behind a server that answers each request with the turn.
func served(t *testing.T, turn anthropictest.Turn) model.Model {
	t.Helper()
	s := anthropictest.Serve(anthropictest.Always(turn))
	t.Cleanup(s.Close)
	client := &http.Client{Transport: new(http.Transport)}
	t.Cleanup(client.CloseIdleConnections)
	return newModel(t, s, anthropic.Config{HTTPClient: client})
}

// TestContract runs the contract of all models, with servers that fail and hang in several places.
func TestContract(t *testing.T) {
	calling := anthropictest.Thinking("Hm.").Text("I add.").Calls(addCall(`{"a":2}`),
		addCall(`{"a":3}`))
	for _, fails := range []anthropictest.Turn{anthropictest.Overloaded(),
		anthropictest.RateLimit("1"), calling.CutAfter(500)} {
		for _, hangs := range []anthropictest.Turn{anthropictest.Hang(), calling.HangAfter(500)} {
			modeltest.Run(t, served(t, calling),
				modeltest.Options{Fails: served(t, fails), Hangs: served(t, hangs)})
		}
	}
}
