package agent

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// paced is a model that waits before each chunk and before the error of a broken turn.
type paced struct {
	*turnModel
	pace    time.Duration
	writing atomic.Bool
}

func (p *paced) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		p.writing.Store(true)
		defer p.writing.Store(false)
		for ch, err := range p.turnModel.Generate(ctx, req) {
			select {
			case <-time.After(p.pace):
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
			if !yield(ch, err) {
				return
			}
		}
	}
}

// whole returns a turn of calls, each in a single delta.
func whole(specs ...string) turn {
	var tn turn
	for i, s := range specs {
		f := strings.SplitN(s, " ", 3)
		tn.chunks = append(tn.chunks, &model.ToolCallDelta{Index: i, ID: f[0], Name: f[1], Args: f[2]})
	}
	tn.chunks = append(tn.chunks, finish(model.FinishToolCalls))
	return tn
}

// A clock records events with the milliseconds since its start.
type clock struct {
	mu    sync.Mutex
	began time.Time
	notes []string
}

func newClock() *clock { return &clock{began: time.Now()} }

func (c *clock) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Since(c.began)
	c.notes = append(c.notes, fmt.Sprintf("%v %s", at.Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

func (c *clock) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	notes := slices.Clone(c.notes)
	slices.SortStableFunc(notes, func(a, b string) int { // events at the same time have no order
		x, _ := time.ParseDuration(strings.Fields(a)[0])
		y, _ := time.ParseDuration(strings.Fields(b)[0])
		if x != y {
			return int(x - y)
		}
		return strings.Compare(a, b)
	})
	return strings.Join(notes, ", ")
}

// timed returns a tool whose path is its duration. It records its end.
func timed(c *clock, name string, o tool.Options) tool.Tool {
	return tool.Must(tool.New(name, "Takes a while.", func(ctx context.Context, in pathArg) (string, error) {
		d, err := time.ParseDuration(in.Path)
		if err != nil {
			return "", err
		}
		select {
		case <-time.After(d):
			c.note("%s %s", name, in.Path)
			return "took " + in.Path, nil
		case <-ctx.Done():
			c.note("%s %s stopped", name, in.Path)
			return "", ctx.Err()
		}
	}, o))
}

var reads = tool.Options{ReadOnly: true, Parallel: true}

// TestEagerTime has a model write a call every 10 ms, and checks when each call and the answer end.
func TestEagerTime(t *testing.T) {
	answer := func(n int, first string) turn {
		specs := []string{fmt.Sprintf(`c0 read {"path":"%s"}`, first)}
		for i := 1; i < n; i++ {
			specs = append(specs, fmt.Sprintf(`c%d read {"path":"5ms"}`, i))
		}
		return whole(specs...)
	}
	for _, row := range []struct {
		why   string
		eager bool
		most  int
		turn  turn
		want  string
	}{
		{"one call", true, 0, answer(1, "5ms"), "15ms read 5ms, 20ms finish"},
		{"one call, not eager", false, 0, answer(1, "5ms"), "20ms finish, 25ms read 5ms"},
		{"each as it comes", true, 0, answer(3, "5ms"), "15ms read 5ms, 25ms read 5ms, 35ms read 5ms, 40ms finish"},
		{"not eager", false, 0, answer(3, "5ms"), "40ms finish, 45ms read 5ms, 45ms read 5ms, 45ms read 5ms"},
		{"with a slow one", true, 0, answer(3, "35ms"), "25ms read 5ms, 35ms read 5ms, 40ms finish, 45ms read 35ms"},
		{"at most one at a time", true, 1, answer(3, "15ms"), "25ms read 15ms, 35ms read 5ms, 40ms finish, 45ms read 5ms"},
		{"at most two at a time", true, 2, answer(4, "100ms"), "25ms read 5ms, 35ms read 5ms, 45ms read 5ms, 50ms finish, 110ms read 100ms"},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClock()
				a, w := newAgent(t, Config{Policy: bypass, Eager: row.eager, MaxParallel: row.most, Toolkit: toolkit.Of(timed(c, "read", reads))}, row.turn, says("done"))
				a.model = &paced{turnModel: w, pace: 10 * time.Millisecond}
				var st State
				finished := false
				for ev, err := range a.Run(t.Context(), &st, Say("go")) {
					if err != nil {
						t.Fatal(err)
					}
					if m, ok := ev.(*event.Message); ok && m.Finish != "" && !finished {
						finished = true
						c.note("finish")
					}
				}
				checkState(t, &st)
				equal(t, "times", c.String(), row.want)
			})
		})
	}
}

