package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/middleware"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type in struct {
	N int `json:"n,omitempty"`
}

func function(fn func(ctx context.Context, in in) (string, error), opts ...tool.Options) tool.Tool {
	return tool.Must(tool.New("probe", "Probes.", fn, opts...))
}

func run(ctx context.Context, t tool.Tool, input string, mw ...tool.Middleware) (*message.ToolResult, error) {
	c := tool.Call{ID: "1", Name: "probe", Input: json.RawMessage(input)}
	col := tool.NewCollector(c)
	for ch, err := range tool.Run(ctx, t, c, mw...) {
		if err != nil {
			return nil, err
		}
		col.Add(ch)
	}
	return col.Result(), nil
}

func text(t *testing.T, tl tool.Tool, input string, mw ...tool.Middleware) string {
	t.Helper()
	res, err := run(t.Context(), tl, input, mw...)
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Outcome) + ": " + res.Text()
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		polite := function(func(ctx context.Context, _ in) (string, error) {
			<-ctx.Done()
			return "", fmt.Errorf("read: %w", ctx.Err())
		})
		if got := text(t, polite, "{}", middleware.Timeout(time.Second)); got != "error: timed out after 1s" {
			t.Error(got)
		}
		stubborn := function(func(context.Context, in) (string, error) {
			time.Sleep(time.Hour)
			return "late", nil
		})
		if got := text(t, stubborn, "{}", middleware.Timeout(time.Second)); !strings.HasPrefix(got, "error: timed out after 1s; the tool did not stop") {
			t.Error(got)
		}
		// Around the tool only: the same.
		if got := text(t, tool.With(stubborn, middleware.Timeout(time.Second)), "{}"); !strings.HasPrefix(got, "error: timed out after 1s; the tool did not stop") {
			t.Error(got)
		}
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("three calls with a second each took %v", d)
		}
		quick := function(func(context.Context, in) (string, error) { return "ok", nil })
		if got := text(t, quick, "{}", middleware.Timeout(time.Second)); got != "success: ok" {
			t.Error(got)
		}
		time.Sleep(2 * time.Hour) // for the abandoned goroutines
	})
}

// A step is what a tool yields.
type step struct {
	chunk tool.Chunk
	err   error
}

// steps returns the first items that seq yields, most at most.
func steps(seq iter.Seq2[tool.Chunk, error], most int) (got []step) {
	for c, err := range seq {
		if got = append(got, step{c, err}); len(got) == most {
			break
		}
	}
	return got
}

func (s step) String() string {
	if s.err != nil {
		return "error " + s.err.Error()
	}
	word := "nothing"
	if b, ok := s.chunk.Block.(*message.Text); ok {
		word = b.Text
	}
	if s.chunk.Failed {
		return "failed " + word
	}
	return word
}

// probe is the call that handlers get; it is read-only.
var (
	probe     = function(func(context.Context, in) (string, error) { return "", nil }, tool.Options{ReadOnly: true})
	probeCall = tool.Call{ID: "1", Name: "probe", Input: json.RawMessage("{}")}
)

// handler returns a handler that yields one of the scripts for each call, and the last one for all further calls.
func handler(calls *int, scripts ...[]step) tool.Handler {
	return func(context.Context, tool.Tool, tool.Call) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			script := scripts[min(*calls, len(scripts)-1)]
			*calls++
			for _, s := range script {
				if !yield(s.chunk, s.err) {
					return
				}
			}
		}
	}
}

// never is an error that is not retryable.
type never struct{}

func (never) Error() string   { return "gone" }
func (never) Retryable() bool { return false }

