package modeltest_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/modeltest"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/model/replay"
	"github.com/kitbag-go/kitbag/model/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestScripted(t *testing.T) {
	turn := scripted.Think("Hm.").And(scripted.Say("I add."), scripted.Call("add", map[string]int{"a": 2}), scripted.Call("add", map[string]int{"a": 3}))
	m := scripted.New(scripted.Repeat(turn))
	modeltest.Run(t, m, modeltest.Options{Fails: scripted.New(scripted.Repeat(scripted.Fail(&model.Error{Kind: model.KindUpstream})))})
	modeltest.Run(t, middleware.Fallback([]model.Model{middleware.Retry(m, middleware.RetryConfig{}), m}, middleware.FallbackConfig{}), modeltest.Options{})
	modeltest.Run(t, middleware.Limit(m, middleware.LimitConfig{Requests: 1000}), modeltest.Options{})
}

// served returns a model behind a server that answers each request with the turn.
func served(t *testing.T, api openai.API, turn openaitest.Turn) model.Model {
	t.Helper()
	s := openaitest.Serve(openaitest.Always(turn))
	t.Cleanup(s.Close)
	return opened(t, openai.Config{BaseURL: s.URL, API: api}, new(http.Transport))
}

func opened(t *testing.T, cfg openai.Config, through http.RoundTripper) model.Model {
	t.Helper()
	client := &http.Client{Transport: through}
	t.Cleanup(client.CloseIdleConnections)
	cfg.Model, cfg.HTTPClient = "test", client
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// calling is an answer with all kinds of deltas that the fake server has.
var calling = openaitest.Text("I add.").Reasoning("Hm.").Calls(openaitest.Call{Name: "add", Args: `{"a":2}`}, openaitest.Call{Name: "add", Args: `{"a":3}`}).Interleave()

func TestOpenAI(t *testing.T) {
	for _, api := range []openai.API{openai.APIChat, openai.APIResponses} {
		for _, fails := range []openaitest.Turn{openaitest.Broken(), openaitest.RateLimit("1"), calling.CutAfter(300)} {
			for _, hangs := range []openaitest.Turn{openaitest.Hang(), calling.HangAfter(300)} {
				modeltest.Run(t, served(t, api, calling), modeltest.Options{Fails: served(t, api, fails), Hangs: served(t, api, hangs)})
			}
		}
	}
}

// again plays a recording of one exchange for each request.
type again string

func (file again) RoundTrip(req *http.Request) (*http.Response, error) {
	p, err := replay.Play(string(file), replay.Config{})
	if err != nil {
		return nil, err
	}
	return p.RoundTrip(req)
}

func TestReplay(t *testing.T) {
	s := openaitest.New(t, calling)
	file := filepath.Join(t.TempDir(), "recording.json")
	r := replay.Record(file, replay.Config{})
	req := &model.Request{Messages: []*message.Message{message.User("Hello")}}
	if _, _, err := model.Collect(opened(t, openai.Config{BaseURL: s.URL}, r).Generate(t.Context(), req)); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	modeltest.Run(t, opened(t, openai.Config{BaseURL: s.URL}, again(file)), modeltest.Options{})
}
