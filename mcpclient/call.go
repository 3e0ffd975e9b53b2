package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// Origin returns the name of a tool's server, and the tool's name on that server. ok is false for a tool of
// another package.
func Origin(t tool.Tool) (server, name string, ok bool) {
	o, ok := tool.As[interface{ origin() (server, name string) }](t)
	if !ok {
		return "", "", false
	}
	server, name = o.origin()
	return server, name, true
}

// A remoteTool is a tool as its server listed it. It stays usable when the server restarts, and when a later
// list does not have it: then the server answers the call.
type remoteTool struct {
	cfg        *config
	caller     caller
	info       tool.Info
	remote     string // its name on the server
	idempotent bool   // a call may be repeated
	forwards   bool   // it calls other tools of the server
	groups     []string
	definition json.RawMessage // canonical JSON, to be pinned; nil without Options.Pins
	text       json.RawMessage // the server's text when the tool was listed; nil if unknown
}

func newRemoteTool(c *catalogue, r *remote, name string) *remoteTool {
	title := r.Title
	if title == "" {
		title = r.Annotations.Title
	}
	trust := func(hint *bool) bool { return hint != nil && *hint && c.cfg.TrustReadOnly }
	readOnly := trust(r.Annotations.ReadOnly)
	t := &remoteTool{
		cfg: c.cfg, caller: c.caller, remote: r.Name, groups: r.groups(),
		idempotent: readOnly || trust(r.Annotations.Idempotent),
		info: tool.Info{
			Name: name, Title: visible.Text(title), Description: visible.Text(bestDescription(r)),
			Input: withoutDialect(visible.JSON(r.Input, visible.Words)), Output: withoutDialect(visible.JSON(r.Output, visible.Words)),
			ReadOnly: readOnly, Parallel: readOnly, Annotations: visible.JSON(r.Annotations.raw, visible.Words),
		},
	}
	t.forwards = forwards(r.Input)
	if c.cfg.Pins != nil {
		t.definition = strictjson.Canonical(r.raw)
	}
	return t
}

func (t *remoteTool) Info() tool.Info { return t.info }

func (t *remoteTool) origin() (server, name string) { return t.cfg.name, t.remote }

// CheckIdempotent implements [tool.IdempotentChecker]. It believes the hints of a trusted server, as does the
// repetition of a call after a lost connection.
func (t *remoteTool) CheckIdempotent(json.RawMessage) bool { return t.idempotent }

// Call sends the call. It yields the server's progress for the user, and then the result.
func (t *remoteTool) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		type outcome struct {
			res *result
			err error
		}
		steps := make(chan progress, progressQueue)
		done := make(chan outcome, 1)
		go func() {
			res, err := t.caller.call(ctx, t, call.Input, steps)
			done <- outcome{res, err}
		}()
		// leave cancels the call and waits until its goroutine has ended.
		leave := func() { cancel(); <-done }
		shown := 0
		show := func(p progress) bool {
			shown++
			return shown > maxProgress || yield(p.chunk(), nil)
		}
		for {
			select {
			case p := <-steps:
				if !show(p) {
					leave()
					return
				}
			case o := <-done:
				for len(steps) > 0 {
					if !show(<-steps) {
						return
					}
				}
				t.finish(o.res, o.err, yield)
				return
			}
		}
	}
}

// maxProgress is how many progress notifications of a call are shown; the others only extend its time.
// progressQueue is how many wait for a slow reader; the oldest are dropped.
const (
	maxProgress   = 1000
	progressQueue = 16
)

func (t *remoteTool) finish(res *result, err error, yield func(tool.Chunk, error) bool) {
	if err != nil {
		yield(tool.Chunk{}, err)
		return
	}
	chunks, err := t.cfg.shorten(t.info.Name, res.chunks())
	if err != nil {
		yield(tool.Chunk{}, err)
		return
	}
	for _, c := range chunks {
		if !yield(c, nil) {
			return
		}
	}
}

func (p progress) chunk() tool.Chunk {
	num := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	s := num(p.done)
	if p.total > 0 {
		s += "/" + num(p.total)
	}
	if p.message != "" {
		s += " " + clip(p.message, 500)
	}
	return tool.Chunk{Block: &message.Text{ID: "progress", Text: s + "\n"}, ForUser: true,
		Progress: &tool.Progress{Done: p.done, Total: p.total, Message: clip(p.message, 500)}}
}

// maxRounds is how often a server may require more input within one call.
const maxRounds = 10

// callTool makes one call on the connection.
func (c *conn) callTool(ctx context.Context, t *remoteTool, args json.RawMessage, token string) (*result, error) {
	params := map[string]any{"name": t.remote, "arguments": args, "_meta": map[string]any{"progressToken": token}}
	var header http.Header
	if c.kind == wireHTTP && c.sessionless() {
		header = paramHeaders(t, args)
	}
	res, _, err := c.requestWithInput(ctx, "tools/call", t.what(), params, header)
	return res, err
}