func TestRetry(t *testing.T) {
	busy := []step{{err: middleware.Retryable(errors.New("busy"))}}
	ok := []step{{chunk: tool.Text("ok")}}
	ended := errors.New("the run is over")
	for _, row := range []struct {
		name    string
		retries middleware.Retries
		scripts [][]step
		endAt   time.Duration // of the context, if not 0
		most    int           // what the consumer takes
		want    string
		tries   int
		took    time.Duration
	}{
		{"the first is good", middleware.Retries{}, [][]step{ok}, 0, 9, "[ok]", 1, 0},
		{"the second is good", middleware.Retries{Attempts: 3, Wait: 2 * time.Second}, [][]step{busy, ok}, 0, 9, "[ok]", 2, 2 * time.Second},
		{"what follows the error is dropped", middleware.Retries{}, [][]step{append(slices.Clone(busy), ok...), {{chunk: tool.Text("good")}}}, 0, 9, "[good]", 2, time.Second},
		{"pauses double", middleware.Retries{Attempts: 5, Wait: 2 * time.Second}, [][]step{busy, busy, busy, busy, ok}, 0, 9, "[ok]", 5, 30 * time.Second},
		{"two attempts", middleware.Retries{Attempts: 2, Wait: 2 * time.Second}, [][]step{busy}, 0, 9, "[error busy]", 2, 2 * time.Second},
		{"one attempt means three", middleware.Retries{Attempts: 1, Wait: 2 * time.Second}, [][]step{busy}, 0, 9, "[error busy]", 3, 6 * time.Second},
		{"zero is three attempts and a second", middleware.Retries{}, [][]step{busy}, 0, 9, "[error busy]", 3, 3 * time.Second},
		{"less than zero", middleware.Retries{Attempts: -1, Wait: -1}, [][]step{busy}, 0, 9, "[error busy]", 3, 3 * time.Second},
		{"the shortest pause", middleware.Retries{Attempts: 2, Wait: 1}, [][]step{busy}, 0, 9, "[error busy]", 2, 1},
		{"not retryable", middleware.Retries{}, [][]step{{{err: errors.New("no such table")}}}, 0, 9, "[error no such table]", 1, 0},
		{"by its own account not retryable", middleware.Retries{}, [][]step{{{err: never{}}}}, 0, 9, "[error gone]", 1, 0},
		{"an abort", middleware.Retries{}, [][]step{{{err: middleware.Retryable(tool.ErrAbort)}}}, 0, 9, "[error abort the run]", 1, 0},
		{"not after a part was shown", middleware.Retries{}, [][]step{append(slices.Clone(ok), busy...)}, 0, 9, "[ok error busy]", 1, 0},
		{"not after a failure was shown", middleware.Retries{}, [][]step{append([]step{{chunk: tool.Failure("bad")}}, busy...)}, 0, 9, "[failed bad error busy]", 1, 0},
		{"the consumer stops", middleware.Retries{}, [][]step{append(slices.Clone(ok), ok...)}, 0, 1, "[ok]", 1, 0},
		{"the context ends during a pause", middleware.Retries{Attempts: 20, Wait: time.Hour}, [][]step{busy}, 90 * time.Minute, 9, "[error the run is over]", 2, 90 * time.Minute},
		{"the context has ended", middleware.Retries{}, [][]step{busy}, -1, 9, "[error busy]", 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := 24 * time.Hour // so that endless retries fail and do not hang the test
				if row.endAt != 0 {
					end = row.endAt
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), end, ended)
				defer cancel()
				start, tries := time.Now(), 0
				next := handler(&tries, row.scripts...)
				guarded := func(ctx context.Context, tl tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
					if tries > 100 {
						cancel()
					}
					return next(ctx, tl, call)
				}
				got := steps(middleware.Retry(row.retries)(guarded)(ctx, probe, probeCall), row.most)
				if fmt.Sprint(got) != row.want || tries != row.tries || time.Since(start) != row.took {
					t.Errorf("%v, %d tries, %v; want %s, %d, %v", got, tries, time.Since(start), row.want, row.tries, row.took)
				}
			})
		})
	}
}

func TestLimitIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		fn := func(context.Context, in) (string, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			return "", nil
		}
		db := middleware.Limit(2)
		a, b := tool.With(function(fn), db), tool.With(function(fn), db)
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { text(t, a, "{}") })
			wg.Go(func() { text(t, b, "{}") })
		}
		wg.Wait()
		if most.Load() != 2 || time.Since(start) != 3*time.Second {
			t.Errorf("%d at a time, %v in all", most.Load(), time.Since(start))
		}
		// A waiting call can be cancelled.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		for range 2 {
			wg.Go(func() { text(t, a, "{}") })
		}
		synctest.Wait()
		if _, err := run(ctx, b, "{}"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		wg.Wait()
	})
}

func TestRateLimit(t *testing.T) {
	for _, row := range []struct {
		n    int
		idle []time.Duration // before each call
		want []float64       // when it starts, in seconds
	}{
		{2, []time.Duration{0, 0, 0, 0, 0}, []float64{0, 0, 5, 10, 15}},
		{1, []time.Duration{0, 0, 0}, []float64{0, 10, 20}},
		{0, []time.Duration{0, 0}, []float64{0, 10}},                               // as 1
		{2, []time.Duration{0, 0, time.Minute, 0, 0}, []float64{0, 0, 60, 60, 65}}, // the burst is available again, but not larger
		{2, []time.Duration{0, 0, 2 * time.Second, 0}, []float64{0, 0, 5, 10}},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := middleware.RateLimit(row.n, 10*time.Second)
			start, calls := time.Now(), 0
			var at []float64
			for _, idle := range row.idle {
				time.Sleep(idle)
				got := steps(limit(handler(&calls, []step{{chunk: tool.Text("ok")}}))(t.Context(), probe, probeCall), 9)
				at = append(at, time.Since(start).Seconds())
				if fmt.Sprint(got) != "[ok]" {
					t.Errorf("%d per 10s: got %v", row.n, got)
				}
			}
			if !slices.Equal(at, row.want) || calls != len(row.want) {
				t.Errorf("%d per 10s: %d calls, after %v seconds, want %v", row.n, calls, at, row.want)
			}
		})
	}
}

// TestRateLimitEnds has a context that has ended: the first call reaches the tool, which checks its context;
// a call that must wait ends with the cause.
func TestRateLimitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the run is over"))
		calls := 0
		limited := middleware.RateLimit(1, time.Minute)(handler(&calls, []step{{chunk: tool.Text("ok")}}))
		for i, want := range []string{"[ok]", "[error the run is over]"} {
			if got := steps(limited(ctx, probe, probeCall), 9); fmt.Sprint(got) != want || calls != 1 {
				t.Errorf("call %d: %v after %d calls of the tool, want %s after 1", i+1, got, calls, want)
			}
		}
	})
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		fn := func(_ context.Context, in in) (string, error) {
			if calls++; in.N < 0 {
				return "", errors.New("negative")
			}
			return fmt.Sprint(in.N), nil
		}
		reader := function(fn, tool.Options{ReadOnly: true})
		cache := middleware.Cache(2, time.Minute)
		count := func(input string) int {
			before := calls
			text(t, reader, input, cache)
			return calls - before
		}
		for i, row := range []struct {
			input string
			want  int
		}{
			{`{"n":1}`, 1}, {`{"n":1}`, 0}, {`{"n":2}`, 1}, {`{"n":3}`, 1}, {`{"n":1}`, 1},
			{`{"n":-1}`, 1}, {`{"n":-1}`, 1}, // failures are not kept
		} {
			if got := count(row.input); got != row.want {
				t.Errorf("call %d %s: %d calls of the function, want %d", i, row.input, got, row.want)
			}
		}
		time.Sleep(2 * time.Minute)
		if count(`{"n":1}`) != 1 {
			t.Error("an old result was used")
		}
		writer := function(fn)
		text(t, writer, `{"n":7}`, cache)
		before := calls
		if text(t, writer, `{"n":7}`, cache); calls == before {
			t.Error("a tool that may change something was answered from the cache")
		}
	})
}

