//go:build live

package modeltest_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/model/modeltest"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
)

// These tests call real servers, some hundred times with short answers, which costs a few cents.
// "make live" runs them for whoever has keys. They are not part of CI, and have not been run yet.

// lookup returns the values of environment variables. The test fails if any is missing.
func lookup(t *testing.T, names ...string) []string {
	t.Helper()
	var values, missing []string
	for _, name := range names {
		values = append(values, os.Getenv(name))
		if os.Getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		t.Fatalf("set %s: a live test needs a key and the name of a model",
			strings.Join(missing, " and "))
	}
	return values
}

func TestLiveOpenAI(t *testing.T) {
	env := lookup(t, "OPENAI_API_KEY", "KITBAG_LIVE_OPENAI_MODEL")
	testLive(t, env[0], func(key string, client *http.Client) (model.Model, error) {
		return openai.New(openai.Config{Model: env[1], BaseURL: os.Getenv("OPENAI_BASE_URL"),
			Key: key, HTTPClient: client})
	})
}

func TestLiveAnthropic(t *testing.T) {
	env := lookup(t, "ANTHROPIC_API_KEY", "KITBAG_LIVE_ANTHROPIC_MODEL")
	testLive(t, env[0], func(key string, client *http.Client) (model.Model, error) {
		return anthropic.New(anthropic.Config{Model: env[1],
			BaseURL: os.Getenv("ANTHROPIC_BASE_URL"), Key: key, HTTPClient: client})
	})
}

// testLive runs the contract with answers that a model gives in the same words each time: a text, and
// a call without arguments. The model that fails has a wrong key.
func testLive(
	t *testing.T, key string, open func(key string, client *http.Client) (model.Model, error),
) {
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	t.Cleanup(client.CloseIdleConnections)
	m, err := open(key, client)
	if err != nil {
		t.Fatal(err)
	}
	fails, err := open("wrong", client)
	if err != nil {
		t.Fatal(err)
	}
	const system = "Answer with the user's message, word by word, and with nothing else."
	said := []*message.Message{message.User("Hello, world.")}
	for why, req := range map[string]*model.Request{
		"text": {System: system, Messages: said},
		"call": {Messages: said, Tools: []tool.Info{providertest.Tool("greet")},
			Choice: model.ToolChoice{Mode: model.ChoiceNamed, Name: "greet"}},
	} {
		t.Run(why, func(t *testing.T) {
			modeltest.Run(t, m, modeltest.Options{Fails: fails, Request: req})
		})
	}
}