// sometimes is a tool whose calls are read-only if their path contains "read".
type sometimes struct{ tool.Tool }

func (sometimes) Judge(c *permission.Call) { c.ReadOnly = strings.Contains(string(c.Input), "read") }
func (s sometimes) Unwrap() tool.Tool      { return s.Tool }

// claims is a tool that falsely claims to be read-only.
type claims struct{ tool.Tool }

func (c claims) Unwrap() tool.Tool { return c.Tool }

func (c claims) Info() tool.Info {
	info := c.Tool.Info()
	info.ReadOnly = true
	return info
}

// many returns a toolkit with tools that may or may not start early.
func many(t *testing.T, j *journal) *toolkit.Toolkit {
	t.Helper()
	sub, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(j, "inner", reads))}, whole(`s1 inner {"path":"x"}`), says("helped"))
	helper, err := AsTool[string, string](sub, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	list := tool.Must(tool.New("list", "Lists.", func(context.Context, struct {
		All *bool `json:"all,omitempty"`
	}) (string, error) {
		j.add("list")
		return "", nil
	}, reads))
	tools := []tool.Tool{
		noting(j, "read", reads), list,
		noting(j, "read_alone", tool.Options{ReadOnly: true}),
		noting(j, "read_asked", reads),
		noting(j, "read_denied", reads),
		noting(j, "write", tool.Options{Parallel: true}),
		noting(j, "steer", tool.Options{ReadOnly: true, Parallel: true, Control: true}),
		external{noting(j, "outside", reads)},
		sometimes{noting(j, "either", tool.Options{Parallel: true})},
		claims{helper},
	}
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: tools},
		Groups:  []toolkit.Group{{Name: "more", Description: "More.", Tools: []tool.Tool{noting(j, "hidden", reads)}}},
		Control: toolkit.ResetTools(nil)})
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

// someAsked allows everything except read_asked and read_denied.
var someAsked = permission.Policy{Rules: []permission.Rule{{Tool: "*", Behavior: permission.Allow},
	{Tool: "read_asked", Behavior: permission.Ask}, {Tool: "read_denied", Behavior: permission.Deny}}}

// sorted sorts words, because calls that start at the same time have no order.
func sorted(s string) string {
	words := strings.Fields(s)
	slices.Sort(words)
	return strings.Join(words, " ")
}

