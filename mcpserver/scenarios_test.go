package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kitbag-go/kitbag/internal/groupcase"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestScenarios plays what wags and tmcp do over the wire: a client lists, calls and
// counts the notifications that its session gets. What only a program can ask of a
// toolkit, such as what is active, the toolkit's own test looks at.
func TestScenarios(t *testing.T) {
	deviations := groupcase.Deviations(t, "../toolkit/testdata/deviations.json")
	maps.Copy(deviations, groupcase.Deviations(t, "testdata/deviations.json"))
	played := 0
	for _, row := range groupcase.Rows(t) {
		sc := row.Scenario(t)
		if sc.System != "wags" && sc.System != "tmcp" {
			continue
		}
		reason, deviates := deviations[groupcase.Number(row.ID)]
		played++
		t.Run(row.ID, func(t *testing.T) {
			var diffs []string
			synctest.Test(t, func(t *testing.T) { diffs = playWire(t, sc) })
			if deviates && len(diffs) == 0 {
				t.Errorf("passes, and is in deviations.json for %q: take it out", reason)
			}
			for _, d := range diffs {
				if !deviates {
					t.Error(d)
				}
			}
		})
	}
	if played == 0 {
		t.Error("no scenario was played")
	}
}

// A said tool says a text and may name its own groups.
type said struct {
	name, text string
	labels     []string
}

func (s said) Info() tool.Info {
	return tool.Info{Name: s.name, Description: "Says " + s.name + ".", Input: json.RawMessage(`{"type":"object"}`)}
}

func (s said) Labels() []string { return s.labels }

func (s said) Call(context.Context, tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) { yield(tool.Text(s.text), nil) }
}

// A wirePlay is a scenario that is played by a client over standard input and
// output, where everything comes on one stream.
type wirePlay struct {
	t       *testing.T
	tk      *toolkit.Toolkit
	tmcp    *groupcase.Tmcp
	in      io.Writer
	lines   chan string
	id      int
	notices int // list changes since the step began

	mu    sync.Mutex
	flags map[string]bool
	ran   []string
}

func playWire(t *testing.T, sc groupcase.Scenario) []string {
	p := &wirePlay{t: t, flags: map[string]bool{}, lines: make(chan string, 100)}
	p.tmcp = &groupcase.Tmcp{Made: func(name, text string) tool.Tool { return said{name, text, nil} }, Hook: p.hook, Flag: p.flag}
	cfg := groupcase.Wags(sc, func(name string, labels []string) tool.Tool { return said{name, name, labels} })
	if sc.System == "tmcp" {
		cfg = p.tmcp.Config(t, sc)
	}
	tk, err := toolkit.New(cfg)
	if err != nil { // which the toolkit's test looks at
		if !constructs(sc) {
			return []string{fmt.Sprintf("construction failed: %v", err)}
		}
		return nil
	}
	p.tk = tk
	p.connect()
	var diffs []string
	for i, step := range sc.Steps {
		p.mu.Lock()
		p.ran = []string{}
		p.mu.Unlock()
		p.notices = 0
		for _, d := range p.step(step) {
			diffs = append(diffs, fmt.Sprintf("step %d, %s %s: %s", i+1, step.Op, encodeAny(step.Args), d))
		}
	}
	return diffs
}

// constructs reports whether the scenario is about a construction that fails.
func constructs(sc groupcase.Scenario) bool {
	return slices.ContainsFunc(sc.Steps, func(s groupcase.Step) bool { return string(s.Args["what"]) == `"construct"` })
}

