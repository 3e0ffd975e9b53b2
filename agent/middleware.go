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

// A Middleware wraps what an agent does at any of these levels. Each is a function that gets the next one and
// returns another; nil leaves the level unchanged. The first in [Config.Middleware] is the outermost.
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

// The levels.
type (
	// RunFunc is [Agent.Run].
	RunFunc func(context.Context, *State, ...Input) iter.Seq2[event.Event, error]

	// StepFunc makes a model call and the tool calls of its answer, or the rest of an
	// interrupted step. It also returns nil if the run then waits.
	StepFunc func(context.Context) error

	// JudgeFunc decides about a tool call. It may be stricter than the next; one that is more permissive overrides
	// the policy. With sub-agents ([AsTool]) it is called concurrently.
	JudgeFunc func(context.Context, *permission.Policy, *permission.Call) permission.Decision

	// SummaryFunc asks the model for a summary of the conversation, with a request that ends with the prompt for it.
	SummaryFunc func(context.Context, *model.Request) (string, error)

	// InstructionsFunc returns the system prompt. It is called before each model
	// call; a prompt that changes invalidates the provider's cache.
	InstructionsFunc func(context.Context) string
)

// wrap composes the functions of one level around the innermost.
func wrap[F any](mws []Middleware, inner F, level func(Middleware) func(F) F) F {
	for _, m := range slices.Backward(mws) {
		if w := level(m); w != nil {
			inner = w(inner)
		}
	}
	return inner
}
