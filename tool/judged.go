package tool

import (
	"context"
	"fmt"
	"iter"

	"github.com/kitbag-go/kitbag/permission"
)

// JudgementFrom returns the judgement of the call that ctx belongs to, or nil. A function
// that runs a command or opens files uses those of the judgement, not its arguments.
func JudgementFrom(ctx context.Context) *permission.Judgement {
	c, _ := ctx.Value(callKey{}).(*callFacts)
	if c == nil {
		return nil
	}
	return c.judgement
}

// callFacts is what the context of a function has about its call.
type callFacts struct {
	key       string
	judgement *permission.Judgement
}

type callKey struct{}

// withCall returns ctx for the function that is called.
func withCall(ctx context.Context, call *Call) context.Context {
	if call.Key == "" && call.Judgement == nil {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, &callFacts{call.Key, call.Judgement})
}

// judged returns the call with a Judgement of its very arguments, or without one if there
// is neither Judgement nor Judge. Run calls it right before the tool, after all middleware.
func (c Call) judged(ctx context.Context, t Tool) (Call, error) {
	switch {
	case c.Judgement == nil && c.Judge == nil, c.Judgement.Covers(c.Name, c.Input):
		return c, nil
	case c.Judge == nil:
		return c, fmt.Errorf("not run: the name or arguments of this call of %s were changed after it was allowed; make the call again with the intended arguments", c.Name)
	}
	j, err := c.Judge(ctx, t, c)
	if err != nil {
		return c, fmt.Errorf("not run: the arguments of this call of %s were changed after it was allowed: %w", c.Name, err)
	}
	if !j.Covers(c.Name, c.Input) {
		return c, fmt.Errorf("not run: Call.Judge returned no judgement about this call of %s", c.Name)
	}
	c.Judgement = j
	return c, nil
}

// keeping returns next with the Judgement and Judge of the call restored, for the end of a
// chain: middleware that makes a new Call may have left them out.
func keeping(original Call, next Handler) Handler {
	if original.Judgement == nil && original.Judge == nil {
		return next
	}
	judgement, decide := original.Judgement, original.Judge
	return func(ctx context.Context, t Tool, call Call) iter.Seq2[Chunk, error] {
		if call.Judgement == nil {
			call.Judgement = judgement
		}
		if call.Judge == nil {
			call.Judge = decide
		}
		return next(ctx, t, call)
	}
}
