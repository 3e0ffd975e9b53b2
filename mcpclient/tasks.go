package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
)

// tasksExtension is the capability of clients and servers for tasks (SEP-2663), from revision 2026-07-28 on. Revision
// 2025-11-25 has tasks in an experimental form.
const tasksExtension = "io.modelcontextprotocol/tasks"

const (
	// A server may ask to be polled at intervals from minPoll to maxPoll.
	defaultPoll, minPoll, maxPoll = time.Second, 100 * time.Millisecond, time.Minute

	// maxPollFailures is how many requests for the state of a task may fail in a row.
	maxPollFailures = 5

	// taskGrace is how long an agent with calls in the background waits for a call that is a task.
	taskGrace = 2 * time.Second

	maxTaskID = 1024 // bytes
)

// A task is the state of a call whose result the server returns later. OldTTL and OldPoll are sent in revision 2025-11-25.
type task struct {
	ID      string                     `json:"taskId"`
	Status  mcp.TaskStatus             `json:"status"`
	Message string                     `json:"statusMessage"`
	TTL     float64                    `json:"ttlMs"` // 0 is unlimited
	Poll    float64                    `json:"pollIntervalMs"`
	OldTTL  float64                    `json:"ttl"`
	OldPoll float64                    `json:"pollInterval"`
	Result  json.RawMessage            `json:"result"`
	Error   *mcp.JSONRPCErrorDetails   `json:"error"`
	Inputs  map[string]json.RawMessage `json:"inputRequests"`
}

func decodeTask(raw json.RawMessage) (*task, error) {
	var t task
	if err := strictjson.Unmarshal(raw, &t); err != nil {
		return nil, fmt.Errorf("%w: the task: %w", errMalformed, err)
	}
	if t.ID == "" || len(t.ID) > maxTaskID {
		return nil, fmt.Errorf("%w: the id of the task is empty or longer than %d bytes", errMalformed, maxTaskID)
	}
	return &t, nil
}

// wait returns how long to wait before the next request for the state.
func (t *task) wait() time.Duration {
	poll := milliseconds(cmp.Or(t.Poll, t.OldPoll))
	return min(max(cmp.Or(poll, defaultPoll), minPoll), maxPoll)
}

func milliseconds(ms float64) time.Duration {
	return time.Duration(min(max(ms, 0), 1e12)) * time.Millisecond // limited, because a Duration could overflow
}

// A taskTool is a tool whose calls may be tasks, and then may continue in the background.
type taskTool struct{ *remoteTool }

// Background implements [tool.Backgrounder]. From revision 2026-07-28 on only the result of a call says that it is a task.
func (t *taskTool) Background(json.RawMessage) time.Duration {
	if t.callAsTask || t.wasTask.Load() {
		return taskGrace
	}
	return -1 // never
}

// wrapTaskTools replaces each tool whose calls may be tasks by a taskTool.
func (s *snapshot) wrapTaskTools(cn *conn) {
	extended := cn.protocol.extendedTasks()
	// Tasks of 2025-11-25 belong to a session, which with Options.Stateless ends with the call.
	experimental := !extended && cn.server.hasTasks() && !cn.cfg.Stateless
	for i, t := range s.remotes {
		t.callAsTask = experimental && (t.taskSupport == string(mcp.TaskSupportOptional) || t.taskSupport == string(mcp.TaskSupportRequired))
		// Agents need no Backgrounder to run a Parallel tool in the background.
		if t.callAsTask || extended && cn.server.declares(tasksExtension) && !t.info.Parallel {
			s.tools[i] = &taskTool{t}
		}
	}
}

// hasTasks reports whether a server of revision 2025-11-25 runs calls as tasks.
func (r *initResult) hasTasks() bool {
	var c mcp.TasksCapability
	return json.Unmarshal(r.Capabilities["tasks"], &c) == nil && c.Requests != nil && c.Requests.Tools != nil && c.Requests.Tools.Call != nil
}

