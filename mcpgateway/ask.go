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

// attributedSince is the first protocol revision in which a question names its call.
const attributedSince = "2026-07-28"

// abandonedCalls are the sessions that abandoned a call which the server may still run. The server may ask a
// question about that call at any time, when only another session has a call in flight. The client takes that
// into account for a minute; here an abandoned call counts until the server's process ends, because the
// question would reach the wrong user.
type abandonedCalls struct {
	mu         sync.Mutex
	restarts   int // of the server, when hosts was last reset
	hosts      []host.Host
	overflowed bool // there are more than maxAbandoned: every question is refused
}

// maxAbandoned is how many sessions are recorded. If there are more, every question is refused.
const maxAbandoned = 64

// resetAfter removes the sessions if the server has restarted.
func (s *abandonedCalls) resetAfter(restarts int) {
	if s.restarts != restarts {
		s.restarts, s.hosts, s.overflowed = restarts, nil, false
	}
}

func (s *abandonedCalls) add(restarts int, h host.Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resetAfter(restarts)
	switch {
	case slices.Contains(s.hosts, h): // hosts of mcpserver are comparable
	case len(s.hosts) == maxAbandoned:
		s.overflowed = true
	default:
		s.hosts = append(s.hosts, h)
	}
}

// byOthers reports whether a session other than that of h abandoned a call.
func (s *abandonedCalls) byOthers(restarts int, h host.Host) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resetAfter(restarts)
	return s.overflowed || slices.ContainsFunc(s.hosts, func(o host.Host) bool { return o != h })
}

// checkSession returns an error if the question may belong to a session other than the session of ctx.
func (u *upstream) checkSession(ctx context.Context) error {
	st := u.client.Status()
	if st.Protocol >= attributedSince || !u.abandoned.byOthers(st.Restarts, host.From(ctx)) {
		return nil
	}
	return fmt.Errorf("%w: another session abandoned a call of %q, and the question does not name its call", host.ErrRefused, u.name)
}

func (u *upstream) elicit(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	end, err := u.beginQuestion(ctx)
	if err != nil {
		return host.Answer{}, err
	}
	defer end()
	return mcpclient.ElicitCaller(ctx, q)
}

func (u *upstream) sample(ctx context.Context, r host.SampleRequest) (host.Sample, error) {
	end, err := u.beginQuestion(ctx)
	if err != nil {
		return host.Sample{}, err
	}
	defer end()
	return mcpclient.SampleCaller(ctx, r)
}

// maxQuestions is how many questions of a server one credential may leave unanswered. The client's limit for
// all is about a thousand.
const maxQuestions = 128

// questionCount counts the unanswered questions of a server.
type questionCount struct {
	mu         sync.Mutex
	unanswered map[string]int // by credential
}

// beginQuestion counts a question for the session's credential until end is called. It fails if the question
// may not be asked, or if there are too many questions.
func (u *upstream) beginQuestion(ctx context.Context) (end func(), err error) {
	if err := u.checkSession(ctx); err != nil {
		return nil, err
	}
	credential := ""
	if l := mcpserver.LoggerFrom(ctx); l != nil {
		credential = l.Credential()
	}
	q := &u.questions
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unanswered[credential] >= maxQuestions {
		return nil, fmt.Errorf("%w: this credential has %d unanswered questions of %q; answer some first", host.ErrRefused, maxQuestions, u.name)
	}
	if q.unanswered == nil {
		q.unanswered = map[string]int{}
	}
	q.unanswered[credential]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.unanswered[credential]--; q.unanswered[credential] == 0 {
			delete(q.unanswered, credential)
		}
	}, nil
}

// A proxied tool is a tool of an upstream server, with clean texts.
type proxied struct {
	tool.Tool
	info tool.Info
	up   *upstream
}

func (p *proxied) Info() tool.Info   { return p.info }
func (p *proxied) Unwrap() tool.Tool { return p.Tool }

// begin records that the session of ctx uses the shared process, until done is called. gaveUp says that the session
// has abandoned the call.
func (u *upstream) begin(ctx context.Context) (done func(gaveUp bool)) {
	ended := u.audience.begin(ctx)
	return func(gaveUp bool) {
		ended(gaveUp)
		if gaveUp {
			u.abandoned.add(u.client.Status().Restarts, host.From(ctx))
		}
	}
}

// Call passes the call on. If the login of the user has ended, the user is asked to log in, and the call is repeated: the
// server has not run it.
func (p *proxied) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		mayLogIn := p.up.users != nil && p.up.users.tokens.logins != nil // false once the server has answered
		loginEnded := false
		p.call(ctx, call, func(chunk tool.Chunk, err error) bool {
			loginEnded = mayLogIn && errors.Is(err, mcpclient.ErrLogin)
			mayLogIn = false
			return !loginEnded && yield(chunk, err)
		})
		if loginEnded {
			p.call(ctx, call, yield)
		}
	}
}

// call passes a call on, and records whether it was abandoned.
func (p *proxied) call(ctx context.Context, call tool.Call, yield func(tool.Chunk, error) bool) {
	t := p.Tool
	gaveUp := true // false if the call ends normally
	c, done, err := p.up.clientOf(ctx)
	if err == nil {
		defer func() { done(gaveUp) }()
		if c != p.up.client {
			t, err = toolOf(ctx, c, t)
		}
	}
	if err != nil {
		gaveUp = false
		yield(tool.Chunk{}, withoutStderr(ctx, err))
		return
	}
	var last error
	for chunk, err := range t.Call(ctx, call) {
		last = err
		if err != nil {
			err = withoutStderr(ctx, err)
		}
		if !yield(chunk, err) {
			return
		}
	}
	gaveUp = ctx.Err() != nil || errors.Is(last, mcpclient.ErrTimeout)
}
