package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kitbag-go/kitbag/builtin/pdf"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/model/openai"
)

// A textScene is what a model does in a file of testdata/texts, and where.
type textScene struct {
	Reader  string              // who reads the texts
	Args    []string            // of kitbag run, or of kitbag mcp serve if Serve is set
	Serve   bool                // the reader is the model of an MCP host
	Agent   string              // the name of one of textAgents, in place of kitbag run
	Servers map[string][]string // MCP servers: the arguments of the test binary
	Prepare []string            // commands that run in the workspace first
	Timeout int                 // of a call of the servers, in seconds; 0 for 1
	Known   bool                // the tools of the servers are known from an earlier run
	End     *textCall           // the last answer, in place of a text
	Rows    []textRow           `json:"-"`
}

// A textRow is a failure that a model can meet. Score is how well its text answers three questions, judged by a
// person: what happened, why, and what to do next. It is 2 if all three are answered (or nothing can be done, and
// the text says so), 1 if one is missing, 0 otherwise.
type textRow struct {
	Kind   string
	First  []textCall // calls in answers before, one each
	Call   textCall
	With   []textCall // other calls of the same answer, which come first
	Say    *string    // in place of a call: the answer is a text
	Refuse string     // the server refuses the next request with this text
	Then   []string   // the model's answers after that, before the request with the text
	Finish string     // the reason why the answer ends, such as length
	Person string     // the answer to the question about the call: allow, deny or deny:REASON; of a host, the result of elicitation/create
	Take   string     // in place of the result of the call: "last", the last message of the next request, or "user", the last user message
	Names  []string   // what the text must contain
	Bytes  int        // the most that it may have
	Score  int
}

// A textCall is a tool's name and arguments; arguments that are a string are sent as they are.
type textCall [2]json.RawMessage

func (c textCall) call(id, dir string) openaitest.Call {
	var name, raw string
	if err := json.Unmarshal(c[0], &name); err != nil {
		panic(err)
	}
	if json.Unmarshal(c[1], &raw) != nil {
		raw = string(c[1])
	}
	return openaitest.Call{ID: id, Name: name, Args: strings.ReplaceAll(raw, shownTextDir, dir)}
}

// shownTextDir is the workspace in the files of texts.
const shownTextDir = "$DIR"

// TestTexts checks what a model reads when something fails, by the real code: each file of testdata/texts has a
// scene, its rows, and the text of each row, which -update writes.
func TestTexts(t *testing.T) {
	without := pdfReader
	pdfReader = pdf.Reader{} // as with -tags pdfium
	defer func() { pdfReader = without }()
	files, err := filepath.Glob(filepath.Join(testdata, "texts", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var all []textRow
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			all = append(all, checkTexts(t, file)...)
		})
	}
	best := 0
	for i, r := range all {
		if slices.ContainsFunc(all[:i], func(o textRow) bool { return o.Kind == r.Kind }) {
			t.Errorf("two rows are of the kind %s", r.Kind)
		}
		if r.Score == 2 {
			best++
		}
	}
	t.Logf("%d kinds, %d with a score of 2", len(all), best)
	if flag.Lookup("test.run").Value.String() != "" {
		return // perhaps not all files
	}
	if len(all) < 90 {
		t.Errorf("%d kinds of failures; at least 90 are needed", len(all))
	}
	if 72*best < 68*len(all) {
		t.Errorf("%d of %d texts have a score of 2; 68 of 72 are needed", best, len(all))
	}
}

