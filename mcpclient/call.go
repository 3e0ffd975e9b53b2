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
	if ok {
		server, name = o.origin()
	}
	return server, name, ok
}

// A remoteTool is a tool as its server listed it. It stays usable when the server restarts. A call is sent even if a later
// list lacks the tool.
type remoteTool struct {
	cfg        *config
	caller     toolCaller
	info       tool.Info
	remoteName string            // the tool's name on the server
	idempotent bool              // a call may be repeated
	forwards   bool              // the tool calls other tools of the server
	modelNames map[string]string // the names for the model of all listed tools, by their names on the server
	hasHeaders bool              // some arguments are also sent as HTTP headers (x-mcp-header)
	groups     []string

	taskSupport string      // from the list, as of revision 2025-11-25
	callAsTask  bool        // in revision 2025-11-25: request tasks from the server
	wasTask     atomic.Bool // a call of the tool has become a task

	definition     json.RawMessage // canonical JSON for the tool's pin; nil without Options.Pins
	textDefinition json.RawMessage // canonical JSON for ServerPin, when the tool was listed; nil if unknown
}

func newRemoteTool(c *catalogue, entry *listEntry, modelNames map[string]string) *remoteTool {
	trust := func(hint *bool) bool { return hint != nil && *hint && c.cfg.TrustReadOnly }
	readOnly := trust(entry.Annotations.ReadOnly)
	clean := func(raw json.RawMessage) json.RawMessage { return visible.JSON(raw, visible.Words) }
	t := &remoteTool{
		cfg: c.cfg, caller: c.caller, remoteName: entry.Name, modelNames: modelNames, groups: entry.groups(),
		idempotent: readOnly || trust(entry.Annotations.Idempotent), forwards: forwards(entry.Input), taskSupport: entry.taskSupport(),
		info: tool.Info{
			Name: modelNames[entry.Name], Title: visible.Text(cmp.Or(entry.Title, entry.Annotations.Title)), Description: visible.Text(bestDescription(entry)),
			Input: withoutDialect(clean(entry.Input)), Output: withoutDialect(clean(entry.Output)),
			ReadOnly: readOnly, Parallel: readOnly, Annotations: clean(entry.Annotations.raw),
		},
	}
	t.hasHeaders = bytes.Contains(t.info.Input, []byte("x-mcp-header"))
	if c.cfg.Pins != nil {
		t.definition = strictjson.Canonical(entry.raw)
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
					<-done // wait for the goroutine
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
	maxProgress   = 1000 // progress notifications of a call that are shown; further ones only extend Timeouts.Idle
	progressQueue = 16   // notifications that wait for a slow reader; then the oldest is dropped
)

func (p progress) chunk() tool.Chunk {
	num := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	text, msg := num(p.done), clip(p.message, 500)
	if p.total > 0 {
		text += "/" + num(p.total)
	}
	if msg != "" {
		text += " " + msg
	}
	return tool.Chunk{Block: &message.Text{ID: "progress", Text: text + "\n"}, ForUser: true,
		Progress: &tool.Progress{Done: p.done, Total: p.total, Message: msg}}
}

// maxInputRequests is how often a server may return input_required within one call.
const maxInputRequests = 10

// callTool makes one call on the connection.
func (c *conn) callTool(ctx context.Context, t *remoteTool, args json.RawMessage, token string) (*result, error) {
	params := map[string]any{"name": t.remoteName, "arguments": args, "_meta": requestMeta{Token: token, Context: tracecontext.From(ctx)}}
	var header http.Header
	if t.hasHeaders && c.protocol.usesHeaders() {
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
// raw. A server without sessions returns its questions (input_required) instead of sending requests for them. The
// request is then repeated with the answers and the server's state.
func (c *conn) requestWithInput(ctx context.Context, method, what string, params map[string]any, header http.Header) (*result, json.RawMessage, error) {
	for range maxInputRequests {
		raw, err := c.request(ctx, method, params, header)
		if err != nil {
			return nil, nil, c.handleURLRequired(ctx, err)
		}
		res, err := decodeResult(method, raw)
		if err != nil {
			return nil, nil, err
		}
		if res.ResultType == "task" && method != "tools/call" && c.protocol.extendedTasks() { // only calls may be tasks
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
	body, _ := json.Marshal(map[string]json.RawMessage{"arguments": args}) // args that are not JSON fail when they are sent
	header := http.Header{}
	for name, value := range mcp.GenerateParamHeaders(&mcp.Tool{Name: t.remoteName, RawInputSchema: t.info.Input}, body) {
		header.Set(name, value)
	}
	return header
}

// decodeResult decodes the result of tools/call, prompts/get or resources/read. Content is optional.
func decodeResult(method string, raw json.RawMessage) (*result, error) {
	var res result
	if bytes.Equal(raw, []byte("null")) {
		return nil, fmt.Errorf("the result of %s is null", method)
	}
	err := strictjson.Unmarshal(raw, &res)
	if errors.Is(err, strictjson.ErrAmbiguous) {
		return nil, fmt.Errorf("%w: the result of %s: %w", errMalformed, method, err)
	}
	if err == nil {
		return &res, nil
	}
	// A member has an unexpected type: decode each one separately.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("the result of %s is not an object: %.80s", method, raw)
	}
	res = result{Structured: fields["structuredContent"]}
	if raw := fields["isError"]; raw != nil && json.Unmarshal(raw, &res.IsError) != nil {
		res.IsError = true // an unreadable isError counts as an error
	}
	// Members of unexpected types stay empty.
	_ = json.Unmarshal(fields["_meta"], &res.Meta)
	_ = json.Unmarshal(fields["resultType"], &res.ResultType)
	_ = json.Unmarshal(fields["inputRequests"], &res.Inputs)
	_ = json.Unmarshal(fields["requestState"], &res.State)
	if raw := fields["content"]; raw != nil && json.Unmarshal(raw, &res.Content) != nil {
		res.Content = []json.RawMessage{raw}
	}
	return &res, nil
}

// what names the tool in errors.
func (t *remoteTool) what() string { return "tool " + t.remoteName }

// A runner makes the requests that may take long, with timeouts and repetition.
type runner struct {
	cfg       *config
	sup       *supervisor
	cat       *catalogue
	lastToken atomic.Int64 // progress tokens are numbered
	tasks     sync.Map     // the ids of the tasks that calls wait for
}

// call implements toolCaller. If the call becomes a task, it waits for the task's result.
func (r *runner) call(ctx context.Context, t *remoteTool, args json.RawMessage, steps chan progress) (res *result, err error) {
	if err := r.cat.checkPin(t); err != nil {
		return nil, err
	}
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	extendedTasks, serverRequests := false, new(atomic.Int64)
	j := &job{what: t.what(), repeatable: t.idempotent, mayChange: true, serverRequests: serverRequests}
	j.do = func(ctx context.Context, cn *conn, token string) (err error) {
		extendedTasks = cn.protocol.extendedTasks()
		res, err = cn.callTool(ctx, t, args, token)
		return err
	}
	if err = r.run(ctx, j, steps); err == nil && res.task != nil {
		res, err = r.follow(ctx, t, res.task, extendedTasks, serverRequests, steps)
	}
	if ctx.Err() == nil {
		r.cat.relistAnnounced(ctx)
	}
	return res, err
}

// A job is what [runner.run] runs: a request, or several that depend on each other.
type job struct {
	what           string        // for errors
	repeatable     bool          // running the job twice does no harm
	mayChange      bool          // the job may change something on the server
	serverRequests *atomic.Int64 // counts the server's requests; shared by the jobs of one call; nil for a single job
	do             func(ctx context.Context, cn *conn, token string) error
}

// markMayHaveRun sets MayHaveRun in a [*ServerError]. If mayChange is set, the error warns of a repeated effect.
func markMayHaveRun(err error, mayChange bool) error {
	se, ok := errors.AsType[*ServerError](err)
	if !ok || se.MayHaveRun {
		return err
	}
	marked := *se
	marked.MayHaveRun = true
	if mayChange {
		marked.Err = fmt.Errorf("%w; the call may have had an effect: check before calling again", se.Err)
		if errors.Is(se.Err, ErrLost) {
			marked.Err = fmt.Errorf("%w. The next call starts the server, or connects to it, again", marked.Err)
		}
	}
	return &marked
}

// maxTries is how often a job is tried that never reaches the server.
const maxTries = 3

// run runs a job within the timeouts. It tries again, on another connection, if the server certainly never received the
// request. If the connection is lost during a repeatable job, it tries once more.
func (r *runner) run(ctx context.Context, j *job, steps chan progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	startTimer := func(limit time.Duration, problem string) *time.Timer {
		return time.AfterFunc(limit, func() {
			err := fmt.Errorf("%w: %s %s %v", ErrTimeout, j.what, problem, limit)
			cancel(markMayHaveRun(r.cfg.serverError(nil, err), j.mayChange))
		})
	}
	defer startTimer(r.cfg.Timeouts.Call, "was still running after").Stop()
	idleTimer := startTimer(r.cfg.Timeouts.Idle, "reported no progress for")
	defer idleTimer.Stop()
	if j.serverRequests == nil {
		j.serverRequests = new(atomic.Int64)
	}
	maybeRan := false // in one of the tries
	lost := false     // the connection, in one of the tries
	for try := 1; ; try++ {
		// Each try has its own tracker, since progress starts at zero again.
		sent, err := r.tryOnce(ctx, j, &progressTracker{steps: steps, complete: make(chan struct{}),
			resetIdleTimer: func() { idleTimer.Reset(r.cfg.Timeouts.Idle) }, stopIdleTimer: func() { idleTimer.Stop() }})
		if err == nil {
			return nil
		}
		maybeRan = maybeRan || sent && mayHaveRun(err)
		again := neverReached(err)
		if !again && errors.Is(err, ErrLost) {
			again = j.repeatable && !lost
			lost = true
		}
		if !again || try == maxTries || ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrLogin) {
			if maybeRan {
				return markMayHaveRun(err, j.mayChange)
			}
			return err
		}
	}
}

// mayHaveRun reports whether a call that was sent and failed without an answer may have run.
func mayHaveRun(err error) bool {
	if status, ok := errors.AsType[*httpStatusError](err); ok {
		return status.code >= 500 // with a lower code the server rejected the request
	}
	return !neverReached(err)
}

// A progressTracker receives the progress of one try of a call. Its methods run on the reading goroutines.
type progressTracker struct {
	steps          chan progress
	resetIdleTimer func()        // called for each step
	stopIdleTimer  func()        // stops the timer until the next resetIdleTimer
	complete       chan struct{} // closed when the progress has reached its total

	mu            sync.Mutex
	completed     bool     // complete is closed
	reported      bool     // last is set
	last          progress // the last step
	openQuestions int      // the idle timer is stopped while there are any
}

// pauseIdleTimer stops the idle timer until release, while the server waits for the client.
func (t *progressTracker) pauseIdleTimer() (release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.openQuestions++
	t.stopIdleTimer()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.openQuestions--; t.openQuestions == 0 {
			t.resetIdleTimer()
		}
	}
}

func (t *progressTracker) report(p progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reported && p.done <= t.last.done {
		return // the specification requires increasing progress
	}
	if p.total > 0 && p.done >= p.total && !t.completed {
		t.completed = true
		close(t.complete)
	}
	t.reported, t.last = true, p
	if t.openQuestions == 0 {
		t.resetIdleTimer()
	}
	for {
		select {
		case t.steps <- p:
			return
		default:
		}
		select {
		case <-t.steps: // drop the oldest
		default:
		}
	}
}

// lateStepWait is how long after a result the last progress notification may arrive, since many servers send progress
// from another thread.
const lateStepWait = 50 * time.Millisecond

// awaitLateSteps waits a moment for the last notification if the progress has a total that is not reached.
func (t *progressTracker) awaitLateSteps(ctx context.Context) {
	t.mu.Lock()
	waiting := t.reported && t.last.total > 0
	t.mu.Unlock()
	if !waiting {
		return
	}
	select {
	case <-t.complete:
	case <-time.After(lateStepWait):
	case <-ctx.Done():
	}
}

// tryOnce makes one try of a job. sent is false if there was no connection.
func (r *runner) tryOnce(ctx context.Context, j *job, tracker *progressTracker) (sent bool, err error) {
	cn, release, err := r.sup.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	cn.protocol.setLevel(ctx)
	token := "p" + strconv.FormatInt(r.lastToken.Add(1), 10)
	defer cn.progressFuncs.add(token, tracker.report)()
	call := &inflightCall{ctx: ctx, host: host.From(ctx), progress: tracker, serverRequests: j.serverRequests}
	remove := cn.calls.add(call)
	err = j.do(context.WithValue(ctx, inflightCallKey{}, call), cn, token)
	_, refused := errors.AsType[*CallError](err)
	remove(err == nil || refused)
	if err == nil {
		r.sup.callSucceeded()
		tracker.awaitLateSteps(ctx)
		return true, nil
	}
	if ctx.Err() == nil {
		return true, r.cfg.serverError(cn, err)
	}
	if timeout, ok := errors.AsType[*ServerError](err); ok && cn.proc != nil {
		explained := *timeout
		explained.Stderr = cn.proc.stderr.String() // which may say why the server is slow
		err = &explained
	}
	return true, err
}
