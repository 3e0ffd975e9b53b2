package agenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

var update = flag.Bool("agenttest.update", false, "write golden transcripts anew")

// updating reports whether golden files are written: with -agenttest.update, or with the tested package's flag -update.
func updating() bool {
	packageFlag := flag.Lookup("update")
	return *update || packageFlag != nil && packageFlag.Value.String() == "true"
}

// runContext returns the test's context, if it has one.
func runContext(t T) context.Context {
	if t, ok := t.(interface{ Context() context.Context }); ok {
		return t.Context()
	}
	return context.Background()
}

// A recordingModel adds the system prompt and the tools of each request to a transcript.
type recordingModel struct {
	model.Model
	transcript *transcript
}

func (m *recordingModel) Unwrap() model.Model { return m.Model }

func (m *recordingModel) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		m.transcript.addRequest(req)
		m.Model.Generate(ctx, req)(yield)
	}
}

// A transcript is a conversation as the sections of a txtar file.
type transcript struct {
	mu       sync.Mutex // guards the other fields: a model may be called on another goroutine
	sections []txtar.File

	system, tools string          // of the last request
	asked         map[string]bool // the calls whose question is in a section of this run
}

func (s *transcript) add(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(name, text)
}

func (s *transcript) addLocked(name, text string) {
	data := []byte(text)
	if text != "" && !strings.HasSuffix(text, "\n") {
		data = append(data, '\n')
	}
	if txtar.NeedsQuote(data) {
		if quoted, err := txtar.Quote(data); err == nil { // fails only for invalid UTF-8, which stays unquoted
			data = quoted
		}
	}
	s.sections = append(s.sections, txtar.File{Name: name, Data: data})
}

// addRequest adds the system prompt and the tools if they differ from those of the last request.
func (s *transcript) addRequest(req *model.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names strings.Builder
	for _, info := range req.Tools {
		fmt.Fprintln(&names, info.Name)
	}
	if req.System != s.system {
		s.system = req.System
		s.addLocked("system", req.System)
	}
	if names.String() != s.tools {
		s.tools = names.String()
		s.addLocked("tools", s.tools)
	}
}

// addInputs begins a run: it adds the inputs, except messages, which addEvent adds.
func (s *transcript) addInputs(inputs []agent.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = map[string]bool{}
	for _, in := range inputs {
		switch in := in.(type) {
		case event.Confirm:
			s.addLocked("confirm", confirmText(in))
		case event.Result:
			s.addLocked("deliver", in.Call+"\n"+blocksText(in.Blocks))
		case agent.Interrupt:
			s.addLocked("interrupt", "")
		case agent.Compact:
			s.addLocked("compact", "")
		}
	}
}

func confirmText(in event.Confirm) string {
	var b strings.Builder
	decision := "deny"
	if in.Allow {
		decision = "allow"
	}
	fmt.Fprintf(&b, "%s %s\n", in.Call, decision)
	if in.Input != nil {
		fmt.Fprintf(&b, "input: %s\n", in.Input)
	}
	for _, rule := range in.Rules {
		fmt.Fprintf(&b, "rule: %s %s\n", rule.Behavior, rule)
	}
	if in.Reason != "" {
		fmt.Fprintf(&b, "reason: %s\n", in.Reason)
	}
	return b.String()
}

