package tool

import (
	"context"
	"fmt"
	"iter"
)

// CallFrom returns the call for which ctx was made, with its validated Input; the zero Call if there is none. A function
// that runs a command or opens files should take them from the Judgement, not from its arguments: only what was judged
// is allowed. A function that calls a service should pass the Key on, so that a call that is repeated after a crash takes
// effect once.
func CallFrom(ctx context.Context) Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return *c
	}
	return Call{}
}

type callKey struct{}

// judgeIfChanged returns the call with a Judgement of its Name and Input: if middleware has changed them, Judge makes a
// new Judgement. A call with neither Judgement nor Judge stays as it is. callIsolated calls judgeIfChanged right before
// the tool.
func (c Call) judgeIfChanged(ctx context.Context, t Tool) (Call, error) {
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

// withJudgement returns a handler that restores the Judgement and Judge of the original call and calls next. It is for
// the end of a chain: middleware that makes a new Call may have omitted the two.
func withJudgement(original Call, next Handler) Handler {
	if original.Judgement == nil && original.Judge == nil {
		return next
	}
	return func(ctx context.Context, t Tool, call Call) iter.Seq2[Chunk, error] {
		if call.Judgement == nil {
			call.Judgement = original.Judgement
		}
		if call.Judge == nil {
			call.Judge = original.Judge
		}
		return next(ctx, t, call)
	}
}
