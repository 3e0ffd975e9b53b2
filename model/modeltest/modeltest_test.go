package modeltest

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbag-go/kitbag/model"
)

// A script is a model that does what the function does.
type script func(ctx context.Context, req *model.Request, yield func(model.Chunk, error) bool)

func (f script) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) { f(ctx, req, yield) }
}

// yields is a model that answers with these chunks.
func yields(chunks ...model.Chunk) script {
	return func(ctx context.Context, _ *model.Request, yield func(model.Chunk, error) bool) {
		for _, chunk := range chunks {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			if !yield(chunk, nil) {
				return
			}
		}
	}
}

// TestRunFinds has models each of which breaks a rule.
func TestRunFinds(t *testing.T) {
	hello, stop := &model.TextDelta{Text: "Hello"}, &model.Finish{Reason: model.FinishStop}
	good := yields(hello, &model.ToolCallDelta{ID: "a", Name: "x"}, &model.ToolCallDelta{Args: "{}"}, stop)
	plain := script(func(_ context.Context, _ *model.Request, yield func(model.Chunk, error) bool) {
		yield(nil, errors.New("broken"))
	})
	var first sync.Once // prevents a report of the race detector
	rows := []struct {
		want    string // no fault if it is empty
		model   model.Model
		options Options
	}{
		{"", good, Options{}},
		{"did not end with a Finish", yields(hello), Options{}},
		{"did not end with a Finish", yields(), Options{}},
		{"the Finish is chunk 0 of 2", yields(stop, hello), Options{}},
		{"the Finish is chunk 0 of 2", yields(stop, stop), Options{}},
		{"no Reason", yields(hello, &model.Finish{}), Options{}},
		{"neither a chunk nor an error", yields(nil, stop), Options{}},
		{"call 0 of the answer has the Index 1", yields(&model.ToolCallDelta{Index: 1, Name: "x"}, stop), Options{}},
		{"call 0 has no Name", yields(&model.ToolCallDelta{ID: "a"}, stop), Options{}},
		{"an ID or a Name twice", yields(&model.ToolCallDelta{Name: "x"}, &model.ToolCallDelta{Name: "y"}, stop), Options{}},
		{"came with the error", script(func(_ context.Context, _ *model.Request, yield func(model.Chunk, error) bool) {
			yield(hello, errors.New("both"))
		}), Options{}},
		{"came after the error", script(func(_ context.Context, _ *model.Request, yield func(model.Chunk, error) bool) {
			_, _ = yield(nil, errors.New("first")), yield(hello, nil)
		}), Options{}},
		{"came after the consumer had stopped", script(func(_ context.Context, _ *model.Request, yield func(model.Chunk, error) bool) {
			_, _ = yield(hello, nil), yield(stop, nil)
		}), Options{}},
		{"was changed after it was yielded", script(func(_ context.Context, _ *model.Request, yield func(model.Chunk, error) bool) {
			d := &model.TextDelta{}
			for _, d.Text = range []string{"a", "b"} {
				if !yield(d, nil) {
					return
				}
			}
			yield(stop, nil)
		}), Options{}},
		{"the request was changed", script(func(ctx context.Context, req *model.Request, yield func(model.Chunk, error) bool) {
			first.Do(func() { req.MaxTokens++ })
			good(ctx, req, yield)
		}), Options{}},
		{"cancelled after 0 chunks ended", script(func(ctx context.Context, req *model.Request, yield func(model.Chunk, error) bool) {
			if ctx.Err() == nil {
				good(ctx, req, yield)
			}
		}), Options{}},
		{"want a *model.Error with a Kind", good, Options{Fails: plain}},
		{"want a *model.Error with a Kind", good, Options{Fails: good}},
		{"want the context's error", good, Options{Hangs: script(func(ctx context.Context, _ *model.Request, yield func(model.Chunk, error) bool) {
			<-ctx.Done()
			yield(nil, &model.Error{Kind: model.KindConnection})
		})}},
	}
	for _, row := range rows {
		errs := check(t.Context(), row.model, row.options)
		if row.want == "" && len(errs) > 0 || row.want != "" && !strings.Contains(errors.Join(errs...).Error(), row.want) {
			t.Errorf("the faults are %v; want %q", errs, row.want)
		}
	}
	var differs atomic.Int64
	if errs := check(t.Context(), script(func(ctx context.Context, req *model.Request, yield func(model.Chunk, error) bool) {
		yields(&model.TextDelta{Text: strings.Repeat("x", int(differs.Add(1)))}, stop)(ctx, req, yield)
	}), Options{}); !strings.Contains(errors.Join(errs...).Error(), "for the chunks of the other") {
		t.Errorf("an answer that differs: %v", errs)
	}
}
