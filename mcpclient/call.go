package mcpclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/tracecontext"
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

// A remoteTool is a tool as its server listed it. It stays usable when the server restarts. If a later list lacks it,
// the server decides about the call.
type remoteTool struct {
	cfg        *config
	caller     caller
	info       tool.Info
	remoteName string // its name on the server
	idempotent bool   // a call may be repeated
	forwards   bool   // it calls other tools of the server
	inHeaders  bool   // some arguments are also sent as HTTP headers (x-mcp-header)
	groups     []string

	taskSupport string      // from the list, as of revision 2025-11-25
	callAsTask  bool        // in revision 2025-11-25: request tasks from the server
	wasTask     atomic.Bool // one of its calls has become a task

	definition json.RawMessage // canonical JSON for its pin; nil without Options.Pins
	serverText json.RawMessage // serverText.definition when the tool was listed; nil if unknown
}

func newRemoteTool(c *catalogue, r *listEntry, name string) *remoteTool {
	trust := func(hint *bool) bool { return hint != nil && *hint && c.cfg.TrustReadOnly }
	readOnly := trust(r.Annotations.ReadOnly)
	t := &remoteTool{
		cfg: c.cfg, caller: c.caller, remoteName: r.Name, groups: r.groups(),
		idempotent: readOnly || trust(r.Annotations.Idempotent),
		info: tool.Info{
			Name: name, Title: visible.Text(cmp.Or(r.Title, r.Annotations.Title)), Description: visible.Text(bestDescription(r)),
			Input: withoutDialect(visible.JSON(r.Input, visible.Words)), Output: withoutDialect(visible.JSON(r.Output, visible.Words)),
			ReadOnly: readOnly, Parallel: readOnly, Annotations: visible.JSON(r.Annotations.raw, visible.Words),
		},
	}
	t.forwards, t.taskSupport = forwards(r.Input), r.taskSupport()
	t.inHeaders = bytes.Contains(t.info.Input, []byte("x-mcp-header"))
	if c.cfg.Pins != nil {
		t.definition = strictjson.Canonical(r.raw)
	}
	return t
}

func (t *remoteTool) Info() tool.Info { return t.info }

func (t *remoteTool) origin() (server, name string) { return t.cfg.name, t.remoteName }

// CheckIdempotent implements [tool.IdempotentChecker]. It believes the hints of a trusted server.
func (t *remoteTool) CheckIdempotent(json.RawMessage) bool { return t.idempotent }

// Call yields the server's progress for the user, and then the result.
func (t *remoteTool) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		type outcome struct {
			chunks []tool.Chunk
			err    error
		}
		steps := make(chan progress, progressQueue)
		done := make(chan outcome, 1)
		go func() {
			res, err := t.caller.call(ctx, t, call.Input, steps)
			var o outcome
			if o.err = err; err == nil {
				o.chunks, o.err = t.cfg.shorten(t.info.Name, res.chunks())
			}
			done <- o
		}()
		shown := 0
		show := func(p progress) bool {
			shown++
			return shown > maxProgress || yield(p.chunk(), nil)
		}
		for {
			select {
			case p := <-steps:
				if !show(p) {
					cancel()
					<-done // no goroutine outlives the call
					return
				}
			case o := <-done:
				for len(steps) > 0 {
					if !show(<-steps) {
						return
					}
				}
				if o.err != nil {
					yield(tool.Chunk{}, o.err)
				}
				for _, c := range o.chunks {
					if !yield(c, nil) {
						return
					}
				}
				return
			}
		}
	}
}

const (
	maxProgress   = 1000 // progress notifications of a call that are shown; the others only extend its time
	progressQueue = 16   // notifications that wait for a slow reader; older ones are dropped
)

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

// maxInputRequests is how often a server may require more input within one call.
const maxInputRequests = 10