// taskOf returns the task that the result of tools/call announces; nil for none.
func (r *result) taskOf(cn *conn, raw json.RawMessage) (*task, error) {
	switch {
	case cn.protocol.extendedTasks() && r.ResultType == "task":
		return decodeTask(raw)
	case !cn.protocol.extendedTasks() && r.OldTask != nil && r.Content == nil:
		return decodeTask(r.OldTask)
	}
	return nil, nil
}

// A follower waits for the result of a task.
type follower struct {
	*runner
	id             string
	what           string // names the tool in errors
	steps          chan progress
	lastStep       progress
	extended       bool            // see extendedTasks of protocol
	serverRequests *atomic.Int64   // see job
	answers        map[string]any  // to questions of the task, by the keys of the questions
	sent           map[string]bool // keys of the answers that the server has
}

// follow returns the result of a task. It polls as often as the server says, and cancels the task on failure.
func (r *runner) follow(ctx context.Context, t *remoteTool, state *task, extended bool, serverRequests *atomic.Int64, steps chan progress) (res *result, err error) {
	t.wasTask.Store(true)
	if _, taken := r.tasks.LoadOrStore(state.ID, true); taken {
		return nil, r.cfg.serverError(nil, fmt.Errorf("%w: the task of %s has the id of another call's task", errMalformed, t.what()))
	}
	defer r.tasks.Delete(state.ID)
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeouts.Call,
		fmt.Errorf("%w: %s was still running after %v", ErrTimeout, t.what(), r.cfg.Timeouts.Call))
	defer cancel()
	f := &follower{runner: r, id: state.ID, what: t.what(), steps: steps, extended: extended, serverRequests: serverRequests, answers: map[string]any{}, sent: map[string]bool{}}
	res, err = f.await(ctx, state)
	if err != nil && !state.Status.IsTerminal() {
		f.cancel()
		if _, refused := errors.AsType[*CallError](err); !refused {
			err = markMayHaveRun(r.cfg.serverError(nil, err), true)
		}
	}
	return res, err
}

// await polls until the task has ended, and returns its result. It updates state.
func (f *follower) await(ctx context.Context, state *task) (*result, error) {
	began, failures := time.Now(), 0
	for {
		f.show(state.Message)
		switch ttl := milliseconds(cmp.Or(state.TTL, state.OldTTL)); {
		case state.Status == mcp.TaskStatusCompleted && f.extended:
			return decodeResult("tools/call", state.Result)
		case state.Status == mcp.TaskStatusCompleted || state.Status == mcp.TaskStatusFailed && !f.extended:
			return f.fetchResult(ctx) // tasks/result also returns why the task has failed
		case state.Status == mcp.TaskStatusFailed && state.Error != nil:
			data, _ := json.Marshal(state.Error.Data)
			return nil, &CallError{Server: f.cfg.name, Method: "tools/call", Code: state.Error.Code, Message: visible.Text(state.Error.Message), Data: data}
		case state.Status != mcp.TaskStatusWorking && state.Status != mcp.TaskStatusInputRequired:
			return nil, fmt.Errorf("the task of %s is %s: %s", f.what, clip(visible.Text(string(state.Status)), 40), clip(visible.Text(state.Message), 500))
		case ttl > 0 && time.Since(began) > ttl+maxPoll: // maxPoll leaves time for a last poll
			return nil, fmt.Errorf("the task of %s has expired", f.what)
		case state.Status == mcp.TaskStatusInputRequired && !f.extended: // the server asks its questions during tasks/result
			if res, err := f.fetchResult(ctx); !errors.Is(err, ErrTimeout) || ctx.Err() != nil {
				return res, err // after Timeouts.Idle without a result, poll and request it again
			}
		default:
			if sleep(ctx, state.wait()); ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
		next, err := f.poll(ctx)
		if err == nil {
			*state, failures = *next, 0
			continue
		}
		failures++
		if _, refused := errors.AsType[*CallError](err); refused || ctx.Err() != nil || failures == maxPollFailures || errors.Is(err, ErrClosed) {
			return nil, err
		}
	}
}

// show shows a new message of the server to the user.
func (f *follower) show(text string) {
	if text = visible.Text(text); text == "" || text == f.lastStep.message {
		return
	}
	f.lastStep = progress{done: f.lastStep.done + 1, message: text}
	select {
	case f.steps <- f.lastStep:
	default: // the reader is slow: drop the message
	}
}

// poll requests the state of the task, and answers its questions.
func (f *follower) poll(ctx context.Context) (now *task, err error) {
	err = f.do(ctx, func(ctx context.Context, cn *conn) error {
		raw, err := f.request(ctx, cn, "tasks/get", nil)
		if err != nil {
			return err
		}
		if now, err = decodeTask(raw); err != nil {
			return err
		}
		if now.ID != f.id {
			return fmt.Errorf("%w: the answer is about another task", errMalformed)
		}
		if !f.extended || now.Status != mcp.TaskStatusInputRequired {
			return nil
		}
		return f.answer(ctx, cn, now.Inputs)
	})
	return now, err
}

// answer sends the answers that the server does not have yet. The user is asked each question once, even if the
// connection is lost before the answer is sent.
func (f *follower) answer(ctx context.Context, cn *conn, inputs map[string]json.RawMessage) (err error) {
	unsent := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(inputs)) {
		if f.sent[key] {
			continue
		}
		if _, asked := f.answers[key]; !asked {
			if len(f.answers) >= maxRequestsPerCall {
				return &CallError{Server: f.cfg.name, Method: "tasks/get", Code: codeRefused, Message: fmt.Sprintf("the task asks more than %d questions", maxRequestsPerCall)}
			}
			if f.answers[key], err = cn.answerInput(ctx, inputs[key]); err != nil {
				delete(f.answers, key)
				return &CallError{Server: f.cfg.name, Method: "tasks/get", Code: codeRefused, Message: fmt.Sprintf("%s requires input: %v", f.what, err)}
			}
		}
		unsent[key] = f.answers[key]
	}
	if len(unsent) == 0 {
		return nil
	}
	if _, err := f.request(ctx, cn, "tasks/update", map[string]any{"inputResponses": unsent}); err != nil {
		return err
	}
	for key := range unsent {
		f.sent[key] = true
	}
	return nil
}