// TestCacheKeeps checks the result of a second, equal call, and whether it runs the tool.
func TestCacheKeeps(t *testing.T) {
	part := func(text string) step {
		return step{chunk: tool.Chunk{Block: &message.Text{ID: "b", Text: text}}}
	}
	for _, row := range []struct {
		name   string
		script []step
		most   int
		first  string
		again  string
		calls  int
	}{
		{"a result", []step{part("a"), part("b")}, 9, "[a b]", "[a b]", 1},
		{"nothing", nil, 9, "[]", "[]", 1},
		{"an error", []step{part("a"), {err: errors.New("broken")}}, 9, "[a error broken]", "[a error broken]", 2},
		{"a failure and its reason", []step{{chunk: tool.Chunk{Failed: true}}, part("no such table")}, 9, "[failed nothing no such table]", "[failed nothing no such table]", 2},
		{"a failure at the end", []step{part("a"), {chunk: tool.Failure("cut off")}}, 9, "[a failed cut off]", "[a failed cut off]", 2},
		{"a consumer that stops", []step{part("a"), part("b")}, 1, "[a]", "[a b]", 2},
	} {
		calls := 0
		cached := middleware.Cache(1, time.Hour)(handler(&calls, row.script))
		first := steps(cached(t.Context(), probe, probeCall), row.most)
		again := steps(cached(t.Context(), probe, probeCall), 9)
		if fmt.Sprint(first) != row.first || fmt.Sprint(again) != row.again || calls != row.calls {
			t.Errorf("%s: %v, then %v, %d calls; want %s, %s, %d", row.name, first, again, calls, row.first, row.again, row.calls)
		}
		if got := steps(cached(t.Context(), probe, probeCall), 1); len(row.script) > 0 && len(got) != 1 {
			t.Errorf("%s: a consumer that wants one chunk got %v", row.name, got)
		}
	}
}

// TestCacheReplacesTheOldest has a cache that keeps a few results for a minute.
func TestCacheReplacesTheOldest(t *testing.T) {
	for _, row := range []struct {
		n    int
		does string // calls by name, '.' half a minute; a capital letter must reach the tool
	}{
		{2, "AaBabaCcbA"},
		{2, "AB..ACacB"}, // a new result is the newest
		{2, "AB..AaBbab"},
		{2, "A.Ba.Abab"}, // kept for less than a minute
		{2, "AB..ABCcbA"},
		{1, "AaBbA"},
		{0, "AaBbA"}, // as 1
		{3, "ABCabcDbcdA"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cache := middleware.Cache(row.n, time.Minute)
			for i, c := range row.does {
				if c == '.' {
					time.Sleep(30 * time.Second)
					continue
				}
				calls, call := 0, probeCall
				call.Name = strings.ToLower(string(c))
				steps(cache(handler(&calls, []step{{chunk: tool.Text("ok")}}))(t.Context(), probe, call), 9)
				if (calls == 1) != (c < 'a') {
					t.Errorf("room for %d, %q: step %d made %d calls", row.n, row.does, i, calls)
				}
			}
		})
	}
}

// TestCacheOfNoTime keeps nothing, even if no time passes.
func TestCacheOfNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		cached := middleware.Cache(1, 0)(handler(&calls, nil))
		steps(cached(t.Context(), probe, probeCall), 9)
		if steps(cached(t.Context(), probe, probeCall), 9); calls != 2 {
			t.Errorf("%d calls, want 2", calls)
		}
	})
}

// TestCacheOfPart has a cancelled call that returns its output so far, and no error.
func TestCacheOfPart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	reader := function(func(ctx context.Context, _ in) (string, error) {
		if n++; n == 1 {
			cancel()
			return "one", nil
		}
		return "one two", nil
	}, tool.Options{ReadOnly: true})
	cache := middleware.Cache(2, time.Minute)
	if res, err := run(ctx, reader, `{"n":1}`, cache); err != nil || res.Text() != "one" {
		t.Fatalf("the first call: %v, %v", res, err)
	}
	if got := text(t, reader, `{"n":1}`, cache); got != "success: one two" {
		t.Errorf("the second call: %q", got)
	}
}

