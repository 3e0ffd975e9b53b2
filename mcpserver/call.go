package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/denial"
	"github.com/kitbag-go/kitbag/internal/tracecontext"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

// callParams are the parameters of tools/call. A client without sessions that was asked for input repeats the
// call with Answers and State.
type callParams struct {
	Name      string                     `json:"name"`
	Arguments json.RawMessage            `json:"arguments"`
	Answers   map[string]json.RawMessage `json:"inputResponses"`
	State     string                     `json:"requestState"`
	Trace     tracecontext.Context       `json:"_meta"`
}

// callTool handles tools/call.
func (r *request) callTool(ctx context.Context) (any, *rpc.Error) {
	var p callParams
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	if string(p.Arguments) == "null" { // some clients send null for no arguments
		p.Arguments = nil
	}
	if p.Name == "" {
		return nil, rpc.Errorf(mcp.INVALID_PARAMS, "tools/call: name is missing")
	}
	if p.Trace != (tracecontext.Context{}) { // for a tool that is on another server, and for traces
		ctx = tracecontext.With(ctx, p.Trace)
	}
	r.rec = Record{Time: time.Now(), Tool: cut(p.Name, maxRecordedName), Outcome: OutcomeInvalid}
	defer r.closeRecord(ctx) // even if a tool panics
	return r.runTool(ctx, &p)
}

// closeRecord completes the record and passes it to the audit function.
func (r *request) closeRecord(ctx context.Context) {
	r.rec.Credential, r.rec.Session = r.credential(), r.sessionName
	if ctx.Err() != nil && r.rec.Outcome != OutcomeSuccess {
		r.rec.Outcome = OutcomeCancelled
	}
	r.rec.Duration = float64(time.Since(r.rec.Time).Microseconds()) / 1000
	if r.cat.cfg.Audit != nil {
		r.cat.cfg.Audit(r.rec)
	}
}

// runTool resolves a call, checks its arguments, asks the permission engine and runs the tool. A failure that
// the model can correct is a result; any other is an error.
func (r *request) runTool(ctx context.Context, p *callParams) (any, *rpc.Error) {
	ctx = toolstate.With(ctx, &r.tools)
	v, err := r.tk.View(ctx, r.scope)
	if err != nil {
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "%v", err)
	}
	r.revision.recordView(v, false) // false: the client has called a tool of v, but was not sent the list
	t, input, err := v.Resolve(ctx, p.Name, p.Arguments)
	if err != nil {
		err = denial.Hidden(r.policy(), p.Name, err) // says so if a deny rule hides the tool
		if denied, ok := errors.AsType[*denial.Error](err); ok {
			r.rec.Tool, r.rec.Input = cut(denied.Tool, maxRecordedName), p.Arguments
			r.rec.recordDecision(denied.Decision)
		}
		return failure(err.Error()), nil
	}
	args, err := tool.Arguments(t, input)
	if err != nil {
		return failure(err.Error()), nil
	}
	if t.Info().External {
		return failure(fmt.Sprintf("tool %q must be run by the host of an agent, and this server is not an agent's host", t.Info().Name)), nil
	}
	if rpcErr := r.checkHeaders(ctx, t.Info(), p.Name); rpcErr != nil {
		return nil, rpcErr
	}
	judgement, refused := r.permit(ctx, t, args.JSON, p)
	if refused != nil {
		return refused, nil
	}
	if refused := r.takeRateTokens(ctx, t.Info().Name); refused != nil {
		return refused, nil
	}
	res, err := r.run(ctx, t, tool.Call{ID: strings.Trim(string(r.msg.ID), `"`), Name: t.Info().Name, Input: args.JSON, Judge: r.judgeChanged, Judgement: judgement})
	r.rec.recordResult(res)
	if err != nil {
		return failure(err.Error()), nil
	}
	if res.Outcome == message.OutcomeSuccess {
		v.Advance(t.Info().Name) // to the phase that follows the tool
	}
	if err := r.revision.afterCall(ctx, r); err != nil { // notifies the client of lists that the call has changed
		return nil, err
	}
	return r.result(res), nil
}

