package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// certain is the first revision of the protocol in which a question says which call
// it belongs to.
const certain = "2026-07-28"

// strays are the sessions that gave up a call which the server may still be at. A
// server that is not told, or does not listen, may ask about it at any time, when
// somebody else's call is the only one in flight. The client allows for that for a
// minute; here it counts for as long as the server's process lives, since the person
// who would be asked is not the one it is about.
type strays struct {
	mu       sync.Mutex
	restarts int // of the server, when the hosts were noted
	hosts    []host.Host
	lost     bool // there were more than are kept
}

// maxStrays is how many sessions are kept apart. Beyond that every question is
// refused.
const maxStrays = 64

// since forgets what was noted of an earlier process: it asks no more.
func (s *strays) since(restarts int) {
	if s.restarts != restarts {
		s.restarts, s.hosts, s.lost = restarts, nil, false
	}
}

func (s *strays) add(restarts int, h host.Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since(restarts)
	switch {
	case slices.Contains(s.hosts, h): // hosts are comparable, as their contract has it
	case len(s.hosts) == maxStrays:
		s.lost = true
	default:
		s.hosts = append(s.hosts, h)
	}
}

// others reports whether a session other than that of h gave up a call.
func (s *strays) others(restarts int, h host.Host) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since(restarts)
	return s.lost || slices.ContainsFunc(s.hosts, func(o host.Host) bool { return o != h })
}

// mine returns why a question may not be put to the session in whose call it came
// up as far as can be told; nil if it may.
func (u *upstream) mine(ctx context.Context) error {
	st := u.client.Status()
	if st.Protocol >= certain || !u.strays.others(st.Restarts, host.From(ctx)) {
		return nil
	}
	return fmt.Errorf("%w: another session gave up a call of %q, and the question does not say which call it is about", host.ErrRefused, u.name)
}

func (u *upstream) elicit(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	end, err := u.question(ctx)
	if err != nil {
		return host.Answer{}, err
	}
	defer end()
	return mcpclient.ElicitCaller(ctx, q)
}

func (u *upstream) sample(ctx context.Context, r host.SampleRequest) (host.Sample, error) {
	end, err := u.question(ctx)
	if err != nil {
		return host.Sample{}, err
	}
	defer end()
	return mcpclient.SampleCaller(ctx, r)
}

// maxQuestions is how many questions of a server one credential may leave open: the client
// has room for some thousand of all.
const maxQuestions = 128

// question counts a question against the session's credential until end is called. It fails
// if the question may not be put, or is one too many.
func (u *upstream) question(ctx context.Context) (end func(), err error) {
	if err := u.mine(ctx); err != nil {
		return nil, err
	}
	credential := ""
	if l := mcpserver.LoggerFrom(ctx); l != nil {
		credential = l.Credential()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.questions[credential] >= maxQuestions {
		return nil, fmt.Errorf("%w: this credential has %d open questions of %q; answer some first", host.ErrRefused, maxQuestions, u.name)
	}
	u.questions[credential]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.questions[credential]--; u.questions[credential] == 0 {
			delete(u.questions, credential)
		}
	}, nil
}

// A proxied tool is one of an upstream server, with clean words. Everything else is
// the tool's own.
type proxied struct {
	tool.Tool
	info tool.Info
	up   *upstream
}

func (p *proxied) Info() tool.Info   { return p.info }
func (p *proxied) Unwrap() tool.Tool { return p.Tool }

// use notes that the context's session uses the process that all share, until done is
// called, which is told whether what it is used for was given up.
func (u *upstream) use(ctx context.Context) (done func(gaveUp bool)) {
	heard := u.audience.use(ctx)
	return func(gaveUp bool) {
		heard(gaveUp)
		if gaveUp {
			u.strays.add(u.client.Status().Restarts, host.From(ctx))
		}
	}
}

// Call passes the call on, and notes if it was given up.
func (p *proxied) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		t := p.Tool
		gaveUp := true // unless it comes to an end, whoever may stop it on the way
		if p.up.apart != nil {
			var err error
			if t, err = p.up.apart.tool(ctx, t); err != nil {
				yield(tool.Chunk{}, discreet(ctx, err))
				return
			}
		} else {
			done := p.up.use(ctx)
			defer func() { done(gaveUp) }()
		}
		var last error
		for chunk, err := range t.Call(ctx, call) {
			last = err
			if err != nil {
				err = discreet(ctx, err)
			}
			if !yield(chunk, err) {
				return
			}
		}
		gaveUp = ctx.Err() != nil || errors.Is(last, mcpclient.ErrTimeout)
	}
}
