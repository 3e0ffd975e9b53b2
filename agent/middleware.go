package agent

import (
	"context"
	"iter"
	"slices"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// A Middleware wraps what an agent does at several levels. Each field is a function that gets what it wraps, next, and
// returns the wrapped form; nil leaves the level unchanged. The first Middleware in [Config.Middleware] is the outermost.
//
// The context that Run passes on reaches the steps, and the context of Step the model and tool calls.
//
// Packages agentlog and agentotel have middleware that logs and traces. Budgets are not middleware but [Limits],
// and secrets are removed by [Config.Redact]: both must apply to what no middleware sees, such as a save.
type Middleware struct {
	Run          func(next RunFunc) RunFunc
	Step         func(next StepFunc) StepFunc
	Model        func(next model.Model) model.Model
	Tool         tool.Middleware
	Judge        func(next JudgeFunc) JudgeFunc
	Summary      func(next SummaryFunc) SummaryFunc
	Instructions func(next InstructionsFunc) InstructionsFunc
}

// The levels that have a type of their own here.
type (
	// RunFunc is [Agent.Run].
	RunFunc func(context.Context, *State, ...Input) iter.Seq2[event.Event, error]

	// StepFunc makes a model call and the tool calls of its answer, or the rest of an
	// interrupted step. It also returns nil if the run then waits.
	StepFunc func(context.Context) error

	// JudgeFunc decides about a tool call. A wrapper may be stricter than the policy; a more permissive wrapper overrides
	// the policy. With sub-agents ([AsTool]) it is called concurrently.
	JudgeFunc func(context.Context, *permission.Policy, *permission.Call) permission.Decision

	// SummaryFunc asks the model for a summary of the conversation, with a request that ends with the prompt for it.
	SummaryFunc func(context.Context, *model.Request) (string, error)

	// InstructionsFunc returns the system prompt. It is called before each model
	// call; a prompt that changes invalidates the provider's cache.
	InstructionsFunc func(context.Context) string
)

// wrap wraps inner in the functions of one level, which level returns.
func wrap[F any](mws []Middleware, inner F, level func(Middleware) func(F) F) F {
	for _, m := range slices.Backward(mws) {
		if w := level(m); w != nil {
			inner = w(inner)
		}
	}
	return inner
}
