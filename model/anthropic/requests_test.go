package anthropic_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
)

// TestRequests sends the requests in testdata/requests to a strict server and compares the bytes it
// receives. Each file describes what is special about it.
func TestRequests(t *testing.T) {
	providertest.Archives(t, "testdata/requests", 30, func(t *testing.T, part func(string) string) string {
		var req model.Request
		var cfg anthropic.Config
		if err := json.Unmarshal([]byte(part("request")), &req); err != nil {
			t.Fatal(err)
		}
		if data := part("config"); data != "" {
			if err := json.Unmarshal([]byte(data), &cfg); err != nil {
				t.Fatal(err)
			}
		}
		s := anthropictest.New(t, anthropictest.Always(anthropictest.Text("ok")))
		_, _, err := ask(t, newModel(t, s, cfg), &req)
		if len(s.Requests()) == 0 {
			return fmt.Sprintf("none sent: %v\n", err)
		}
		var b bytes.Buffer
		if err := json.Indent(&b, s.Requests()[0].Body, "", " "); err != nil {
			t.Fatal(err)
		}
		return b.String() + "\n"
	})
}
