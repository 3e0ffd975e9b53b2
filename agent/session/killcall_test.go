package session_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The kinds of child processes that die within a call, after its effect.
const (
	kindPay   = "pay"   // of a tool whose calls are idempotent
	kindPrint = "print" // of one whose calls are not
)

// payment makes two calls, one after the other, that each leave a line with their
// idempotency key. A process dies in a call as long as there are no more than dies
// lines.
func payment(dir, kind string, dies int) error {
	pay := tool.Must(tool.New(kind, "Leaves a line.", func(ctx context.Context, in numberIn) (string, error) {
		f, err := os.OpenFile(effectsFile(dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if _, err := fmt.Fprintf(f, "%d:%s\n", in.N, tool.IdempotencyKey(ctx)); err != nil {
			return "", err
		}
		if len(effects(dir)) <= dies {
			die()
		}
		return "ok", nil
	}, tool.Options{Idempotent: kind == kindPay}))
	next := func(req *model.Request) (scripted.Turn, error) {
		var ends []string
		for _, m := range req.Messages {
			for _, res := range m.ToolResults() {
				ends = append(ends, string(res.Outcome))
				if res.Outcome == message.OutcomeInterrupted && !strings.HasPrefix(res.Text(), "Outcome unknown") {
					return scripted.Turn{}, fmt.Errorf("the model is told %q", res.Text())
				}
			}
		}
		if n := len(ends); n < 2 {
			return scripted.Call(kind, numberIn{n + 1}), nil
		}
		return scripted.Say(strings.Join(ends, " ")), nil
	}
	s, err := openJourney(dir, "dir")
	if err != nil {
		return err
	}
	defer s.Close()
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Repeat(scripted.Func(next))), Toolkit: toolkit.Of(pay),
		Policy: permission.Policy{Mode: permission.Bypass}, Save: s.Save})
	if err != nil {
		return err
	}
	answer, err := travel(context.Background(), a, s.State)
	fmt.Println(answer)
	return err
}

// TestKillInACall kills processes within a call that has had its effect already.
// Where the tool has said that this does no harm the call is made once more, with
// the same key; else the model is told that nobody knows, and the call is not
// made again.
func TestKillInACall(t *testing.T) {
	for _, row := range []struct {
		kind   string
		dies   int
		lines  string // the numbers of the calls; a letter for each key, if there is one
		answer string
	}{
		{kindPay, 0, "1a 2b", "success success"},
		{kindPay, 1, "1a 1a 2b", "success success"},
		{kindPay, 2, "1a 1a 2b", "interrupted success"},
		{kindPrint, 1, "1 2", "interrupted success"},
		{kindPrint, 2, "1 2", "interrupted interrupted"},
	} {
		t.Run(fmt.Sprintf("%s, %d die", row.kind, row.dies), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			killed := 0
			answer, died := process(t, dir, row.kind, row.dies)
			for ; died; killed++ {
				answer, died = process(t, dir, row.kind, row.dies)
			}
			if killed != row.dies || answer != row.answer {
				t.Errorf("%d processes died, the answer is %q; want %d, %q", killed, answer, row.dies, row.answer)
			}
			var lines []string
			keys := map[string]string{"": ""}
			for _, line := range effects(dir) {
				n, key, _ := strings.Cut(line, ":")
				if _, known := keys[key]; !known {
					keys[key] = string(rune('a' + len(keys) - 1))
				}
				lines = append(lines, n+keys[key])
			}
			if got := strings.Join(lines, " "); got != row.lines {
				t.Errorf("the effects are %q, want %q", got, row.lines)
			}
		})
	}
}
