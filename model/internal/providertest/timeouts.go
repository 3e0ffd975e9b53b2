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

// A Stream has events in the form of a provider's API.
type Stream struct {
	Text   string // an event with the text "x"
	Finish string // the event with the finish reason
	End    string // the events after Finish
}

// A slowServer is a transport that waits before the header and before each event. The delays
// run on the fake clock of synctest.
type slowServer struct {
	header time.Duration   // the delay of the header
	delays []time.Duration // of the events, each with a text
	hangs  bool            // the stream does not end after the finish reason
	stream Stream
	ctx    context.Context // of the request
}

func (s slowServer) wait(d time.Duration) error {
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// RoundTrip changes only its copy of the server, which becomes the body of the response.
func (s slowServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.ctx = req.Context()
	if err := s.wait(s.header); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&s), Request: req}, nil
}

// Read returns an event with a text after each delay, then the end. A server that hangs is silent for an hour before the end.
func (s *slowServer) Read(p []byte) (int, error) {
	if len(s.delays) == 0 && s.hangs {
		s.hangs, s.delays = false, []time.Duration{time.Hour}
		return copy(p, s.stream.Finish), nil
	}
	if len(s.delays) == 0 {
		return copy(p, s.stream.Finish+s.stream.End), io.EOF
	}
	if err := s.wait(s.delays[0]); err != nil {
		return 0, err
	}
	s.delays = s.delays[1:]
	return copy(p, s.stream.Text), nil
}

// Timeouts tests a model with servers that are slow in each part of an answer.
func Timeouts(t *testing.T, stream Stream, newModel func(*http.Client) (model.Model, error)) {
	const second, minute = time.Second, time.Minute
	hi := &model.Request{Messages: []*message.Message{message.User("hi")}}
	run := func(why string, server slowServer, test func(t *testing.T, m model.Model)) {
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
		why     string
		server  slowServer
		reader  time.Duration // how long the reader takes for each chunk
		text    string        // of the answer
		wantErr string        // a part of the error; empty for none
		after   time.Duration // when the answer ends
	}{
		{"no delay", slowServer{delays: []time.Duration{0, 0}}, 0, "xx", "", 0},
		{"late header", slowServer{header: 4 * minute, delays: []time.Duration{0}}, 0, "x", "", 4 * minute},
		{"no header", slowServer{header: time.Hour}, 0, "", "no answer began within 5m0s", 5 * minute},
		{"silent at the start", slowServer{delays: []time.Duration{time.Hour}}, 0, "", "silent for 2m0s", 2 * minute},
		{"silent in the middle", slowServer{delays: []time.Duration{second, time.Hour}}, 0, "x", "silent for 2m0s", 2*minute + second},
		{"a long stream has no limit", slowServer{delays: slices.Repeat([]time.Duration{minute}, 100)}, 0, strings.Repeat("x", 100), "", 100 * minute},
		{"finished without an end", slowServer{delays: []time.Duration{0}, hangs: true}, 0, "x", "", 5 * second}, // the limit that the providers set for the end
		{"slow reader", slowServer{delays: []time.Duration{0, 0, 0}}, time.Hour, "xxx", "", 4 * time.Hour},
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
			if (err != nil) != (row.wantErr != "") || err != nil && (!ok || e.Kind != model.KindConnection || !strings.Contains(e.Message, row.wantErr)) {
				t.Errorf("error %v, want %q", err, row.wantErr)
			}
		})
	}
	silent := slowServer{delays: []time.Duration{0, time.Hour}}
	run("the caller's deadline is not a model.Error", silent, func(t *testing.T, m model.Model) {
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