// checkTexts plays a scene and compares its texts.
func checkTexts(t *testing.T, file string) []textRow {
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var scene textScene
	texts := map[string]string{}
	dir := textWorkspace(t)
	kept := []txtar.File{}
	for _, f := range ar.Files {
		inside, isFile := strings.CutPrefix(f.Name, "dir/")
		text, isText := strings.CutPrefix(f.Name, "text/")
		switch {
		case isText:
			texts[text] = string(f.Data)
			continue
		case isFile:
			path := filepath.Join(dir, inside)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f.Data, 0o600); err != nil {
				t.Fatal(err)
			}
		case f.Name == "scene.json":
			err = json.Unmarshal(f.Data, &scene)
		case f.Name == "rows.jsonl":
			scene.Rows, err = textRows(f.Data)
		default:
			err = fmt.Errorf("the file %s has no meaning here", f.Name)
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		kept = append(kept, f)
	}
	got := scene.play(t, dir)
	for _, row := range scene.Rows {
		row.check(t, got[row.Kind])
		text := abridged(got[row.Kind])
		kept = append(kept, txtar.File{Name: "text/" + row.Kind, Data: []byte(text)})
		if want, ok := texts[row.Kind]; !*update && (!ok || want != text) {
			t.Errorf("%s: the text is\n%swant\n%s", row.Kind, text, want)
		}
	}
	if *update {
		ar.Files = kept
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if len(texts) != len(scene.Rows) {
		t.Errorf("%d texts for %d rows", len(texts), len(scene.Rows))
	}
	return scene.Rows
}

// check compares a text with its row.
func (r *textRow) check(t *testing.T, text string) {
	for _, name := range r.Names {
		if !strings.Contains(text, name) {
			t.Errorf("%s: the text does not name %q:\n%s", r.Kind, name, abridged(text))
		}
	}
	if len(r.Names) == 0 {
		t.Errorf("%s: the row does not say what the text must name", r.Kind)
	}
	if len(text) > r.Bytes {
		t.Errorf("%s: the text has %d bytes, more than %d:\n%s", r.Kind, len(text), r.Bytes, abridged(text))
	}
	if r.Score < 1 || r.Score > 2 {
		t.Errorf("%s: the score is %d; it must be 1 or 2", r.Kind, r.Score)
	}
}

// abridged returns a text as a file shows it: of long lines the beginning, of many lines both ends and
// the notes, which begin with a bracket.
func abridged(text string) string {
	const maxLine, ends = 400, 12
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if len(line) > maxLine {
			lines[i] = fmt.Sprintf("%s (%d bytes)", strings.ToValidUTF8(line[:maxLine], ""), len(line))
		}
	}
	if n := len(lines) - 2*ends; n > 1 {
		notes := slices.DeleteFunc(slices.Clone(lines[ends:len(lines)-ends]), func(line string) bool { return !strings.HasPrefix(line, "[") })
		middle := append([]string{fmt.Sprintf("(%d lines)", n-len(notes))}, notes...)
		lines = slices.Concat(lines[:ends], middle, lines[len(lines)-ends:])
	}
	return strings.Join(lines, "\n") + "\n"
}

