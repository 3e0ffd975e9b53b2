package middleware

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/again"
	"github.com/kitbag-go/kitbag/model/internal/size"
)

// LimitConfig configures [Limit]: the limits for any 60 seconds. 0 or less means no limit.
type LimitConfig struct {
	Requests int

	// Tokens of requests and answers together, including cached tokens. They count from the time the request
	// was sent: first as an estimate of four bytes per token, then as the server reports. A request
	// that is larger than the limit is sent when no other request counts.
	Tokens int

	// OnWait, if not nil, is called before a request waits, on the goroutine that makes the request. With or without
	// OnWait, RetryConfig.OnRetry of the models around this one is called with the try 0, so that an agent emits a
	// Retry event with the attempt 0.
	OnWait func(ctx context.Context, wait time.Duration)
}

// Limit returns m with requests delayed so that they stay within the limits of cfg. Agents that share a limit must share
// the returned model; to count each try, put Limit inside [Retry]. Requests are sent in the order in which they arrive. A
// request whose context ends while it waits is not counted; its error wraps the context's error, and says how long the request
// waited, and for which limit.
func Limit(m model.Model, cfg LimitConfig) model.Model {
	if cfg.Requests <= 0 && cfg.Tokens <= 0 {
		return m
	}
	return &limiter{model: m, cfg: cfg}
}

type limiter struct {
	model model.Model
	cfg   LimitConfig

	mu     sync.Mutex
	grants []*grant // in the order of arrival; expired grants are removed
}

// A grant permits a request to be sent at a time, which may be in the future.
type grant struct {
	at     time.Time
	tokens int
}

// Unwrap returns the model that is called, for [model.As].
func (l *limiter) Unwrap() model.Model { return l.model }

func (l *limiter) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		g := &grant{}
		if l.cfg.Tokens > 0 {
			g.tokens = estimate(req)
		}
		if err := l.wait(ctx, g); err != nil {
			yield(nil, err)
			return
		}
		started := false
		for chunk, err := range l.model.Generate(ctx, req) {
			started = started || err == nil
			if f, ok := chunk.(*model.Finish); ok && f.Usage != (message.Usage{}) {
				l.setTokens(g, f.Usage.Input+f.Usage.Output)
			}
			if err != nil && !started {
				l.setTokens(g, 0) // servers do not count the tokens of rejected requests
			}
			if !yield(chunk, err) {
				return
			}
		}
	}
}

// wait waits until the request may be sent.
func (l *limiter) wait(ctx context.Context, g *grant) error {
	reported, start := false, time.Now()
	for {
		wait := l.reserve(g)
		if wait <= 0 {
			return nil
		}
		if !reported {
			reported = true
			if l.cfg.OnWait != nil {
				l.cfg.OnWait(ctx, wait)
			}
			again.Notify(ctx, 0, wait, l.limitError())
		}
		if err := sleep(ctx, wait); err != nil {
			l.remove(g)
			return &waitError{time.Since(start).Round(time.Millisecond), l.limitError(), err}
		}
	}
}

// A waitError says that the context of a request ended while it waited.
type waitError struct {
	waited time.Duration
	limit  error // from limitError
	ctxErr error
}

func (e *waitError) Error() string {
	return fmt.Sprintf("the request waited %v and was not sent: %v: %v", e.waited, e.limit, e.ctxErr)
}

func (e *waitError) Unwrap() error { return e.ctxErr }

// limitError returns an error that says why a request waits.
func (l *limiter) limitError() error {
	var limits []string
	if l.cfg.Requests > 0 {
		limits = append(limits, fmt.Sprintf("%d requests", l.cfg.Requests))
	}
	if l.cfg.Tokens > 0 {
		limits = append(limits, fmt.Sprintf("%d tokens", l.cfg.Tokens))
	}
	return fmt.Errorf("client-side limit of %s a minute reached", strings.Join(limits, " and "))
}

// reserve sets the time of g, which it appends to the grants if g is new, and returns how long to wait. It is called
// again after that wait, since an earlier request may have used more tokens than estimated.
func (l *limiter) reserve(g *grant) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.grants = slices.DeleteFunc(l.grants, func(g *grant) bool { return !g.at.Add(time.Minute).After(now) })
	i := slices.Index(l.grants, g)
	if i < 0 {
		i = len(l.grants)
		l.grants = append(l.grants, g)
	}
	g.at = now
	if i > 0 && l.grants[i-1].at.After(now) { // keep the order of arrival
		g.at = l.grants[i-1].at
	}
	requests, tokens := 1, g.tokens
	for _, earlier := range slices.Backward(l.grants[:i]) {
		requests++
		tokens += earlier.tokens
		if l.cfg.Requests > 0 && requests > l.cfg.Requests || l.cfg.Tokens > 0 && tokens > l.cfg.Tokens {
			if expiry := earlier.at.Add(time.Minute); expiry.After(g.at) {
				g.at = expiry
			}
			break
		}
	}
	return g.at.Sub(now)
}

// setTokens replaces the estimate of g.
func (l *limiter) setTokens(g *grant, tokens int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.tokens = tokens
}

// remove gives back a grant that is not used.
func (l *limiter) remove(g *grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = slices.DeleteFunc(l.grants, func(other *grant) bool { return other == g })
}

// estimate returns roughly how many tokens a model will read.
func estimate(req *model.Request) int {
	const bytesPerToken, tokensPerFile = 4, 1500
	text, files := size.Of(req)
	return text/bytesPerToken + files*tokensPerFile
}
