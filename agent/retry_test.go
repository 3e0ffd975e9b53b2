package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
)

// TestOneLayerOfRetries gives an agent a model that retries by itself, and one that does not: each retry is
// made once, is an event, and is reported to Config.Retry.OnRetry.
func TestOneLayerOfRetries(t *testing.T) {
	fails := func() *scripted.Model {
		return scripted.New(scripted.Repeat(scripted.Fail(&model.Error{Kind: model.KindUpstream, Message: "no"})))
	}
	retry := func(m model.Model) model.Model { return middleware.Retry(m, middleware.RetryConfig{}) }
	for _, row := range []struct {
		why                string
		model              func(a, b model.Model) model.Model
		requests, reported int
	}{
		{"it does not", func(a, b model.Model) model.Model { return a }, 4, 3},
		{"it does", func(a, b model.Model) model.Model {
			return middleware.Fallback([]model.Model{retry(a), retry(b)}, middleware.FallbackConfig{})
		}, 8, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b, reported := fails(), fails(), 0
			ag, err := New(Config{Model: row.model(a, b), Toolkit: lookKit(t, nil), Retry: middleware.RetryConfig{OnRetry: func(try int, wait time.Duration, err error) {
				if reported++; try < 1 || try > 3 || wait < time.Second/2 || err == nil {
					t.Errorf("%s: try %d, wait %v, %v", row.why, try, wait, err)
				}
			}}})
			if err != nil {
				t.Fatal(err)
			}
			evs, err := play(t, ag, new(State), Say("go"))
			n := len(a.Requests()) + len(b.Requests())
			if err == nil || n != row.requests || reported != row.reported || len(of[*event.Retry](evs)) != row.reported {
				t.Errorf("%s: %d requests, reported %d times, %d events, %v", row.why, n, reported, len(of[*event.Retry](evs)), err)
			}
		})
	}
}