// TestEagerStarts checks which calls start before the answer is complete.
func TestEagerStarts(t *testing.T) {
	piece := func(i int, id, name, args string) model.Chunk {
		return &model.ToolCallDelta{Index: i, ID: id, Name: name, Args: args}
	}
	pieces := func(chunks ...model.Chunk) turn { return turn{chunks: append(chunks, finish(model.FinishToolCalls))} }
	read := `c0 read {"path":"a"}`
	strict := Middleware{Judge: func(next JudgeFunc) JudgeFunc {
		return func(context.Context, *permission.Policy, *permission.Call) permission.Decision {
			return permission.Decision{Behavior: permission.Deny, Reason: "no"}
		}
	}}
	for _, row := range []struct {
		why  string
		cfg  Config
		turn turn
		want string // what has started before the end of the answer
	}{
		{"reads that may run together", Config{}, whole(read, `c1 read {"path":"b"}`), "read:a read:b"},
		{"a call that only reads this time", Config{}, whole(`c0 either {"path":"read"}`, read), "either:read read:a"},
		{"after a call that writes this time", Config{}, whole(`c0 either {"path":"x"}`, read), ""},
		{"one that writes", Config{}, whole(`c0 write {"path":"a"}`), ""},
		{"after one that writes", Config{}, whole(`c0 write {"path":"a"}`, read), ""},
		{"before one that writes", Config{}, whole(read, `c1 write {"path":"b"}`, `c2 read {"path":"c"}`), "read:a"},
		{"after one that runs alone", Config{}, whole(`c0 read_alone {"path":"a"}`, read), ""},
		{"after one that needs approval", Config{}, whole(`c0 read_asked {"path":"a"}`, read), ""},
		{"after one that Approve answers", Config{Approve: func(context.Context, event.Approval) (event.Confirm, error) {
			return event.Confirm{Allow: true}, nil
		}}, whole(`c0 read_asked {"path":"a"}`, read), ""},
		{"after one that is denied", Config{}, whole(`c0 read_denied {"path":"a"}`, read), ""},
		{"a middleware that allows nothing", Config{Middleware: []Middleware{strict}}, whole(read), ""},
		{"after a control tool", Config{}, whole(`c0 steer {"path":"a"}`, read), ""},
		{"after one that opens a group", Config{}, whole(`c0 reset_tools {"more":true}`, read), ""},
		{"after one that the host runs", Config{}, whole(`c0 outside {"path":"a"}`, read), ""},
		{"after a sub-agent that claims to be read-only", Config{}, whole(`c0 helper {"task":"x"}`, read), ""},
		{"after one of a closed group", Config{}, whole(`c0 hidden {"path":"a"}`, read), ""},
		{"after one that does not exist", Config{}, whole(`c0 nothing {"path":"a"}`, read), ""},
		{"after invalid arguments", Config{}, whole(`c0 read {"road":"a"}`, read), ""},
		{"after arguments that need repair", Config{}, whole(`c0 read {"path":"x",}`, read), ""},
		{"after arguments of another type, which are converted", Config{}, whole(`c0 list {"all":"true"}`, read), ""},
		{"a bare value, which may continue", Config{}, whole(`c0 read "a"`, read), ""},
		{"no arguments, until something follows", Config{}, whole(`c0 list {}`), ""},
		{"no arguments, and something follows", Config{}, whole(`c0 list {}`, read), "list read:a"},
		{"in pieces", Config{}, pieces(piece(0, "c0", "read", ""), piece(0, "", "", `{"pa`), piece(0, "", "", "th\":\"{a}\"}\n")), "read:{a}"},
		{"cut off", Config{}, pieces(piece(0, "c0", "read", `{"path":"a"`)), ""},
		{"interleaved", Config{}, pieces(piece(0, "c0", "read", `{"path":`), piece(1, "c1", "read", `{"path":"b"}`), piece(0, "", "", `"a"}`)), "read:a read:b"},
		{"the name comes last", Config{}, pieces(piece(0, "c0", "", `{"path":"a"}`), piece(0, "", "read", "")), "read:a"},
		{"followed by text", Config{}, pieces(piece(0, "c0", "list", `{}`), &model.TextDelta{Text: "I list."}), "list"},
		{"the limit of calls", Config{Limits: Limits{ToolCalls: 1}}, whole(read, `c1 read {"path":"b"}`), "read:a"},
		{"MaxParallel", Config{MaxParallel: 1}, whole(read, `c1 read {"path":"b"}`, `c2 read {"path":"c"}`), "read:a read:b read:c"},
		{"with calls that may go to the background", Config{Background: time.Minute}, whole(read), "read:a"},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				row.cfg.Eager, row.cfg.Toolkit = true, many(t, &j)
				if row.cfg.Policy.Rules == nil {
					row.cfg.Policy = someAsked
				}
				a, w := newAgent(t, row.cfg, row.turn, says("done"))
				a.model = &paced{turnModel: w, pace: time.Millisecond}
				st, early := new(State), "?"
				for ev, err := range a.Run(t.Context(), st, Say("go")) {
					if err != nil {
						t.Fatal(err)
					}
					if m, ok := ev.(*event.Message); ok && m.Finish != "" && early == "?" {
						early = sorted(j.String())
					}
				}
				equal(t, "started early", early, sorted(row.want))
				checkState(t, st)
			})
		})
	}
}
