package openai_test

import (
	"net/http"
	"testing"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/model/openai"
)

func TestTimeouts(t *testing.T) {
	providertest.Timeouts(t, providertest.Stream{
		Text:   "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
		Finish: "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
		End:    "data: [DONE]\n\n",
	}, func(c *http.Client) (model.Model, error) {
		return openai.New(openai.Config{Model: "m", BaseURL: "http://localhost", HTTPClient: c})
	})
}
