package agent

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// paced is a model that streams slowly: each piece, and the error of a broken
// turn, comes a pace after the one before.
type paced struct {
	*words
	pace time.Duration
}

func (p *paced) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		for ch, err := range p.words.Generate(ctx, req) {
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

// whole is a turn of calls that come in one piece each.
func whole(specs ...string) turn {
	var tn turn
	for i, s := range specs {
		f := strings.SplitN(s, " ", 3)
		tn.chunks = append(tn.chunks, &model.ToolCallDelta{Index: i, ID: f[0], Name: f[1], Args: f[2]})
	}
	tn.chunks = append(tn.chunks, finish(model.FinishToolCalls))
	return tn
}

// A clock notes when things happen, from its beginning on, in milliseconds.
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
	slices.SortStableFunc(notes, func(a, b string) int { // what happens at one time has no order
		x, _ := time.ParseDuration(strings.Fields(a)[0])
		y, _ := time.ParseDuration(strings.Fields(b)[0])
		if x != y {
			return int(x - y)
		}
		return strings.Compare(a, b)
	})
	return strings.Join(notes, ", ")
}

// timed returns a tool that takes as long as its path says, and notes it.
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

// TestEagerTime has a model write calls, one every 10 ms, and looks at when each has
// ended, and the answer.
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
		{"a slow one beside", true, 0, answer(3, "35ms"), "25ms read 5ms, 35ms read 5ms, 40ms finish, 45ms read 35ms"},
		{"the bound", true, 1, answer(3, "15ms"), "25ms read 15ms, 35ms read 5ms, 40ms finish, 45ms read 5ms"},
		{"the bound, reached to the end", true, 2, answer(4, "100ms"), "25ms read 5ms, 35ms read 5ms, 45ms read 5ms, 50ms finish, 110ms read 100ms"},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClock()
				a, w := newAgent(t, Config{Policy: bypass, Eager: row.eager, MaxParallel: row.most, Toolkit: toolkit.Of(timed(c, "read", reads))}, row.turn, says("done"))
				a.levels.model = &paced{w, 10 * time.Millisecond}
				var st State
				finished := false
				for ev, err := range a.Run(t.Context(), &st, Say("go")) {
					if err != nil {
						t.Fatal(err)
					}
					if m, ok := ev.(*Message); ok && m.Finish != "" && !finished {
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
