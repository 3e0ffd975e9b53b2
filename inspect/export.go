package inspect

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/format"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	texttemplate "text/template"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

//go:embed export.html
var exportHTML string

//go:embed export.go.txt
var exportTest string

// export serves a session as a file: as JSON Lines, as a page that needs nothing else, or as a test in Go.
func (h *Handler) export(w http.ResponseWriter, r *http.Request) {
	var data []byte
	as := r.FormValue("as")
	id, err := sessionID(r)
	var st *agent.State
	if err == nil {
		st, _, err = session.Read(r.Context(), h.store, id, 0)
	}
	name := id + "." + as
	if err == nil {
		switch as {
		case "jsonl":
			data, err = h.exportLines(r, id, st)
		case "html":
			data, err = exportPage(id, st)
		case "go":
			name = "session_test.go"
			data, err = exportScript(id, st)
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
	_, _ = w.Write(data) // the browser has gone
}

// exportLines returns the events, or the messages of a session that has none.
func (h *Handler) exportLines(r *http.Request, id string, st *agent.State) ([]byte, error) {
	var out bytes.Buffer
	f, release := h.feed(id)
	defer release()
	if _, err := f.wait(r.Context(), "", 0, 0, func(view) bool { return false }); err != nil {
		return nil, err
	}
	f.mu.Lock()
	last := f.seq
	f.mu.Unlock()
	err := h.events(r.Context(), id, 0, last, func(ev session.Event) bool {
		out.Write(ev.Data)
		out.WriteByte('\n')
		return true
	})
	if err != nil || out.Len() > 0 {
		return out.Bytes(), err
	}
	enc := json.NewEncoder(&out)
	for _, m := range st.Messages {
		if err := enc.Encode(m); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// An exported is a block of a message in the page. All of it is escaped by the template.
type exported struct {
	Who, Kind, Text string
	When            string
}

func exportPage(id string, st *agent.State) ([]byte, error) {
	t, err := template.New("page").Parse(exportHTML)
	if err != nil {
		return nil, err
	}
	var blocks []exported
	for _, m := range st.Messages {
		for _, b := range m.Blocks {
			e := exported{Who: string(m.Role), When: m.Created.Format(time.DateTime)}
			switch b := b.(type) {
			case *message.Text:
				e.Text = b.Text
			case *message.Thinking:
				e.Kind, e.Text = "thinking", b.Text
			case *message.Hint:
				e.Who, e.Text = "program", b.Text
			case *message.Data:
				e.Kind, e.Text = "file", cmp.Or(b.Name, b.MediaType)
			case *message.ToolCall:
				e.Kind, e.Text = "call of "+b.Name, string(b.Input)
			case *message.ToolResult:
				e.Kind, e.Text = string(b.Outcome)+" of "+b.Name, b.Text()
			}
			e.Text = escape(e.Text)
			blocks = append(blocks, e)
		}
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"ID": id, "Title": title(st), "Blocks": blocks, "Usage": st.Usage})
	return out.Bytes(), err
}

// A canned is what a tool returned, call by call.
type canned struct {
	Name    string
	Results []cannedResult
}

type cannedResult struct {
	Text   string
	Failed bool
}

// exportScript returns a test that has the same conversation again: the model and the tools say what they said.
func exportScript(id string, st *agent.State) ([]byte, error) {
	var said []string // each begins a run
	var turns []string
	var tools []canned
	last := ""
	for _, m := range st.Messages {
		switch m.Role {
		case message.RoleUser:
			if text := m.Text(); text != "" {
				said = append(said, text)
			}
		case message.RoleAssistant:
			turns, last = append(turns, scriptTurn(m)), m.Text()
		}
		for _, r := range m.ToolResults() {
			i := slices.IndexFunc(tools, func(c canned) bool { return c.Name == r.Name })
			if i < 0 {
				i, tools = len(tools), append(tools, canned{Name: r.Name})
			}
			tools[i].Results = append(tools[i].Results, cannedResult{r.Text(), r.Outcome != message.OutcomeSuccess})
		}
	}
	t, err := texttemplate.New("test").Funcs(texttemplate.FuncMap{"quote": strconv.Quote}).Parse(exportTest)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, map[string]any{"ID": id, "Said": said, "Turns": turns, "Tools": tools, "Last": last}); err != nil {
		return nil, err
	}
	code, err := format.Source(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("the test of session %q: %w", id, err)
	}
	return code, nil
}

// scriptTurn writes an answer of the model as an expression.
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
