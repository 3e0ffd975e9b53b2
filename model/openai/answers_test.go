package openai_test

import (
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/model/openai"
)

// TestAnswers replays the answers in testdata/answers over HTTP. Each file
// describes what is odd about its answer, and has the answer and the expected result.
// With the option "image", the request has an image.
func TestAnswers(t *testing.T) {
	providertest.Archives(t, "testdata/answers", 80, func(t *testing.T, part func(string) string) string {
		options, image := strings.CutSuffix(part("options"), "image\n")
		req := hi
		if image {
			req = &model.Request{Messages: []*message.Message{{Role: message.RoleUser, Blocks: message.Blocks{&message.Data{MediaType: "image/png", Bytes: []byte("\x89PNG")}}}}}
		}
		s := openaitest.New(t, rawTurn(t, options, part("answer")))
		msg, fin, err := model.Collect(newModel(t, s, openai.Config{API: openai.APIChat}).Generate(t.Context(), req))
		return strings.ReplaceAll(providertest.Render(t, msg, fin, err), host(s), "SERVER")
	})
}

// host returns the host and port of a server.
func host(s *openaitest.Server) string {
	return strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/v1")
}

func rawTurn(t *testing.T, options, answer string) openaitest.Turn {
	status, body, header := providertest.Answer(t, options, answer)
	return openaitest.Status(status, body, header...)
}
