package openai

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

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// slow is a transport that waits before the header and before each event. The delays
// run on the fake clock of synctest.
type slow struct {
	header time.Duration
	events []time.Duration
	hangs  bool // after the finish reason, instead of ending
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

// Read returns an event with the text "x" for each delay, then the end.
func (s *slow) Read(p []byte) (int, error) {
	if len(s.events) == 0 && s.hangs {
		s.hangs, s.events = false, []time.Duration{time.Hour}
		return copy(p, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"), nil
	}
	if len(s.events) == 0 {
		return copy(p, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"), io.EOF
	}
	if err := s.wait(s.events[0]); err != nil {
		return 0, err
	}
	s.events = s.events[1:]
	return copy(p, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"), nil
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
		{"usage that never comes: the answer is whole", slow{events: []time.Duration{0}, hangs: true}, 0, "x", "", usageTime},
		{"a slow reader is not a silent server", slow{events: []time.Duration{0, 0, 0}}, time.Hour, "xxx", "", 4 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, err := New(Config{Model: "m", BaseURL: "http://localhost", HTTPClient: &http.Client{Transport: row.server}})
			if err != nil {
				t.Fatal(err)
			}
			start, text := time.Now(), ""
			for chunk, streamErr := range m.Generate(t.Context(), &model.Request{Messages: []*message.Message{globalMessage}}) {
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
			if (err != nil) != (row.want != "") || (err != nil && (!ok || e.Kind != model.KindConnection || !strings.Contains(e.Message, row.want))) {
				t.Errorf("%s: %v, want %q", row.why, err, row.want)
			}
		})
	}
}

// TestContextEndsInSilence: the caller's own deadline is not reported as a timeout of the model.
func TestContextEndsInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := New(Config{Model: "m", BaseURL: "http://localhost", HTTPClient: &http.Client{Transport: slow{events: []time.Duration{0, time.Hour}}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		msg, _, err := model.Collect(m.Generate(ctx, &model.Request{Messages: []*message.Message{globalMessage}}))
		if _, ok := errors.AsType[*model.Error](err); ok || !errors.Is(err, context.DeadlineExceeded) || msg.Text() != "x" {
			t.Errorf("%q, %v", msg.Text(), err)
		}
	})
}