// permit asks the permission engine about a call. It returns the judgement if the call may run; otherwise it
// returns the result to send, which says why not or asks the client for input.
func (r *request) permit(ctx context.Context, t tool.Tool, input json.RawMessage, p *callParams) (*permission.Judgement, object) {
	policy, call := r.policy(), tool.PermissionCall(t, input)
	d := permission.Decide(policy, call)
	r.rec.Tool, r.rec.Input = call.Tool, call.Input
	r.rec.recordDecision(d)
	switch d.Behavior {
	case permission.Allow:
		return &d.Judgement, nil
	case permission.Ask:
		preview, err := tool.Preview(ctx, t, input)
		if err != nil {
			return nil, failure(err.Error())
		}
		if refused := r.revision.askAbout(ctx, r, pendingCall{p, call, preview, d}); refused != nil {
			return nil, refused
		}
		return &d.Judgement, nil
	default:
		return nil, failure(denial.Denied(call.Tool, d.Reason))
	}
}

// judgeChanged asks the permission engine about a call that middleware has changed. The user is not asked again, so a
// changed call only runs if it is allowed without asking.
func (r *request) judgeChanged(_ context.Context, t tool.Tool, c tool.Call) (*permission.Judgement, error) {
	d := permission.Decide(r.policy(), tool.PermissionCall(t, c.Input))
	if d.Behavior != permission.Allow {
		return nil, errors.New(d.Reason)
	}
	return &d.Judgement, nil
}

// run runs an allowed call. It reports progress, texts for the user, and the chunks of a block with an id, which grows with
// each chunk, so that a host can show the output of a command while it runs. The result has all content, so the last chunk
// of a growing block is not reported.
func (r *request) run(ctx context.Context, t tool.Tool, call tool.Call) (*message.ToolResult, error) {
	defer r.startTaskTimer(t, call.Input)()
	results, report := tool.NewCollector(call), r.reporter(call.Name)
	var unreported *tool.Chunk // the latest chunk of a growing block
	for chunk, err := range tool.Run(ctx, t, call, r.cat.cfg.Middleware...) {
		if err != nil {
			return nil, err
		}
		results.Add(chunk)
		if unreported != nil {
			if err := report(unreported); err != nil {
				return nil, err
			}
			unreported = nil
		}
		if chunk.ForUser || chunk.Progress != nil {
			if err := report(&chunk); err != nil {
				return nil, err
			}
		} else if chunk.Block != nil && chunk.Block.BlockID() != "" {
			unreported = &chunk
		}
	}
	return results.Result(), nil
}

const (
	maxReports    = 1000    // of a call, by progress and log notifications
	maxReportText = 4 << 10 // in bytes
)

// reporter returns a function that reports a chunk to the client: as progress if the call has a progress token,
// and otherwise as a log message if the chunk is for the user.
func (r *request) reporter(name string) func(*tool.Chunk) error {
	if !r.out.Streams() {
		return func(*tool.Chunk) error { return nil }
	}
	reports := 0
	done := 0.0 // the progress that was last sent; MCP requires that it increases
	return func(chunk *tool.Chunk) error {
		text, isText := chunk.Block.(*message.Text)
		if !isText && chunk.Progress == nil || reports == maxReports {
			return nil
		}
		line := ""
		if isText {
			line = cut(strings.TrimRight(text.Text, "\n"), maxReportText)
		}
		token := r.progressToken()
		switch p := chunk.Progress; {
		case token != nil && p != nil:
			if p.Done <= done {
				return nil
			}
			done = p.Done
			params := object{"progressToken": token, "progress": done}
			if p.Message != "" {
				params["message"] = p.Message
			}
			if p.Total > 0 {
				params["total"] = p.Total
			}
			reports++
			return r.out.Send(rpc.Notification(string(mcp.MethodNotificationProgress), params))
		case token != nil: // without a log message, or the user would see the text twice
			done++
			reports++
			return r.out.Send(rpc.Notification(string(mcp.MethodNotificationProgress), object{"progressToken": token, "progress": done, "message": line}))
		case chunk.ForUser && line != "" && r.wantsLog(mcp.LoggingLevelInfo):
			reports++
			return r.out.Send(rpc.Notification(string(mcp.MethodNotificationMessage), object{"level": mcp.LoggingLevelInfo, "logger": name, "data": line}))
		}
		return nil
	}
}
