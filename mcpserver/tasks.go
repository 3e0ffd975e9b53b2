package mcpserver

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/tool"
)

// From revision 2026-07-28 on, a call that takes long is answered with a task (SEP-2663) if the client declares that it
// understands tasks. The client then polls for the result.

const tasksExtension = "io.modelcontextprotocol/tasks"

var taskMethods = []string{"tasks/get", "tasks/update", "tasks/cancel"}

// understandsTasks reports whether the client has declared tasks for this request.
func (r *request) understandsTasks() bool {
	var caps struct {
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	return strictjson.Unmarshal(r.msg.Meta.Capabilities, &caps) == nil && caps.Extensions[tasksExtension] != nil
}

// startTaskTimer makes the call a task after the time that the tool sets or, if it sets none, Config.TaskAfter. stop prevents that.
func (r *request) startTaskTimer(t tool.Tool, input json.RawMessage) (stop func() bool) {
	after := r.cat.cfg.TaskAfter
	if b, ok := tool.As[tool.Backgrounder](t); ok {
		after = b.Background(input)
	}
	if !r.mayBecomeTask || after < 0 { // a negative time means never
		return func() bool { return false }
	}
	return r.parkable.BecomeTask(after, r.cat.limits.Task)
}

// task handles tasks/get, tasks/update and tasks/cancel. A client cannot use the tasks of another account.
func (sl *sessionless) task(r *request, ctx context.Context) (any, *rpc.Error) {
	if !r.understandsTasks() {
		return nil, r.missingCapabilities(object{"extensions": object{tasksExtension: object{}}})
	}
	var p struct {
		ID      string                     `json:"taskId"`
		Answers map[string]json.RawMessage `json:"inputResponses"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	isGet := r.msg.Method == "tasks/get"
	call := sl.lot.Task(ctx, p.ID, &r.parked)
	if call == nil { // the task may have ended on another replica, which has handed it over
		switch state := sl.lot.Ended(ctx, p.ID, &r.parked); {
		case state == nil:
			return nil, rpc.Errorf(mcp.INVALID_PARAMS, "%s: there is no such task, or it has expired, or the replica that ran it has died", r.msg.Method)
		case isGet:
			return state, nil
		}
		return object{}, nil // a task that has ended is not changed
	}
	switch {
	case isGet:
		return call.State(), nil
	case r.msg.Method == "tasks/update":
		call.Answer(p.Answers)
	default:
		call.Cancel()
	}
	return object{}, nil
}

// checkTaskHeader checks that the header of a request about a task names the task, because proxies route by that header.
func checkTaskHeader(h http.Header, m *rpc.Message) *rpc.Error {
	if !slices.Contains(taskMethods, m.Method) {
		return nil
	}
	name, ok := mcp.DecodeHeaderValue(h.Get(mcp.HeaderName))
	if id := taskID(m); !ok || id != "" && name != id { // task reports a missing id
		return rpc.Errorf(mcp.HEADER_MISMATCH, "header %s must have the taskId", mcp.HeaderName)
	}
	return nil
}

// taskID returns the id of the task that a request is about; empty if there is none.
func taskID(m *rpc.Message) string {
	var p struct {
		ID string `json:"taskId"`
	}
	if !slices.Contains(taskMethods, m.Method) || m.Decode(&p) != nil {
		return ""
	}
	return p.ID
}
