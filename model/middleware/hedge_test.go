package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
)

// A slowModel is a model that sends text after a time, or fails, and finishes a second
// later. It logs when it was called and cancelled.
type slowModel struct {
	name     string
	after    time.Duration
	fail     error
	stubborn bool // finishes when it is cancelled, like a server that reports the usage
	log      *[]string
	start    time.Time
}

var logMu sync.Mutex

func (s *slowModel) record(what string) {
	logMu.Lock()
	defer logMu.Unlock()
	*s.log = append(*s.log, fmt.Sprintf("%s %s %v", s.name, what, time.Since(s.start)))
}

func (s *slowModel) Generate(ctx context.Context, _ *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		s.record("called")
		finish := &model.Finish{Reason: model.FinishStop, Model: s.name, Usage: message.Usage{Input: 10, Output: 1}}
		wait := func(d time.Duration) bool {
			select {
			case <-time.After(d):
				return true
			case <-ctx.Done():
				s.record("cancelled")
				if s.stubborn {
					yield(finish, nil)
				} else {
					yield(nil, ctx.Err())
				}
				return false
			}
		}
		if !wait(s.after) {
			return
		}
		if s.fail != nil {
			yield(nil, s.fail)
			return
		}
		if yield(&model.TextDelta{Text: s.name}, nil) && wait(time.Second) {
			yield(finish, nil)
		}
	}
}

func TestHedge(t *testing.T) {
	down, late := errors.New("down"), errors.New("late")
	sec := time.Second
	for _, row := range []struct {
		why           string
		first, second slowModel
		text          string
		usage         int
		err           []error
		log           string
	}{
		{"the first is quick", slowModel{after: 4 * sec}, slowModel{}, "a", 10, nil, "a called 0s"},
		{"the second is quicker", slowModel{after: 60 * sec}, slowModel{after: sec}, "b", 10, nil, "a called 0s; b called 5s; a cancelled 6s"},
		{"the first is quicker after all", slowModel{after: 6 * sec}, slowModel{after: 9 * sec}, "a", 10, nil, "a called 0s; b called 5s; b cancelled 6s"},
		{"the loser reports its usage", slowModel{after: 60 * sec, stubborn: true}, slowModel{after: sec}, "b", 20, nil, "a called 0s; b called 5s; a cancelled 6s"},
		{"the first fails at once", slowModel{fail: down}, slowModel{}, "", 0, []error{down}, "a called 0s"},
		{"the first fails late", slowModel{after: 6 * sec, fail: late}, slowModel{after: 3 * sec}, "b", 10, nil, "a called 0s; b called 5s"},
		{"the second fails", slowModel{after: 8 * sec}, slowModel{fail: down}, "a", 10, nil, "a called 0s; b called 5s"},
		{"both fail", slowModel{after: 6 * sec, fail: late}, slowModel{after: 3 * sec, fail: down}, "", 0, []error{late, down}, "a called 0s; b called 5s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log []string
			row.first.name, row.second.name = "a", "b"
			row.first.log, row.second.log = &log, &log
			row.first.start, row.second.start = time.Now(), time.Now()
			msg, fin, err := model.Collect(middleware.Hedge(&row.first, &row.second, 5*sec).Generate(t.Context(), &model.Request{}))
			for _, want := range row.err {
				if !errors.Is(err, want) {
					t.Errorf("%s: error %v, want %v", row.why, err, want)
				}
			}
			if msg.Text() != row.text || (err != nil) != (row.err != nil) || fin != nil && fin.Usage.Input != row.usage {
				t.Errorf("%s: %q, %+v, %v", row.why, msg.Text(), fin, err)
			}
			if got := strings.Join(log, "; "); got != row.log {
				t.Errorf("%s: %s, want %s", row.why, got, row.log)
			}
		}) // synctest fails if a goroutine is left
	}
}

// TestHedgeEndsEarly cancels the context and stops ranging, before and during the race: both
// requests have ended when Generate returns.
func TestHedgeEndsEarly(t *testing.T) {
	for _, at := range []time.Duration{time.Second, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var log []string
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			m := &slowModel{name: "a", after: time.Minute, log: &log, start: time.Now()}
			_, _, err := model.Collect(middleware.Hedge(m, m, 5*time.Second).Generate(ctx, &model.Request{}))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(m.start) != at {
				t.Errorf("cancelled at %v: %v at %v", at, err, time.Since(m.start))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var log []string
		a, b := &slowModel{name: "a", after: time.Minute, log: &log, start: time.Now()}, &slowModel{name: "b", log: &log, start: time.Now()}
		for range middleware.Hedge(a, b, 5*time.Second).Generate(t.Context(), &model.Request{}) {
			break
		}
		if got := strings.Join(log, "; "); !strings.HasPrefix(got, "a called 0s; b called 5s; ") || strings.Count(got, "cancelled 5s") != 2 {
			t.Error(got)
		}
	})
}
