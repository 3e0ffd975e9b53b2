package anthropic_test

import (
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
)

// TestAnswers replays the answers in testdata/answers over HTTP. Each file
// describes what is odd about its answer, and has the answer and the expected result.
func TestAnswers(t *testing.T) {
	providertest.Archives(t, "testdata/answers", 80, func(t *testing.T, part func(string) string) string {
		status, body, header := providertest.Answer(t, part("options"), part("answer"))
		s := anthropictest.New(t, anthropictest.Status(status, body, header...))
		msg, fin, err := ask(t, newModel(t, s, anthropic.Config{}), hi)
		return strings.ReplaceAll(providertest.Render(t, msg, fin, err),
			strings.TrimPrefix(s.URL, "http://"), "SERVER")
	})
}