func encodeAny(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

func (p *wirePlay) connect() {
	s := serve(p.t, mcpserver.Config{Toolkit: p.tk, Policy: open})
	in, out, done := pipes(p.t, s)
	p.in = in
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	p.t.Cleanup(func() {
		_ = in.Close()
		<-done
		for range p.lines {
		}
	})
	p.send("initialize", `{"protocolVersion":"2025-11-25","capabilities":{}}`)
	p.send("tools/list", `{}`)
}

// pipes serves a client over two pipes. Done is closed when the server has left.
func pipes(t *testing.T, s *mcpserver.Server) (in io.WriteCloser, out io.Reader, done chan struct{}) {
	toServer, in := io.Pipe()
	out, fromServer := io.Pipe()
	done = make(chan struct{})
	go func() {
		defer close(done)
		if err := s.ServeStdio(context.Background(), toServer, fromServer); err != nil {
			t.Error(err)
		}
		_ = fromServer.Close()
	}()
	return in, out, done
}

// An answer is what a request was answered with.
type answer struct {
	Result struct {
		Tools []struct {
			Name, Description string
		}
		Content    []struct{ Text string }
		Structured map[string]any `json:"structuredContent"`
		IsError    bool
		Groups     []struct{ Name string }
	}
	Error *struct{ Message string }
}

// send makes a request and returns the answer, counting what comes before it.
func (p *wirePlay) send(method, params string) answer {
	p.id++
	if _, err := fmt.Fprintf(p.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", p.id, method, params); err != nil {
		p.t.Fatal(err)
	}
	for line := range p.lines {
		if p.notice(line) {
			continue
		}
		var m struct {
			ID int
			answer
		}
		groupcase.Decode(p.t, json.RawMessage(line), &m)
		if m.ID == p.id {
			return m.answer
		}
	}
	p.t.Fatalf("%s: no answer", method)
	return answer{}
}

func (p *wirePlay) notice(line string) bool {
	if !strings.Contains(line, `"method":"notifications/tools/list_changed"`) {
		return false
	}
	p.notices++
	return true
}

// settle takes the notifications that come by themselves, after a change of the
// catalogue.
func (p *wirePlay) settle() {
	synctest.Wait()
	for len(p.lines) > 0 {
		p.notice(<-p.lines)
	}
}

func (p *wirePlay) flag(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flags[name]
}

func (p *wirePlay) hook(sign, group, kind string) func(context.Context) error {
	return func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ran = append(p.ran, sign+group)
		if kind == "fail" {
			return fmt.Errorf("hook failed: %s%s", sign, group)
		}
		return nil
	}
}

func (p *wirePlay) call(name, input string) answer {
	return p.send("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, input))
}

// step does one step and returns what was not as expected.
func (p *wirePlay) step(s groupcase.Step) (diffs []string) {
	var got answer
	switch s.Op {
	case "list":
		if what := groupcase.Arg[string](p.t, s, "what"); what == "groups" || what == "is_active" {
			return nil // of the program
		}
	case "call":
		got = p.call(groupcase.Arg[string](p.t, s, "tool"), "{}")
	case "enable", "disable":
		got = p.call(s.Op+"_tools", encodeAny(s.Args))
	case "activate", "deactivate":
		got = p.switched(s)
	case "register", "unregister":
		if err := p.register(s); err != nil {
			got.Error = &struct{ Message string }{err.Error()}
		}
		p.settle()
	default:
		return []string{"the client does not know the op"}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Expect)) {
		check, ok := wireChecks[key]
		if !ok {
			return append(diffs, "the client does not know "+key)
		}
		if d := check(p, s, got, s.Expect[key]); d != "" {
			diffs = append(diffs, key+": "+d)
		}
	}
	return diffs
}

// switched calls the tools of a group, or of several, one after the other.
func (p *wirePlay) switched(s groupcase.Step) (got answer) {
	names := groupcase.Arg[[]string](p.t, s, "parallel")
	if names == nil {
		return p.call(groupcase.Arg[string](p.t, s, "group")+"."+s.Op, "{}")
	}
	for range groupcase.Arg[int](p.t, s, "times") {
		for _, name := range names {
			got = p.call(name+"."+s.Op, "{}")
		}
	}
	return got
}

