package tool

import (
	"context"
	"fmt"
	"iter"

	"github.com/kitbag-go/kitbag/permission"
)

// JudgementFrom returns what was decided about the call that ctx belongs to, nil if nobody
// decided. A function that runs a text or opens files takes them from there.
func JudgementFrom(ctx context.Context) *permission.Judgement {
	c, _ := ctx.Value(callKey{}).(*callFacts)
	if c == nil {
		return nil
	}
	return c.judgement
}

// callFacts is what the context of a function says of its call.
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

// judged returns call as it may run: with a Judgement that is about these very arguments,
// or without one if nobody decides here. Run asks right before the tool, so that nothing
// comes between.
func (c Call) judged(ctx context.Context, t Tool) (Call, error) {
	switch {
	case c.Judgement == nil && c.Judge == nil, c.Judgement.Covers(c.Name, c.Input):
		return c, nil
	case c.Judge == nil:
		return c, fmt.Errorf("not run: this call of %s is not the one that was allowed: its name or arguments were changed since; make the call with the arguments that are meant", c.Name)
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

// keeping returns a handler for the end of a chain: next with the Judgement of the call, which
// middleware that makes a new Call may have left out.
func keeping(judgement *permission.Judgement, judge JudgeFunc, next Handler) Handler {
	if judgement == nil && judge == nil {
		return next
	}
	return func(ctx context.Context, t Tool, call Call) iter.Seq2[Chunk, error] {
		if call.Judgement == nil {
			call.Judgement = judgement
		}
		if call.Judge == nil {
			call.Judge = judge
		}
		return next(ctx, t, call)
	}
}
