package anthropic_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
)

// slow is a server with delays: before the header, then before each event. A
// delay is on the clock of the test, so that it takes no time.
type slow struct {
	header time.Duration
	events []time.Duration
	hangs  bool // in place of the end, once the answer is finished
	ctx    context.Context
}

func (s slow) wait(d time.Duration) error {
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (s slow) RoundTrip(req *http.Request) (*http.Response, error) {
	s.ctx = req.Context()
	if err := s.wait(s.header); err != nil {
		return nil, err
	}
	s.events = slices.Clone(s.events)
	return &http.Response{StatusCode: 200, Body: io.NopCloser(&s), Request: req}, nil
}

const slowEnd = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n"

// Read gives an event of the text "x" for each delay, and the end.
func (s *slow) Read(p []byte) (int, error) {
	if len(s.events) == 0 && s.hangs {
		s.hangs, s.events = false, []time.Duration{time.Hour}
		return copy(p, slowEnd), nil
	}
	if len(s.events) == 0 {
		return copy(p, slowEnd+"data: {\"type\":\"message_stop\"}\n\n"), io.EOF
	}
	if err := s.wait(s.events[0]); err != nil {
		return 0, err
	}
	s.events = s.events[1:]
	return copy(p, "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n"), nil
}

func slowModel(t *testing.T, s slow) *anthropic.Model {
	t.Helper()
	m, err := anthropic.New(anthropic.Config{Model: "m", BaseURL: "http://localhost", HTTPClient: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTimeouts has servers that are slow in each part of an answer.
func TestTimeouts(t *testing.T) {
	const second, minute = time.Second, time.Minute
	for _, row := range []struct {
		why    string
		server slow
		reader time.Duration // how long the reader takes for each chunk
		text   string
		want   string // a part of the error; empty for none
		after  time.Duration
	}{
		{"at once", slow{events: []time.Duration{0, 0}}, 0, "xx", "", 0},
		{"a late header", slow{header: 4 * minute, events: []time.Duration{0}}, 0, "x", "", 4 * minute},
		{"no header", slow{header: time.Hour}, 0, "", "no answer began within 5m0s", 5 * minute},
		{"silence at the start", slow{events: []time.Duration{time.Hour}}, 0, "", "silent for 2m0s", 2 * minute},
		{"silence in the middle", slow{events: []time.Duration{second, time.Hour}}, 0, "x", "silent for 2m0s", 2*minute + second},
		{"a long stream: there is no limit on the whole", slow{events: slices.Repeat([]time.Duration{minute}, 100)}, 0, strings.Repeat("x", 100), "", 100 * minute},
		{"an end that never comes: the answer is whole", slow{events: []time.Duration{0}, hangs: true}, 0, "x", "", 5 * second},
		{"a slow reader is not a silent server", slow{events: []time.Duration{0, 0, 0}}, time.Hour, "xxx", "", 4 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := slowModel(t, row.server)
			start, text := time.Now(), ""
			var err error
			for chunk, streamErr := range m.Generate(t.Context(), hi) {
				if err = streamErr; err != nil {
					break
				}
				if d, ok := chunk.(*model.TextDelta); ok {
					text += d.Text
				}
				time.Sleep(row.reader)
			}
			if took := time.Since(start); text != row.text || took != row.after {
				t.Errorf("%s: %q after %v, want %q after %v", row.why, text, took, row.text, row.after)
			}
			e, ok := errors.AsType[*model.Error](err)
			if (err != nil) != (row.want != "") || err != nil && (!ok || e.Kind != model.KindConnection || !strings.Contains(e.Message, row.want)) {
				t.Errorf("%s: %v, want %q", row.why, err, row.want)
			}
		})
	}
}

// TestContextEndsInSilence: the caller's own deadline is not a time-out of ours.
func TestContextEndsInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		msg, _, err := model.Collect(slowModel(t, slow{events: []time.Duration{0, time.Hour}}).Generate(ctx, hi))
		if _, ok := errors.AsType[*model.Error](err); ok || !errors.Is(err, context.DeadlineExceeded) || msg.Text() != "x" {
			t.Errorf("%q, %v", msg.Text(), err)
		}
	})
}

// TestStop: a consumer that stops ends the request.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for range slowModel(t, slow{events: []time.Duration{0, time.Hour}}).Generate(t.Context(), hi) {
			break
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