// register changes the catalogue, as its owner does.
func (p *wirePlay) register(s groupcase.Step) error {
	name := groupcase.Arg[string](p.t, s, "name", "tool")
	if s.Op == "unregister" {
		return p.tk.Remove(name)
	}
	switch what := groupcase.Arg[string](p.t, s, "what"); what {
	case "construct":
		return nil
	case "flag":
		p.mu.Lock()
		defer p.mu.Unlock()
		p.flags[name] = groupcase.Arg[bool](p.t, s, "value")
		return nil
	case "group":
		g := toolkit.Group{Name: name, Description: groupcase.Arg[string](p.t, s, "description")}
		if parent := groupcase.Arg[string](p.t, s, "parent"); parent != "" {
			g.Parents = []string{parent}
		}
		return p.tk.AddGroup(g)
	case "tool":
		return p.tk.Update(func(cfg *toolkit.Config) error {
			p.tmcp.Place(cfg, name, groupcase.Arg[string](p.t, s, "visibility"))
			return nil
		})
	case "exclusion":
		return p.tk.Update(func(cfg *toolkit.Config) error {
			cfg.Exclusive = append(cfg.Exclusive, groupcase.Arg[[]string](p.t, s, "groups", "set", "members", "names"))
			return nil
		})
	case "notify":
		p.tk.Refresh()
		return nil
	default:
		return errors.New("the client does not know how to register " + what)
	}
}

// wireChecks compares what a client sees with one member of an expectation.
var wireChecks = map[string]func(p *wirePlay, s groupcase.Step, got answer, want json.RawMessage) string{
	"ok": func(_ *wirePlay, _ groupcase.Step, got answer, want json.RawMessage) string {
		return groupcase.Same(got.failure() == "", want)
	},
	"error": func(_ *wirePlay, s groupcase.Step, got answer, want json.RawMessage) string {
		var e struct{ Message, Raw string }
		if json.Unmarshal(want, &e) != nil || got.failure() == "" {
			return "there was no error"
		}
		// A hidden tool is told of in words of ours; the toolkit's test compares
		// what they stand for.
		if text := e.Message + e.Raw; s.Op != "call" && text != "" && !groupcase.Says(text, got.failure()) {
			return fmt.Sprintf("got %q, want what stands for %q", got.failure(), text)
		}
		return ""
	},
	"notify": func(p *wirePlay, _ groupcase.Step, _ answer, want json.RawMessage) string {
		return groupcase.Same(p.notices, want)
	},
	"hooks": func(p *wirePlay, _ groupcase.Step, _ answer, want json.RawMessage) string {
		return groupcase.Same(p.ran, want)
	},
	"result": func(_ *wirePlay, _ groupcase.Step, got answer, want json.RawMessage) string {
		return groupcase.Result(got.Result.Structured, want, true)
	},
	"result_subset": func(_ *wirePlay, _ groupcase.Step, got answer, want json.RawMessage) string {
		return groupcase.Result(got.Result.Structured, want, false)
	},

	"visible":           sees(func(got, want []string) bool { return slices.Equal(got, want) }),
	"available":         sees(sameSet),
	"tools":             sees(sameSet),
	"visible_unordered": sees(sameSet),
	"visible_includes": sees(func(got, want []string) bool {
		return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(got, name) })
	}),
	"visible_excludes": sees(func(got, want []string) bool {
		return !slices.ContainsFunc(want, func(name string) bool { return slices.Contains(got, name) })
	}),

	// What no client is told.
	"active": unseen, "changed": unseen, "changed_true_count": unseen, "groups": unseen, "groups_names": unseen, "value": unseen,
	// Our words for descriptions are the toolkit's test's.
	"description_contains": unseen, "description_excludes": unseen, "descriptions": unseen,
}

func unseen(*wirePlay, groupcase.Step, answer, json.RawMessage) string { return "" }

// failure returns the text of what went wrong, empty if nothing has.
func (a answer) failure() string {
	switch {
	case a.Error != nil:
		return a.Error.Message
	case a.Result.IsError:
		return a.Result.Content[0].Text
	}
	return ""
}

// sees lists the tools and compares them.
func sees(fits func(got, want []string) bool) func(*wirePlay, groupcase.Step, answer, json.RawMessage) string {
	return func(p *wirePlay, _ groupcase.Step, _ answer, raw json.RawMessage) string {
		var want []string
		groupcase.Decode(p.t, raw, &want)
		got := []string{}
		for _, tl := range p.send("tools/list", "{}").Result.Tools {
			got = append(got, tl.Name)
		}
		if !fits(got, want) {
			return fmt.Sprintf("the client sees %q, want %q", got, want)
		}
		return ""
	}
}