// fetchResult requests the result with tasks/result, which only revision 2025-11-25 has, and waits until the task has ended.
func (f *follower) fetchResult(ctx context.Context) (res *result, err error) {
	err = f.do(ctx, func(ctx context.Context, cn *conn) error {
		raw, err := f.request(ctx, cn, "tasks/result", nil)
		if err == nil {
			res, err = decodeResult("tasks/result", raw)
		}
		return err
	})
	return res, err
}

// do makes requests about the task, which may be repeated, also on another connection. If they fail, the task may have run.
func (f *follower) do(ctx context.Context, send func(context.Context, *conn) error) error {
	return f.run(ctx, &job{what: "the task of " + f.what, repeatable: true, mayChange: true, serverRequests: f.serverRequests, do: func(ctx context.Context, cn *conn, _ string) error {
		if cn.protocol.extendedTasks() != f.extended {
			return &CallError{Server: f.cfg.name, Method: "tasks/get", Code: codeMethodNotFound, Message: "the server has another revision now, which does not know the task"}
		}
		return send(ctx, cn)
	}}, make(chan progress, 1))
}

func (f *follower) request(ctx context.Context, cn *conn, method string, params map[string]any) (json.RawMessage, error) {
	all := map[string]any{"taskId": f.id}
	maps.Copy(all, params)
	header := http.Header{}
	if value, ok := mcp.EncodeHeaderValue(f.id); ok { // so that a proxy can find the replica that has the task
		header.Set(mcp.HeaderName, value)
	}
	return cn.request(ctx, method, all, header)
}

// cancel requests that the server cancel the task.
func (f *follower) cancel() {
	cn := f.sup.current()
	if cn == nil || cn.dead() {
		return
	}
	cn.goWorkIn(&cn.cancelNotices, func() {
		ctx, cancel := context.WithTimeout(cn.life, noticeTimeout)
		defer cancel()
		_, _ = f.request(ctx, cn, "tasks/cancel", nil) // the task expires otherwise
	})
}