// addEvent adds an event, unless others in the transcript show the same.
func (s *transcript) addEvent(ev event.Event) {
	switch ev := ev.(type) {
	case *event.Message:
		s.addMessage(ev.Message)
	case *event.Approval:
		text := fmt.Sprintf("%s %s %s\nreason: %s\n", ev.Name, ev.Call, ev.Input, ev.Reason)
		if ev.Safety {
			text += "no rule can answer this\n"
		}
		for _, rule := range ev.Suggest {
			text += fmt.Sprintf("suggested: %s\n", rule)
		}
		s.addOnce(ev.Call, "approval", text+ev.Preview)
	case *event.External:
		s.addOnce(ev.Call, "external", fmt.Sprintf("%s %s %s", ev.Name, ev.Call, ev.Input))
	case *event.Background: // the text of the result is in the hint for the model
		text := "continues"
		if ev.Result != nil {
			text = string(ev.Result.Outcome)
		}
		s.add("background", fmt.Sprintf("%s %s %s", ev.Name, ev.Call, text))
	case *event.Elicitation:
		text := strings.TrimSpace(ev.Server+" "+ev.Call) + "\n"
		if ev.Action != "" { // an earlier event had the question
			s.add("elicitation", text+strings.TrimSpace(string(ev.Action)+" "+ev.Error))
			return
		}
		text += ev.Message + "\n"
		for _, part := range []string{string(ev.Schema), ev.URL, strings.Join(ev.Warnings, "\n"), ev.Error} {
			if part != "" {
				text += part + "\n"
			}
		}
		s.add("elicitation", text)
	case *event.Sampling: // has a Text or is Refused
		s.add("sampling", strings.TrimSpace(ev.Server+" "+ev.Call+" "+ev.Model)+"\n"+ev.Text+ev.Refused)
	case *event.Discard:
		s.add("discard", ev.Error)
	case *event.Retry:
		s.add("retry", fmt.Sprintf("attempt %d: %s", ev.Attempt, ev.Error))
	case *event.Compaction: // has at most one of Summary and Failed
		s.add("compaction", fmt.Sprintf("%d messages dropped\n%s", ev.Dropped, ev.Summary+ev.Failed))
	case *event.End:
		s.add("end", strings.TrimSpace(string(ev.Reason)+" "+ev.Detail))
	}
}

// addOnce adds a question about a call, unless this run has asked it already.
func (s *transcript) addOnce(call, name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked[call] {
		s.asked[call] = true
		s.addLocked(name, text)
	}
}

func (s *transcript) addMessage(m *message.Message) {
	if m.Role != message.RoleTool {
		s.add(string(m.Role), blocksText(m.Blocks))
		return
	}
	for _, r := range m.ToolResults() {
		text := fmt.Sprintf("%s %s %s\n%s", r.Name, r.ID, r.Outcome, blocksText(r.Blocks))
		if len(r.ForUser) > 0 {
			text += "for the user:\n" + blocksText(r.ForUser)
		}
		s.add("result", text)
	}
}

func blocksText(bs message.Blocks) string {
	var b strings.Builder
	for _, block := range bs {
		switch block := block.(type) {
		case *message.Text:
			fmt.Fprintln(&b, block.Text)
		case *message.Thinking:
			fmt.Fprintf(&b, "(thinking) %s\n", block.Text)
		case *message.Hint:
			fmt.Fprintf(&b, "(hint) %s\n", block.Text)
		case *message.ToolCall:
			fmt.Fprintf(&b, "%s %s %s\n", block.Name, block.ID, block.Input)
		case *message.Data:
			fmt.Fprintf(&b, "(%s, %d bytes) %s%s\n", block.MediaType, len(block.Bytes), block.Name, block.URL)
		default:
			data, err := json.Marshal(message.Blocks{block})
			fmt.Fprintln(&b, string(data), err)
		}
	}
	return b.String()
}

// Golden compares the transcript of the conversation so far with the txtar file
// at path, or writes the file if the test was run with -agenttest.update, or with the tested package's flag -update.
func (c *Conversation) Golden(path string) {
	c.t.Helper()
	c.transcript.mu.Lock()
	defer c.transcript.mu.Unlock()
	want, err := os.ReadFile(path)
	if err != nil && !(updating() && errors.Is(err, fs.ErrNotExist)) {
		c.t.Fatalf("golden transcript: %v; run the test with -agenttest.update to write it", err)
	}
	got := txtar.Format(&txtar.Archive{Comment: txtar.Parse(want).Comment, Files: c.transcript.sections})
	switch {
	case bytes.Equal(got, want):
	case updating():
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, got, 0o644)); err != nil {
			c.t.Fatalf("golden transcript: %v", err)
		}
	default:
		c.t.Errorf("the conversation differs from the golden transcript; if that is intended, run the test with -agenttest.update\n%s",
			diff.Diff(path, want, "this run", got))
	}
}
