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

// questionsNameCall is the first protocol revision in which a server's question names the call that it belongs to.
const questionsNameCall = "2026-07-28"

// abandonedCalls records the sessions that abandoned a call, which the server may still run. The server may ask a question
// about an abandoned call while only another session has a call in flight, whose user must not be asked. mcpclient refuses
// such questions for a minute, and the gateway until the server's process ends.
type abandonedCalls struct {
	mu         sync.Mutex
	restarts   int // of the server, when sessions was last reset
	sessions   []host.Host
	overflowed bool // more than maxAbandoned sessions abandoned a call: every question is refused
}

// maxAbandoned is how many sessions are recorded.
const maxAbandoned = 64

// resetAfter removes the sessions if the server has restarted.
func (a *abandonedCalls) resetAfter(restarts int) {
	if a.restarts != restarts {
		a.restarts, a.sessions, a.overflowed = restarts, nil, false
	}
}

func (a *abandonedCalls) add(restarts int, session host.Host) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetAfter(restarts)
	switch {
	case slices.Contains(a.sessions, session): // hosts of mcpserver are comparable
	case len(a.sessions) == maxAbandoned:
		a.overflowed = true
	default:
		a.sessions = append(a.sessions, session)
	}
}

// byAnother reports whether a session other than the given one may have abandoned a call.
func (a *abandonedCalls) byAnother(restarts int, session host.Host) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resetAfter(restarts)
	return a.overflowed || slices.ContainsFunc(a.sessions, func(o host.Host) bool { return o != session })
}

// checkSession returns an error if a question may belong to a session other than the session of ctx.
func (u *upstream) checkSession(ctx context.Context) error {
	st := u.client.Status()
	if st.Protocol >= questionsNameCall || !u.abandoned.byAnother(st.Restarts, host.From(ctx)) {
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

// maxQuestions is how many questions of a server the sessions of one credential may leave unanswered. mcpclient allows a
// server about a thousand in all.
const maxQuestions = 128

// questionCount counts the unanswered questions of a server.
type questionCount struct {
	mu         sync.Mutex
	unanswered map[string]int // by credential
}

// beginQuestion counts a question as unanswered, for the session's credential, until end is called. It fails if the
// question may belong to another session, or if there are too many questions.
func (u *upstream) beginQuestion(ctx context.Context) (end func(), err error) {
	if err := u.checkSession(ctx); err != nil {
		return nil, err
	}
	credential, q := credentialOf(ctx), &u.questions
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unanswered[credential] >= maxQuestions {
		return nil, fmt.Errorf("%w: this credential has %d unanswered questions of %q; answer some first", host.ErrRefused, maxQuestions, u.name)
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

// credentialOf returns the name of the credential of the session of ctx.
func credentialOf(ctx context.Context) string {
	if l := mcpserver.LoggerFrom(ctx); l != nil {
		return l.Credential()
	}
	return ""
}

// A proxiedTool is a tool of an upstream server, with clean texts.
type proxiedTool struct {
	tool.Tool
	info tool.Info
	up   *upstream
}

func (p *proxiedTool) Info() tool.Info   { return p.info }
func (p *proxiedTool) Unwrap() tool.Tool { return p.Tool }

// beginCall records that the session of ctx has a call in the shared process, until done is called.
func (u *upstream) beginCall(ctx context.Context) (done func(abandoned bool)) {
	audienceDone := u.audience.beginCall(ctx)
	return func(abandoned bool) {
		audienceDone(abandoned)
		if abandoned {
			u.abandoned.add(u.client.Status().Restarts, host.From(ctx))
		}
	}
}

// wasAbandoned reports whether the caller did not wait for the end of a call, which the server may still run.
func wasAbandoned(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, mcpclient.ErrTimeout)
}

// Call passes the call on. If the server refuses it because the user's login has ended, Call repeats it, which first
// asks the user to log in.
func (p *proxiedTool) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		loginEnded, answered := false, false
		p.call(ctx, call, func(chunk tool.Chunk, err error) bool {
			// The call is not repeated after an answer, because the server may have run it.
			loginEnded = !answered && p.up.usersLogIn() && errors.Is(err, mcpclient.ErrLogin)
			answered = true
			return !loginEnded && yield(chunk, err)
		})
		if loginEnded {
			p.call(ctx, call, yield)
		}
	}
}

// call passes a call on, and records whether it was abandoned.
func (p *proxiedTool) call(ctx context.Context, call tool.Call, yield func(tool.Chunk, error) bool) {
	client, done, err := p.up.clientOf(ctx)
	if err != nil {
		yield(tool.Chunk{}, withoutStderr(ctx, err))
		return
	}
	abandoned := false
	defer func() { done(abandoned) }()
	t := p.Tool
	if client != p.up.client { // p.Tool calls through the shared client
		if t, err = toolOf(ctx, client, t); err != nil {
			yield(tool.Chunk{}, withoutStderr(ctx, err))
			return
		}
	}
	abandoned = true // unless the loop ends by itself
	for chunk, chunkErr := range t.Call(ctx, call) {
		err = chunkErr
		if !yield(chunk, withoutStderr(ctx, err)) {
			return
		}
	}
	abandoned = wasAbandoned(ctx, err)
}
