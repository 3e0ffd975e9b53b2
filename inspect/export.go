package inspect

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"html"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

//go:embed export.html
var exportHTML string

//go:embed export.go.txt
var goTestTemplate string

// export serves a session as a file: JSON Lines, a page that needs no other file, or a Go test.
func (h *Handler) export(w http.ResponseWriter, r *http.Request) {
	var data []byte
	as := r.FormValue("as")
	id, err := sessionID(r)
	var st *agent.State
	var info session.Info
	if err == nil {
		st, info, err = session.Read(r.Context(), h.store, id, 0)
	}
	name := id + "." + as
	if err == nil {
		switch as {
		case "jsonl":
			data, err = h.exportLines(r.Context(), info, st)
		case "html":
			data = exportPage(id, st)
		case "go":
			name = "session_test.go"
			data, err = exportGoTest(id, st)
		default:
			err = badRequest("a session can be exported as jsonl, html or go")
		}
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = w.Write(data) // fails if the browser has gone
}

// exportLines returns the events, or the messages of a session that has no events, or not all of them.
func (h *Handler) exportLines(ctx context.Context, info session.Info, st *agent.State) ([]byte, error) {
	var out bytes.Buffer
	err := h.events(ctx, info.ID, 0, info.Event, func(ev session.Event) bool {
		out.Write(ev.Data)
		out.WriteByte('\n')
		return true
	})
	if !errors.Is(err, session.ErrGone) && (err != nil || out.Len() > 0) {
		return out.Bytes(), err
	}
	out.Reset()
	enc := json.NewEncoder(&out)
	for _, m := range st.Messages {
		if err := enc.Encode(m); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func exportPage(id string, st *agent.State) []byte {
	var blocks strings.Builder
	for _, m := range st.Messages {
		for _, b := range m.Blocks {
			who, text := string(m.Role), ""
			switch b := b.(type) {
			case *message.Text:
				text = b.Text
			case *message.Thinking:
				who, text = who+": thinking", b.Text
			case *message.Hint:
				who, text = "program", b.Text
			case *message.Data:
				who, text = who+": file", cmp.Or(b.Name, b.MediaType)
			case *message.ToolCall:
				who, text = who+": call of "+b.Name, string(b.Input)
			case *message.ToolResult:
				who, text = who+": "+string(b.Outcome)+" of "+b.Name, b.Text()
			}
			at := ""
			if !m.Created.IsZero() {
				at = m.Created.Format(time.DateTime)
			}
			fmt.Fprintf(&blocks, "<section><strong>%s</strong> %s<pre>%s</pre></section>\n",
				html.EscapeString(escape(who)), at, html.EscapeString(escape(text)))
		}
	}
	usage := fmt.Sprintf("%s: %d tokens in, %d of them cached, %d out", id, st.Usage.Input, st.Usage.Cached, st.Usage.Output)
	return []byte(strings.NewReplacer("{{title}}", html.EscapeString(title(st)), "{{usage}}", html.EscapeString(usage),
		"{{blocks}}", blocks.String()).Replace(exportHTML))
}

// A toolScript is what a tool returned, call by call, as elements of a Go list.
type toolScript struct{ name, results string }

// exportGoTest returns a Go test that repeats the conversation, with a model and tools that return what they returned then.
func exportGoTest(id string, st *agent.State) ([]byte, error) {
	var prompts, turns, results strings.Builder // elements of Go lists; each prompt begins a run
	var tools []toolScript
	var unanswered []string // the user's messages since the last answer
	last, inRun := "", false
	steps := 1 // one more than there are answers: a session that was cut off gets another one
	for _, m := range st.Messages {
		switch m.Role {
		case message.RoleUser:
			unanswered = append(unanswered, textOf(m))
		case message.RoleAssistant:
			if !inRun {
				fmt.Fprintf(&prompts, "%q,\n", cmp.Or(strings.Join(unanswered, "\n"), "(nothing)"))
			}
			steps++
			turns.WriteString(scriptTurn(m) + ",\n")
			last, unanswered, inRun = m.Text(), nil, len(m.ToolCalls()) > 0
		}
		for _, r := range m.ToolResults() {
			i := slices.IndexFunc(tools, func(t toolScript) bool { return t.name == r.Name })
			if i < 0 {
				i, tools = len(tools), append(tools, toolScript{name: r.Name})
			}
			tools[i].results += fmt.Sprintf("{%q, %t},\n", r.Text(), r.Outcome != message.OutcomeSuccess)
		}
		for _, c := range m.ToolCalls() {
			if !slices.ContainsFunc(tools, func(t toolScript) bool { return t.name == c.Name }) {
				tools = append(tools, toolScript{name: c.Name})
			}
		}
	}
	if inRun {
		last = "The session ended here."
		fmt.Fprintf(&turns, "scripted.Say(%q),\n", last)
	}
	for _, t := range tools {
		fmt.Fprintf(&results, "%q: {\n%s},\n", t.name, t.results)
	}
	code, err := format.Source([]byte(strings.NewReplacer("{{id}}", id, "{{results}}", results.String(), "{{turns}}", turns.String(),
		"{{said}}", prompts.String(), "{{last}}", strconv.Quote(last), "{{steps}}", strconv.Itoa(steps)).Replace(goTestTemplate)))
	if err != nil {
		return nil, fmt.Errorf("format the test of session %q: %w", id, err)
	}
	return code, nil
}

// scriptTurn returns an answer of the model as a Go expression.
func scriptTurn(m *message.Message) string {
	var parts []string
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			parts = append(parts, fmt.Sprintf("scripted.Say(%q)", b.Text))
		case *message.Thinking:
			parts = append(parts, fmt.Sprintf("scripted.Think(%q)", b.Text))
		case *message.ToolCall:
			parts = append(parts, fmt.Sprintf("scripted.Call(%q, json.RawMessage(%q))", b.Name, b.Input))
		}
	}
	if len(parts) == 0 {
		return `scripted.Say("")`
	}
	for i := 1; i < len(parts); i++ {
		parts[i] = ".And(" + parts[i] + ")"
	}
	return strings.Join(parts, "")
}
