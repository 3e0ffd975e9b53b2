package builtin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call validates the arguments and runs t, like an agent.
func call(ctx context.Context, t tool.Tool, args string) *message.ToolResult {
	c := tool.Call{ID: "c", Name: t.Info().Name}
	col := tool.NewCollector(c)
	checked, err := tool.Arguments(t, json.RawMessage(args))
	if err != nil {
		col.Add(tool.Failure(err.Error()))
		return col.Result()
	}
	c.Input = checked.JSON
	for ch, err := range tool.Run(ctx, t, c) {
		if err != nil {
			res := col.Result()
			res.Outcome = message.OutcomeInterrupted
			return res
		}
		col.Add(ch)
	}
	return col.Result()
}

// args encodes a tool's input.
func args(kv ...any) string {
	m := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i].(string)] = kv[i+1]
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// files writes files below a new directory, and returns the directory with links resolved.
func files(t testing.TB, content map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func want(t *testing.T, got *message.ToolResult, outcome message.Outcome, text string) {
	t.Helper()
	if got.Outcome != outcome || !strings.Contains(got.Text(), text) {
		t.Errorf("%s: %.300q; want %s with %.300q", got.Outcome, got.Text(), outcome, text)
	}
}

// A recording is a backend that records the last command instead of running it.
type recording struct {
	Local
	last Command
}

func (r *recording) Run(_ context.Context, c Command) (Exit, error) {
	r.last = c
	return Exit{}, nil
}
