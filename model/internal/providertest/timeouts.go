package providertest

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

// A Stream is the events of a provider's stream.
type Stream struct {
	Text   string // has the text "x"
	Finish string // has the reason of the finish
	End    string
}

// slow is a transport that waits before the header and before each event. The delays
// run on the fake clock of synctest.
type slow struct {
	header time.Duration
	events []time.Duration
	hangs  bool // after the finish reason, instead of ending
	stream Stream
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
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&s), Request: req}, nil
}

// Read returns an event with a text for each delay, then the end.
func (s *slow) Read(p []byte) (int, error) {
	if len(s.events) == 0 && s.hangs {
		s.hangs, s.events = false, []time.Duration{time.Hour}
		return copy(p, s.stream.Finish), nil
	}
	if len(s.events) == 0 {
		return copy(p, s.stream.Finish+s.stream.End), io.EOF
	}
	if err := s.wait(s.events[0]); err != nil {
		return 0, err
	}
	s.events = s.events[1:]
	return copy(p, s.stream.Text), nil
}

// Timeouts tests a model with servers that are slow in each part of an answer.
func Timeouts(t *testing.T, stream Stream, newModel func(*http.Client) (model.Model, error)) {
	const second, minute = time.Second, time.Minute
	hi := &model.Request{Messages: []*message.Message{message.User("hi")}}
	run := func(why string, server slow, test func(t *testing.T, m model.Model)) {
		server.stream = stream
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := newModel(&http.Client{Transport: server})
				if err != nil {
					t.Fatal(err)
				}
				test(t, m)
			})
		})
	}
	for _, row := range []struct {
		why    string
		server slow
		reader time.Duration // how long the reader takes for each chunk
		text   string
		want   string // a part of the error; empty for none
		after  time.Duration
	}{
		{"no delay", slow{events: []time.Duration{0, 0}}, 0, "xx", "", 0},
		{"late header", slow{header: 4 * minute, events: []time.Duration{0}}, 0, "x", "", 4 * minute},
		{"no header", slow{header: time.Hour}, 0, "", "no answer began within 5m0s", 5 * minute},
		{"silent at the start", slow{events: []time.Duration{time.Hour}}, 0, "", "silent for 2m0s", 2 * minute},
		{"silent in the middle", slow{events: []time.Duration{second, time.Hour}}, 0, "x", "silent for 2m0s", 2*minute + second},
		{"a long stream has no limit", slow{events: slices.Repeat([]time.Duration{minute}, 100)}, 0, strings.Repeat("x", 100), "", 100 * minute},
		{"complete without an end", slow{events: []time.Duration{0}, hangs: true}, 0, "x", "", 5 * second},
		{"slow reader", slow{events: []time.Duration{0, 0, 0}}, time.Hour, "xxx", "", 4 * time.Hour},
	} {
		run(row.why, row.server, func(t *testing.T, m model.Model) {
			var err error
			start, text := time.Now(), ""
			for chunk, streamErr := range m.Generate(t.Context(), hi) {
				if err = streamErr; err != nil {
					break
				}
				if d, ok := chunk.(*model.TextDelta); ok {
					text += d.Text
				}
				time.Sleep(row.reader)
			}
			if elapsed := time.Since(start); text != row.text || elapsed != row.after {
				t.Errorf("%q after %v, want %q after %v", text, elapsed, row.text, row.after)
			}
			e, ok := errors.AsType[*model.Error](err)
			if (err != nil) != (row.want != "") || err != nil && (!ok || e.Kind != model.KindConnection || !strings.Contains(e.Message, row.want)) {
				t.Errorf("%v, want %q", err, row.want)
			}
		})
	}
	silent := slow{events: []time.Duration{0, time.Hour}}
	run("the caller's deadline is no error of the model", silent, func(t *testing.T, m model.Model) {
		ctx, cancel := context.WithTimeout(t.Context(), minute)
		defer cancel()
		msg, _, err := model.Collect(m.Generate(ctx, hi))
		if _, ok := errors.AsType[*model.Error](err); ok || !errors.Is(err, context.DeadlineExceeded) || msg.Text() != "x" {
			t.Errorf("%q, %v", msg.Text(), err)
		}
	})
	run("a consumer that stops ends the request", silent, func(t *testing.T, m model.Model) {
		start := time.Now()
		for range m.Generate(t.Context(), hi) {
			break
		}
		if elapsed := time.Since(start); elapsed != 0 {
			t.Errorf("took %v", elapsed)
		}
	})
}