func textRows(data []byte) (rows []textRow, err error) {
	for line := range bytes.Lines(data) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var row textRow
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&row); err != nil {
			return nil, fmt.Errorf("row %d: %w", len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// textWorkspace makes a workspace in which commands are not confined, as that is not possible everywhere.
func textWorkspace(t *testing.T) string {
	t.Helper()
	dir := workspace(t)
	config := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "kitbag", configFile)
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(`{"sandbox": {"use": "off"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// play returns the texts of the scene's rows.
func (s *textScene) play(t *testing.T, dir string) map[string]string {
	t.Helper()
	s.prepare(t, dir)
	shown := func(text string) string {
		text = strings.ReplaceAll(text, dir, shownTextDir)
		text = strings.ReplaceAll(text, os.Getenv("HOME"), "$HOME")
		text = strings.ReplaceAll(text, os.Args[0], "$PROGRAM")
		return strings.TrimRight(hidden.ReplaceAllString(text, "$1…"), "\n") + "\n"
	}
	got := map[string]string{}
	if s.Serve {
		for kind, text := range s.serve(t, dir) {
			got[kind] = shown(text)
		}
		return got
	}
	server, at := s.model(t, dir)
	if s.Agent != "" {
		s.runAgent(t, server)
	} else {
		s.runKitbag(t)
	}
	requests := server.Requests()
	for _, row := range s.Rows {
		if at[row.Kind] >= len(requests) {
			t.Fatalf("%s: the run ended before its text was sent", row.Kind)
		}
		got[row.Kind] = shown(row.find(requests[at[row.Kind]]))
	}
	return got
}

// hidden matches what differs from run to run.
var hidden = regexp.MustCompile(`(pid |127\.0\.0\.1:|attempt is in )[0-9]+`)

func (s *textScene) prepare(t *testing.T, dir string) {
	t.Helper()
	entries := map[string]any{}
	for name, args := range s.Servers {
		entry := self(t)
		entry["args"] = append([]string{"mcp", flawedServer}, args...)
		entry["startup_timeout_sec"], entry["tool_timeout_sec"] = 2, max(1, s.Timeout)
		entries[name] = entry
	}
	if len(entries) > 0 {
		file := filepath.Join(os.Getenv("HOME"), "servers.json")
		writeServers(t, file, entries)
		s.Args = append([]string{"--mcp", file}, s.Args...)
	}
	for i, arg := range s.Args {
		s.Args[i] = strings.ReplaceAll(arg, shownTextDir, dir)
	}
	for name := range entries {
		if s.Known {
			if got := kitbag(t.Context(), "tools", s.Args[0], s.Args[1], "--open", name); got.code != exitDone {
				t.Fatal(got.stderr)
			}
		}
	}
	for _, line := range s.Prepare {
		if out, err := exec.CommandContext(t.Context(), "bash", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
}

// model starts a server that answers as the rows say. It returns for each kind the index of the request that has its
// text.
func (s *textScene) model(t *testing.T, dir string) (*openaitest.Server, map[string]int) {
	t.Helper()
	var turns []openaitest.Turn
	at := map[string]int{}
	for _, row := range s.Rows {
		for i, c := range row.First {
			turns = append(turns, openaitest.Calls(c.call(fmt.Sprintf("%s-first-%d", row.Kind, i), dir)))
		}
		turns = append(turns, row.turn(dir))
		if row.Refuse != "" {
			turns = append(turns, openaitest.Status(http.StatusBadRequest, `{"error":{"message":"`+row.Refuse+`"}}`))
		}
		for _, text := range row.Then {
			turns = append(turns, openaitest.Text(text))
		}
		at[row.Kind] = len(turns)
	}
	if s.End != nil {
		turns = append(turns, openaitest.Calls(s.End.call("end", dir)))
	} else {
		turns = append(turns, openaitest.Text("Done."))
	}
	server := openaitest.New(t, turns...)
	t.Setenv("OPENAI_BASE_URL", server.URL)
	t.Setenv("OPENAI_API_KEY", "key")
	t.Setenv("KITBAG_MODEL", "test")
	return server, at
}

// turn is the answer with the row's call.
func (r *textRow) turn(dir string) openaitest.Turn {
	if r.Say != nil {
		return openaitest.Text(*r.Say).Finish(r.Finish)
	}
	var calls []openaitest.Call
	for i, c := range r.With {
		calls = append(calls, c.call(fmt.Sprintf("%s-with-%d", r.Kind, i), dir))
	}
	return openaitest.Calls(append(calls, r.Call.call(r.Kind, dir))...).Finish(r.Finish)
}

// find returns the row's text in a request.
func (r *textRow) find(req *openaitest.Request) string {
	if r.Take == "" {
		for _, m := range req.Messages {
			if m.ToolCallID == r.Kind {
				return m.Text()
			}
		}
		return "(no result)"
	}
	for _, m := range slices.Backward(req.Messages) {
		if r.Take == "last" || m.Role == r.Take {
			return m.Text()
		}
	}
	return "(no message)"
}

// runKitbag runs kitbag, and again with an answer whenever a call waits for approval.
func (s *textScene) runKitbag(t *testing.T) {
	t.Helper()
	session := filepath.Join(os.Getenv("HOME"), "session.json")
	args := append([]string{"run", "--session", session}, s.Args...)
	waiting := s.Rows
	for task := []string{"Go."}; ; {
		got := kitbag(t.Context(), slices.Concat(args, task)...)
		if got.code != exitWaiting {
			if got.code != exitDone {
				t.Fatalf("code %d: %s", got.code, got.stderr)
			}
			return
		}
		i := slices.IndexFunc(waiting, func(r textRow) bool { return r.Person != "" })
		if i < 0 {
			t.Fatalf("a call without an answer waits: %s", got.stderr)
		}
		task = []string{"--answer", waiting[i].Kind + "=" + waiting[i].Person}
		waiting = waiting[i+1:]
	}
}

// runAgent runs one of textAgents.
func (s *textScene) runAgent(t *testing.T, server *openaitest.Server) {
	t.Helper()
	m, err := openai.New(openai.Config{BaseURL: server.URL, Key: "key", Model: "test"})
	if err != nil {
		t.Fatal(err)
	}
	textAgents[s.Agent](t, m)
}

// serve calls the tools of kitbag mcp serve.
func (s *textScene) serve(t *testing.T, dir string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	var log bytes.Buffer
	end := make(chan int, 1)
	go func() {
		end <- run(ctx, append([]string{"mcp", "serve"}, s.Args...), in, out, &log)
		_ = out.Close()
	}()
	defer func() {
		_ = requests.Close()
		cancel()
		<-end
	}()
	lines := bufio.NewReader(answers)
	person := ""
	ask := func(method string, params any) (result struct {
		Result struct{ Content []struct{ Text string } }
		Error  *struct{ Message string }
	}) {
		t.Helper()
		data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = requests.Write(append(data, '\n')) }()
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatalf("%v: %s", err, log.String())
			}
			if bytes.Contains(line, []byte(`"method":"elicitation/create"`)) {
				var question struct{ ID json.RawMessage }
				if err := json.Unmarshal(line, &question); err != nil {
					t.Fatal(err)
				}
				go func() { _, _ = fmt.Fprintf(requests, "{\"jsonrpc\":\"2.0\",\"id\":%s,%s}\n", question.ID, person) }()
				continue
			}
			if bytes.Contains(line, []byte(`"id":1`)) {
				if err := json.Unmarshal(line, &result); err != nil {
					t.Fatal(err)
				}
				return result
			}
		}
	}
	abilities := map[string]any{}
	if slices.ContainsFunc(s.Rows, func(r textRow) bool { return r.Person != "" }) {
		abilities["elicitation"] = map[string]any{}
	}
	ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": abilities, "clientInfo": map[string]string{"name": "host", "version": "1"}})
	got := map[string]string{}
	for _, row := range s.Rows {
		person = row.Person
		for _, c := range append(slices.Clone(row.First), row.Call) {
			call := c.call("", dir)
			answer := ask("tools/call", map[string]any{"name": call.Name, "arguments": json.RawMessage(call.Args)})
			got[row.Kind] = ""
			for _, c := range answer.Result.Content {
				got[row.Kind] += c.Text
			}
			if answer.Error != nil {
				got[row.Kind] = answer.Error.Message
			}
		}
	}
	return got
}