// callTool makes one call on the connection.
func (c *conn) callTool(ctx context.Context, t *remoteTool, args json.RawMessage, token string) (*result, error) {
	params := map[string]any{"name": t.remoteName, "arguments": args, "_meta": requestMeta{Token: token, Context: tracecontext.From(ctx)}}
	var header http.Header
	if t.inHeaders && c.protocol.usesHeaders() {
		header = paramHeaders(t, args)
	}
	if t.callAsTask && !c.protocol.extendedTasks() {
		params["task"] = map[string]any{"ttl": c.cfg.Timeouts.Call.Milliseconds()}
	}
	res, raw, err := c.requestWithInput(ctx, "tools/call", t.what(), params, header)
	if err == nil {
		res.task, err = res.taskOf(c, raw)
	}
	return res, err
}

// requestWithInput makes a request for which the server may require input, and returns the result, decoded and
// raw. In the revisions without sessions the server returns input_required instead of asking, and the request
// is repeated with the answers and the server's state.
func (c *conn) requestWithInput(ctx context.Context, method, what string, params map[string]any, header http.Header) (*result, json.RawMessage, error) {
	for range maxInputRequests {
		raw, err := c.request(ctx, method, params, header)
		if err != nil {
			return nil, nil, c.askToVisit(ctx, err)
		}
		res, err := decodeResult(method, raw)
		if err != nil {
			return nil, nil, err
		}
		if res.ResultType == "task" && method != "tools/call" && c.protocol.extendedTasks() {
			return nil, nil, fmt.Errorf("%w: the result of %s is a task", errMalformed, method)
		}
		if res.ResultType != "input_required" {
			return res, raw, nil
		}
		answers := map[string]any{}
		for _, id := range slices.Sorted(maps.Keys(res.Inputs)) {
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
	return nil, nil, fmt.Errorf("%s required input %d times, the limit for one call", what, maxInputRequests)
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

// paramHeaders returns the arguments that must also be sent as HTTP headers (x-mcp-header).
func paramHeaders(t *remoteTool, args json.RawMessage) http.Header {
	body, err := json.Marshal(map[string]json.RawMessage{"arguments": args})
	if err != nil {
		return nil
	}
	h := http.Header{}
	for k, v := range mcp.GenerateParamHeaders(&mcp.Tool{Name: t.remoteName, RawInputSchema: t.info.Input}, body) {
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
		res.IsError = true // an unreadable isError counts as an error
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
func (t *remoteTool) what() string { return "tool " + t.remoteName }

// calls runs the requests that may take a server long, with timeouts and repetition.
type calls struct {
	cfg    *config
	sup    *supervisor
	cat    *catalogue
	tokens atomic.Int64 // number of progress tokens that were used
	tasks  sync.Map     // the ids of the tasks that calls wait for
}

// call implements caller. If the call becomes a task, it waits for the task's result.
func (c *calls) call(ctx context.Context, t *remoteTool, args json.RawMessage, steps chan progress) (res *result, err error) {
	if err := c.cat.checkPin(t); err != nil {
		return nil, err
	}
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	extendedTasks, requests := false, new(atomic.Int64)
	err = c.run(ctx, &job{what: t.what(), repeatable: t.idempotent, effect: true, requests: requests, do: func(ctx context.Context, cn *conn, token string) (err error) {
		extendedTasks = cn.protocol.extendedTasks()
		res, err = cn.callTool(ctx, t, args, token)
		return err
	}}, steps)
	if err == nil && res.task != nil {
		res, err = c.follow(ctx, t, res.task, extendedTasks, requests, steps)
	}
	if ctx.Err() == nil {
		c.cat.catchUp(ctx)
	}
	return res, err
}

// A job is a request that [calls.run] makes with timeouts and repetition.
type job struct {
	what       string        // for errors
	repeatable bool          // sending it twice does no harm
	effect     bool          // it may change something
	requests   *atomic.Int64 // counts requests of the server; shared by the jobs of one call; nil for a single job
	do         func(ctx context.Context, cn *conn, token string) error
}

// uncertain marks the error of a request that may have run. effect says whether the request may have changed something.
func uncertain(err error, effect bool) error {
	se, ok := errors.AsType[*ServerError](err)
	if !ok || se.MayHaveRun {
		return err
	}
	marked := *se
	marked.MayHaveRun = true
	if effect {
		marked.Err = fmt.Errorf("%w; the call may have had an effect: check before calling again", se.Err)
		if errors.Is(se.Err, ErrLost) {
			marked.Err = fmt.Errorf("%w. The next call starts the server, or connects to it, again", marked.Err)
		}
	}
	return &marked
}

// run does a job within the timeouts. If the first try certainly had no effect, it repeats the job on another
// connection. If the job may have run, it repeats it once, provided that the job is repeatable.
func (c *calls) run(ctx context.Context, j *job, steps chan progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	callTimer := time.AfterFunc(c.cfg.Timeouts.Call, func() {
		cancel(uncertain(c.cfg.serverError(nil, fmt.Errorf("%w: %s was still running after %v", ErrTimeout, j.what, c.cfg.Timeouts.Call)), j.effect))
	})
	defer callTimer.Stop()
	idleTimer := time.AfterFunc(c.cfg.Timeouts.Idle, func() {
		cancel(uncertain(c.cfg.serverError(nil, fmt.Errorf("%w: %s reported no progress for %v", ErrTimeout, j.what, c.cfg.Timeouts.Idle)), j.effect))
	})
	defer idleTimer.Stop()
	const maxTries = 3 // for a request that never reached the server; one that may have run is repeated only once
	maybeRan := false  // the job may have run in one of the tries
	if j.requests == nil {
		j.requests = new(atomic.Int64)
	}
	for try, losses := 1, 0; ; try++ {
		// Each try has its own tracker, since progress starts at zero again.
		sent, err := c.tryOnce(ctx, j, &progressTracker{steps: steps, complete: make(chan struct{}),
			resetClock: func() { idleTimer.Reset(c.cfg.Timeouts.Idle) }, stopClock: func() { idleTimer.Stop() }})
		if err == nil {
			return nil
		}
		maybeRan = maybeRan || sent && mayHaveRun(err)
		again := neverReached(err)
		if !again && errors.Is(err, ErrLost) {
			losses++
			again = j.repeatable && losses == 1
		}
		if !again || try == maxTries || ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrLogin) {
			if maybeRan {
				return uncertain(err, j.effect)
			}
			return err
		}
	}
}

// mayHaveRun reports whether a call that was sent and failed without an answer may have run. The error of a timeout
// already says so (MayHaveRun).
func mayHaveRun(err error) bool {
	if status, ok := errors.AsType[*httpStatusError](err); ok {
		return status.code >= 500 // with a lower code the server rejected the request
	}
	return !neverReached(err)
}

// A progressTracker receives the progress of one try of a call. Its methods run on the reading goroutines.
type progressTracker struct {
	steps      chan progress
	resetClock func()        // called for each step
	stopClock  func()        // stops the clock until the next resetClock
	complete   chan struct{} // closed when the progress has reached its total

	mu            sync.Mutex
	completed     bool     // complete is closed
	reported      bool     // last is set
	last          progress // the last step
	openQuestions int      // the clock is stopped while there are any
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
	if w.reported && p.done <= w.last.done {
		return // the specification requires it to increase
	}
	if p.total > 0 && p.done >= p.total && !w.completed {
		w.completed = true
		close(w.complete)
	}
	w.reported, w.last = true, p
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

// lateStepWait is how long after a result the last progress notification may arrive, since many servers send these from
// another thread.
const lateStepWait = 50 * time.Millisecond

// awaitLateSteps waits for the last notification if the server has reported a total that it has not reached.
func (w *progressTracker) awaitLateSteps(ctx context.Context) {
	w.mu.Lock()
	waiting := w.reported && w.last.total > 0
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

// tryOnce makes one try of a job. sent is false if there was no connection.
func (c *calls) tryOnce(ctx context.Context, j *job, w *progressTracker) (sent bool, err error) {
	cn, release, err := c.sup.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	cn.protocol.setLevel(ctx)
	token := "p" + strconv.FormatInt(c.tokens.Add(1), 10)
	stop := cn.routes.add(token, w.report)
	defer stop()
	f := &inflight{ctx: ctx, host: host.From(ctx), progress: w, requests: j.requests}
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
