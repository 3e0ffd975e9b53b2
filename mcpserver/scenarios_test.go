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

// TestScenarios plays the scenarios of wags and tmcp over the wire: a client lists, calls and counts the
// notifications of its session. The toolkit's own test checks what only a program can query, such as which
// groups are active.
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
				t.Errorf("passes, but is in deviations.json for %q: remove it there", reason)
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

// A said tool returns a text and may name its own groups.
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

// A wirePlay plays a scenario with a client over standard input and output, where all messages come on one stream.
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
	if err != nil { // the toolkit's test checks this
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

// pipes serves a client over two pipes. done is closed when the server has ended.
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

// An answer is the answer to a request.
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

// send sends a request and returns the answer. It counts the notifications that precede the answer.
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

// receivePending receives the notifications that are sent without a request after a change of the catalogue.
func (p *wirePlay) receivePending() {
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

// step performs one step and returns the differences from the expected result.
func (p *wirePlay) step(s groupcase.Step) (diffs []string) {
	var got answer
	switch s.Op {
	case "list":
		if what := groupcase.Arg[string](p.t, s, "what"); what == "groups" || what == "is_active" {
			return nil // for programs only
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
		p.receivePending()
	default:
		return []string{"unknown op"}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Expect)) {
		check, ok := wireChecks[key]
		if !ok {
			return append(diffs, "unknown key "+key)
		}
		if d := check(p, s, got, s.Expect[key]); d != "" {
			diffs = append(diffs, key+": "+d)
		}
	}
	return diffs
}

// switched calls the tools of one group, or of several groups, one after the other.
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

// register changes the catalogue, as its owner would.
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
		return errors.New("cannot register " + what)
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
		// The text about a hidden tool is ours; the toolkit's test checks the meaning of the texts.
		if text := e.Message + e.Raw; s.Op != "call" && text != "" && !groupcase.Says(text, got.failure()) {
			return fmt.Sprintf("got %q, want the equivalent of %q", got.failure(), text)
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

	// Clients are not sent these.
	"active": unseen, "changed": unseen, "changed_true_count": unseen, "groups": unseen, "groups_names": unseen, "value": unseen,
	// The toolkit's test checks our texts of descriptions.
	"description_contains": unseen, "description_excludes": unseen, "descriptions": unseen,
}

func unseen(*wirePlay, groupcase.Step, answer, json.RawMessage) string { return "" }

// failure returns the text of the error, or "" if there is none.
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
