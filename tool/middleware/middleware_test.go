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

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		flaky := function(func(_ context.Context, in in) (string, error) {
			if tries++; tries <= in.N {
				return "", tool.Retryable(errors.New("busy"))
			}
			return fmt.Sprint("try ", tries), nil
		})
		retry := middleware.Retry(middleware.Retries{Attempts: 3, Wait: time.Second})
		start := time.Now()
		if got := text(t, flaky, `{"n":2}`, retry); got != "success: try 3" || time.Since(start) != 3*time.Second {
			t.Errorf("%s after %v", got, time.Since(start))
		}
		tries = 0
		if got := text(t, flaky, `{"n":9}`, retry); got != "error: busy" || tries != 3 {
			t.Errorf("%s after %d tries", got, tries)
		}
		tries = 0
		broken := function(func(context.Context, in) (string, error) {
			tries++
			return "", errors.New("no such table")
		})
		if text(t, broken, `{}`, retry); tries != 1 {
			t.Errorf("an error that is not retryable was tried %d times", tries)
		}
	})
}

func TestRetryNeverRepeatsWhatWasShown(t *testing.T) {
	tries := 0
	half := tool.Must(tool.NewStream("probe", "Probes.", func(context.Context, in) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			tries++
			_ = yield(tool.Text("half"), nil) && yield(tool.Chunk{}, tool.Retryable(errors.New("busy")))
		}
	}))
	if got := text(t, half, `{}`, middleware.Retry(middleware.Retries{})); got != "error: half\nbusy" || tries != 1 {
		t.Errorf("%s, %d tries", got, tries)
	}
}

func TestRetryStopsWhenCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := function(func(context.Context, in) (string, error) { return "", tool.Retryable(errors.New("busy")) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := run(ctx, busy, `{}`, middleware.Retry(middleware.Retries{Attempts: 20, Wait: time.Hour})); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
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
		// Who waits can be called off.
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
	synctest.Test(t, func(t *testing.T) {
		quick := function(func(context.Context, in) (string, error) { return "", nil })
		limit := middleware.RateLimit(2, 10*time.Second)
		start := time.Now()
		var at []float64
		for range 5 {
			text(t, quick, "{}", limit)
			at = append(at, time.Since(start).Seconds())
		}
		if !slices.Equal(at, []float64{0, 0, 5, 10, 15}) {
			t.Errorf("calls started after %v seconds", at)
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

// TestCacheOfPart has a call told to end that then says what it has so far, and no error.
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

func Example() {
	lookup := tool.Must(tool.New("lookup", "Looks a word up.", func(_ context.Context, in struct {
		Word string `json:"word"`
	}) (string, error) {
		return "", tool.Retryable(errors.New("the dictionary is busy"))
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
