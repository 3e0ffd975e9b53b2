package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session/internal/killed"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The kinds of child processes that die during a call, after its effect.
const (
	kindPay    = "pay"    // during a call that is idempotent
	kindPrint  = "print"  // during a call that is not
	kindBehind = "behind" // during a call in the background
)

// behind is a tool whose calls move to the background at once.
type behind struct{ tool.Tool }

func (behind) Background(json.RawMessage) time.Duration { return 0 }
func (b behind) Unwrap() tool.Tool                      { return b.Tool }

// payment makes two calls, one after the other, or one in the background. Each writes a line with its
// idempotency key. The answer is the outcomes. The process dies during a call until there are more than dies
// lines.
func payment(dir, kind string, dies int) error {
	moved, once := make(chan struct{}), sync.Once{} // closed when the save has the call in the background
	pay := tool.Must(tool.New(kind, "Leaves a line.", func(ctx context.Context, in numberIn) (string, error) {
		if kind == kindBehind {
			<-moved
		}
		f, err := os.OpenFile(effectsFile(dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if _, err := fmt.Fprintf(f, "%d:%s\n", in.N, tool.CallFrom(ctx).Key); err != nil {
			return "", err
		}
		if len(effects(dir)) <= dies {
			killed.Now()
		}
		return "ok", nil
	}, tool.Options{Idempotent: kind == kindPay}))
	if kind == kindBehind {
		pay = behind{pay}
	}
	next := func(req *model.Request) (scripted.Turn, error) {
		var ends []string
		for _, m := range req.Messages {
			for _, b := range m.Blocks {
				if h, ok := b.(*message.Hint); ok {
					_, outcome, _ := strings.Cut(h.Text, "has ended (")
					outcome, _, _ = strings.Cut(outcome, ")")
					if outcome == string(message.OutcomeInterrupted) && strings.Contains(h.Text, "Outcome unknown") {
						outcome = "unknown"
					}
					ends = append(ends, outcome)
				}
			}
			for _, res := range m.ToolResults() {
				if kind == kindBehind {
					ends = append(ends, "left")
					continue
				}
				ends = append(ends, string(res.Outcome))
				if res.Outcome == message.OutcomeInterrupted && !strings.HasPrefix(res.Text(), "Outcome unknown") {
					return scripted.Turn{}, fmt.Errorf("unexpected result %q", res.Text())
				}
			}
		}
		if n := len(ends); n == 0 || n < 2 && kind != kindBehind {
			return scripted.Call(kind, numberIn{n + 1}), nil
		}
		return scripted.Say(strings.Join(ends, " ")), nil
	}
	s, err := openJourney(dir, "dir")
	if err != nil {
		return err
	}
	defer s.Close()
	save := func(ctx context.Context, st *agent.State) error {
		err := s.Save(ctx, st)
		data, _ := json.Marshal(st)
		if bytes.Contains(data, []byte(`"away":`)) {
			once.Do(func() { close(moved) })
		}
		return err
	}
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Repeat(scripted.Func(next))), Toolkit: toolkit.Of(pay),
		Policy: permission.Policy{Mode: permission.ModeBypass}, Background: time.Hour, Save: save})
	if err != nil {
		return err
	}
	answer, err := finish(context.Background(), a, s.State)
	fmt.Println(answer)
	return err
}

// TestKillInACall kills processes during a call that has already had its effect.
// An idempotent call is repeated once, with the same key; any other is not repeated, and its
// result is that the outcome is unknown.
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
		{kindBehind, 0, "1", "left success"},
		{kindBehind, 1, "1", "left unknown"},
	} {
		t.Run(fmt.Sprintf("%s, %d die", row.kind, row.dies), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			deaths := 0
			answer, died := process(t, dir, row.kind, row.dies)
			for ; died; deaths++ {
				answer, died = process(t, dir, row.kind, row.dies)
			}
			if deaths != row.dies || answer != row.answer {
				t.Errorf("%d processes died, the answer is %q; want %d, %q", deaths, answer, row.dies, row.answer)
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
