package tool

import (
	"context"
	"fmt"
	"iter"
)

// CallFrom returns the call for which ctx was made, with its validated Input; the zero Call if there is none. A
// function that runs a command or opens files should use the command and files in the Judgement, not its arguments. A
// function that calls a service should pass the Key on, so that a call that is repeated after a crash takes effect once.
func CallFrom(ctx context.Context) Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return *c
	}
	return Call{}
}

type callKey struct{}

// judged returns the call with a Judgement of exactly these arguments, or without one if there is neither
// Judgement nor Judge. Run calls it right before the tool, after all middleware.
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

// withJudgement returns next with the Judgement and Judge of the call restored, for the end of a chain: middleware that
// makes a new Call may have omitted them.
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