// requestWithInput makes a request for which the server may require input, and returns the result, decoded and
// raw. In the revisions without sessions the server returns input_required instead of asking, and the request
// is repeated with the answers and the server's state.
func (c *conn) requestWithInput(ctx context.Context, method, what string, params map[string]any, header http.Header) (*result, json.RawMessage, error) {
	for range maxRounds {
		raw, err := c.request(ctx, method, params, header)
		if err != nil {
			return nil, nil, c.askToVisit(ctx, err)
		}
		res, err := decodeResult(method, raw)
		if err != nil {
			return nil, nil, err
		}
		if res.ResultType != "input_required" {
			return res, raw, nil
		}
		answers := map[string]any{}
		for _, id := range sortedKeys(res.Inputs) { // sorted, so that the user is asked in the same order each time
			if answers[id], err = c.answerInput(ctx, res.Inputs[id]); err != nil {
				return nil, nil, fmt.Errorf("%s requires input: %w", what, err)
			}
		}
		params = maps.Clone(params)
		params["inputResponses"] = answers
		delete(params, "requestState")
		if res.State != "" {
			params["requestState"] = res.State
		}
	}
	return nil, nil, fmt.Errorf("%s required input %d times, the limit for one call", what, maxRounds)
}

func (c *conn) answerInput(ctx context.Context, raw json.RawMessage) (any, error) {
	var req struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := strictjson.Unmarshal(raw, &req); err != nil {
		return nil, err
	}
	return c.answerRequest(ctx, req.Method, req.Params)
}

// paramHeaders returns the arguments that the schema requires as HTTP headers too (x-mcp-header).
func paramHeaders(t *remoteTool, args json.RawMessage) http.Header {
	body, err := json.Marshal(map[string]json.RawMessage{"arguments": args})
	if err != nil {
		return nil
	}
	h := http.Header{}
	for k, v := range mcp.GenerateParamHeaders(&mcp.Tool{Name: t.remote, RawInputSchema: t.info.Input}, body) {
		h.Set(k, v)
	}
	return h
}

// decodeResult decodes the result of tools/call, prompts/get or resources/read. Content is
// optional, and a member of an unexpected type does not hide the others.
func decodeResult(method string, raw json.RawMessage) (*result, error) {
	var res result
	if bytes.Equal(raw, []byte("null")) {
		return nil, fmt.Errorf("the result of %s is null", method)
	}
	if err := strictjson.Unmarshal(raw, &res); err == nil {
		return &res, nil
	} else if errors.Is(err, strictjson.ErrAmbiguous) {
		return nil, fmt.Errorf("%w: the result of %s: %w", errMalformed, method, err)
	}
	// A member has an unexpected type: decode the others.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("the result of %s is not an object: %.80s", method, raw)
	}
	res = result{Structured: fields["structuredContent"]}
	if raw := fields["isError"]; raw != nil && json.Unmarshal(raw, &res.IsError) != nil {
		res.IsError = true // fail safe: an unreadable isError is an error
	}
	_ = json.Unmarshal(fields["_meta"], &res.Meta)
	_ = json.Unmarshal(fields["resultType"], &res.ResultType)
	_ = json.Unmarshal(fields["inputRequests"], &res.Inputs)
	_ = json.Unmarshal(fields["requestState"], &res.State)
	if raw := fields["content"]; raw != nil && json.Unmarshal(raw, &res.Content) != nil {
		res.Content = []json.RawMessage{raw}
	}
	return &res, nil
}

// what describes the tool in errors.
func (t *remoteTool) what() string { return "tool " + t.remote }

// calls runs requests that the server may take long for.
type calls struct {
	cfg    *config
	sup    *supervisor
	cat    *catalogue
	tokens atomic.Int64 // how many progress tokens were used
}

// call implements caller: it runs a call of a tool to its end.
func (c *calls) call(ctx context.Context, t *remoteTool, args json.RawMessage, steps chan progress) (res *result, err error) {
	if err := c.cat.checkPin(t); err != nil {
		return nil, err
	}
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	err = c.run(ctx, &job{what: t.what(), repeatable: t.idempotent, effect: true, do: func(ctx context.Context, cn *conn, token string) (err error) {
		res, err = cn.callTool(ctx, t, args, token)
		return err
	}}, steps)
	if ctx.Err() == nil {
		c.cat.catchUp(ctx)
	}
	return res, err
}

// A job is a request that [calls.run] does with timeouts and repetition.
type job struct {
	what       string // for errors
	repeatable bool   // sending it twice does no harm
	effect     bool   // it may change something
	do         func(ctx context.Context, cn *conn, token string) error
}

// uncertain marks the error of a job that may have run.
func (j *job) uncertain(err error) error {
	se, ok := errors.AsType[*ServerError](err)
	if !ok || se.MayHaveRun {
		return err
	}
	marked := *se
	if marked.MayHaveRun = true; j.effect {
		marked.Err = fmt.Errorf("%w; the call may have had an effect: check before calling again", se.Err)
		if errors.Is(se.Err, ErrLost) {
			marked.Err = fmt.Errorf("%w. The server is started or connected to again with the next call", marked.Err)
		}
	}
	return &marked
}

