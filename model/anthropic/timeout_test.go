package anthropic_test

import (
	"net/http"
	"testing"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
)

func TestTimeouts(t *testing.T) {
	providertest.Timeouts(t, providertest.Stream{
		Text:   "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
		Finish: "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
		End:    "data: {\"type\":\"message_stop\"}\n\n",
	}, func(c *http.Client) (model.Model, error) {
		return anthropic.New(anthropic.Config{Model: "m", BaseURL: "http://localhost",
			HTTPClient: c})
	})
}