func TestLog(t *testing.T) {
	var b bytes.Buffer
	log := middleware.Log(slog.New(slog.NewTextHandler(&b, nil)))
	text(t, function(func(context.Context, in) (string, error) { return "secret", nil }), `{"n":4711}`, log)
	text(t, function(func(context.Context, in) (string, error) { return "", errors.New("disk full") }), `{}`, log)
	lines := strings.Split(b.String(), "\n")
	if !strings.Contains(lines[0], "level=INFO") || !strings.Contains(lines[0], "tool=probe") || !strings.Contains(lines[0], "chunks=1") {
		t.Error(lines[0])
	}
	if !strings.Contains(lines[1], "level=WARN") || !strings.Contains(lines[1], "disk full") {
		t.Error(lines[1])
	}
	if strings.Contains(b.String(), "secret") || strings.Contains(b.String(), "4711") {
		t.Error("arguments or results are in the log")
	}
}

// TestLogLine checks the line for each way a call can end.
func TestLogLine(t *testing.T) {
	for _, row := range []struct {
		script []step
		most   int
		want   string
	}{
		{nil, 9, `level=INFO msg="tool call" tool=probe call=1 took=1s chunks=0 stopped=false`},
		{[]step{{chunk: tool.Text("a")}, {chunk: tool.Text("b")}}, 9, `level=INFO msg="tool call" tool=probe call=1 took=1s chunks=2 stopped=false`},
		{[]step{{chunk: tool.Text("a")}, {chunk: tool.Text("b")}}, 1, `level=INFO msg="tool call" tool=probe call=1 took=1s chunks=1 stopped=true`},
		{[]step{{chunk: tool.Failure("no")}, {chunk: tool.Text("b")}}, 9, `level=WARN msg="tool call failed" tool=probe call=1 took=1s chunks=2 stopped=false error="the tool reported a failure"`},
		{[]step{{err: errors.New("full")}}, 1, `level=WARN msg="tool call failed" tool=probe call=1 took=1s chunks=1 stopped=true error=full`},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&b, nil))
			slow := func(next tool.Handler) tool.Handler {
				return func(ctx context.Context, tl tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
					time.Sleep(time.Second)
					return next(ctx, tl, call)
				}
			}
			calls := 0
			steps(middleware.Log(logger)(slow(handler(&calls, row.script)))(t.Context(), probe, probeCall), row.most)
			if _, line, _ := strings.Cut(strings.TrimSpace(b.String()), " "); line != row.want {
				t.Errorf("got  %s\nwant %s", line, row.want)
			}
		})
	}
}

func TestLogByDefault(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	log := middleware.Log(nil)
	var b bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	if text(t, probe, "{}", log); !strings.Contains(b.String(), "tool=probe") {
		t.Errorf("slog.Default got %q", b.String())
	}
}

func Example() {
	lookup := tool.Must(tool.New("lookup", "Looks a word up.", func(_ context.Context, in struct {
		Word string `json:"word"`
	}) (string, error) {
		return "", middleware.Retryable(errors.New("the dictionary is busy"))
	}, tool.Options{ReadOnly: true}))

	t := tool.With(lookup,
		middleware.Limit(2),
		middleware.Retry(middleware.Retries{Attempts: 2, Wait: time.Millisecond}),
		middleware.Timeout(10*time.Second))
	for c := range tool.Run(context.Background(), t, tool.Call{Name: "lookup", Input: json.RawMessage(`{"word":"kit"}`)}) {
		fmt.Println(c.Failed, c.Block.(*message.Text).Text)
	}
	// Output: true the dictionary is busy
}