// run does a job within the timeouts. It repeats the job on another connection if the first try certainly did
// nothing, and once if the job may have run and is repeatable.
func (c *calls) run(ctx context.Context, j *job, steps chan progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hard := time.AfterFunc(c.cfg.Timeouts.Call, func() {
		cancel(j.uncertain(c.cfg.serverError(nil, fmt.Errorf("%w: %s was still running after %v", ErrTimeout, j.what, c.cfg.Timeouts.Call))))
	})
	defer hard.Stop()
	idle := time.AfterFunc(c.cfg.Timeouts.Idle, func() {
		cancel(j.uncertain(c.cfg.serverError(nil, fmt.Errorf("%w: %s reported no progress for %v", ErrTimeout, j.what, c.cfg.Timeouts.Idle))))
	})
	defer idle.Stop()
	const tries = 3 // only one more after a lost connection
	ran := false    // the job may have run in one of the tries
	for try, losses := 1, 0; ; try++ {
		// Each try has its own tracker, since progress starts at zero again.
		sent, err := c.once(ctx, j, &progressTracker{steps: steps, complete: make(chan struct{}),
			resetClock: func() { idle.Reset(c.cfg.Timeouts.Idle) }, stopClock: func() { idle.Stop() }})
		if err == nil {
			return nil
		}
		ran = ran || sent && mayHaveRun(err)
		again := neverReached(err)
		if !again && errors.Is(err, ErrLost) {
			losses++
			again = j.repeatable && losses == 1
		}
		if !again || try == tries || ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrLogin) {
			if ran {
				return j.uncertain(err)
			}
			return err
		}
	}
}

// mayHaveRun reports whether a call that was sent and failed without an answer may have run. Timeouts mark
// their errors themselves.
func mayHaveRun(err error) bool {
	if status, ok := errors.AsType[*httpStatusError](err); ok {
		return status.code >= 500
	}
	return !neverReached(err)
}

// A progressTracker receives the progress of one try of a call, on the reading goroutines.
type progressTracker struct {
	steps      chan progress
	resetClock func() // called for each step
	stopClock  func() // stops the clock until the next resetClock
	complete   chan struct{}

	mu            sync.Mutex
	seen          bool
	last          progress
	openQuestions int // the clock is stopped while there are any
}

// pauseClock stops the clock of the call until release, while the server waits for the client.
func (w *progressTracker) pauseClock() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.openQuestions++
	w.stopClock()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.openQuestions--; w.openQuestions == 0 {
			w.resetClock()
		}
	}
}

func (w *progressTracker) report(p progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen && p.done <= w.last.done {
		return // the specification requires it to increase
	}
	if p.total > 0 && p.done >= p.total && !w.isComplete() {
		close(w.complete)
	}
	w.seen, w.last = true, p
	if w.openQuestions == 0 {
		w.resetClock()
	}
	for {
		select {
		case w.steps <- p:
			return
		default:
		}
		select {
		case <-w.steps: // drop the oldest
		default:
		}
	}
}

func (w *progressTracker) isComplete() bool {
	select {
	case <-w.complete:
		return true
	default:
		return false
	}
}

// lateStepWait is how long after a result the last progress may arrive, since many servers send progress from
// another thread.
const lateStepWait = 50 * time.Millisecond

// awaitLateSteps waits for the last step if the server reports a total that it has not reached.
func (w *progressTracker) awaitLateSteps(ctx context.Context) {
	w.mu.Lock()
	waiting := w.seen && w.last.total > 0
	w.mu.Unlock()
	if !waiting {
		return
	}
	t := time.NewTimer(lateStepWait)
	defer t.Stop()
	select {
	case <-w.complete:
	case <-t.C:
	case <-ctx.Done():
	}
}

// once makes one try of a job. sent is false if there was no connection.
func (c *calls) once(ctx context.Context, j *job, w *progressTracker) (sent bool, err error) {
	cn, release, err := c.sup.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	cn.sendLogLevel(ctx)
	token := "p" + strconv.FormatInt(c.tokens.Add(1), 10)
	stop := cn.routes.add(token, w.report)
	defer stop()
	f := &inflight{ctx: ctx, host: host.From(ctx), progress: w}
	leave := cn.calls.add(f)
	err = j.do(context.WithValue(ctx, inflightKey{}, f), cn, token)
	_, refused := errors.AsType[*CallError](err)
	leave(err == nil || refused)
	if err != nil {
		if ctx.Err() == nil {
			err = c.cfg.serverError(cn, err)
		} else if se, ok := errors.AsType[*ServerError](err); ok && cn.proc != nil {
			slow := *se // stderr may explain the timeout
			slow.Stderr = cn.proc.stderr.String()
			err = &slow
		}
		return true, err
	}
	c.sup.callSucceeded()
	w.awaitLateSteps(ctx)
	return true, nil
}
