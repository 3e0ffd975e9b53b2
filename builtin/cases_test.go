package builtin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

// A caseRow is a row of the case files about the results of tools: one call, or several in one session.
type caseRow struct {
	Name, Source, Tool string
	Args               json.RawMessage
	Files              map[string]fileSpec
	FileBefore         *fileSpec `json:"file_before"`
	FileAfter          *fileSpec `json:"file_after"`
	Setup              struct {
		BlankPDFPages int `json:"blank_pdf_pages"`
	}
	WithState      bool     `json:"with_state"`
	InputTypes     []string `json:"model_input_types"`
	Result         caseResult
	ReadCacheAfter []string   `json:"read_cache_after"`
	TasksAfter     []caseTask `json:"tasks_after"`
	Steps          []caseRow
}

type fileSpec struct {
	Text    *string
	B64     *string
	Symlink *string
	Dir     map[string]string
}

type caseResult struct {
	State       string
	Content     []json.RawMessage
	Text        *string
	Matches     []string
	LinesSorted []string `json:"lines_sorted"`
	LineCount   int      `json:"line_count"`
	Metadata    struct{ Occurrences *int }
}

// caseRun is the environment of a row.
type caseRun struct {
	t     *testing.T
	tmp   string // ${TMP}
	tools map[string]tool.Tool
	state *toolstate.State
}

// runCases runs the rows of a file. differs compares a call's result with the row; runCases compares the
// outcome and the files.
func runCases(t *testing.T, file string, differs func(r *caseRun, row caseRow, got *message.ToolResult) error) {
	deviations := casetest.LoadDeviations(t, "deviations_"+file+".json")
	for i, row := range casetest.Rows[caseRow](t, file+".jsonl") {
		key := row.Name
		if key == "" {
			key = strings.TrimPrefix(row.Source, "tests/")
		}
		if key == "" {
			key = string(row.Args)
		}
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			err := newCaseRun(t).run(row, differs)
			if err != nil && !deviations.Allowed(key) {
				t.Errorf("%s: %v", key, err)
			}
		})
	}
}

func newCaseRun(t *testing.T) *caseRun {
	dir := files(t, nil)
	r := &caseRun{t: t, tmp: filepath.Join(dir, "t"), tools: map[string]tool.Tool{}, state: &toolstate.State{}}
	all, err := New(Config{Dirs: []string{r.tmp}, PDF: formFeeds{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range all {
		r.tools[tl.Info().Name] = tl
	}
	return r
}

func (r *caseRun) run(row caseRow, differs func(*caseRun, caseRow, *message.ToolResult) error) error {
	if err := r.prepare(row); err != nil {
		return err
	}
	steps := row.Steps
	if steps == nil {
		steps = []caseRow{row}
	}
	for i, s := range steps {
		if err := r.step(s, differs); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

func (r *caseRun) prepare(row caseRow) error {
	if err := os.MkdirAll(r.tmp, 0o777); err != nil {
		return err
	}
	for name, spec := range row.Files {
		if err := r.put(filepath.Join(r.tmp, name), spec); err != nil {
			return err
		}
	}
	if n := row.Setup.BlankPDFPages; n > 0 {
		return os.WriteFile(filepath.Join(r.tmp, "x.pdf"), blankPDF(n), 0o666)
	}
	return nil
}

func (r *caseRun) step(s caseRow, differs func(*caseRun, caseRow, *message.ToolResult) error) error {
	args := r.expand(string(s.Args))
	var in struct {
		FilePath string `json:"file_path"`
	}
	json.Unmarshal([]byte(args), &in)
	if s.FileBefore != nil {
		path := in.FilePath
		if s.FileBefore.Dir != nil {
			path = r.tmp
		}
		if err := r.put(path, *s.FileBefore); err != nil {
			return err
		}
	}
	ctx := context.Background()
	if s.WithState || strings.HasPrefix(s.Tool, "Task") {
		ctx = toolstate.With(ctx, r.state)
	}
	tl := r.tools[s.Tool]
	if types := s.InputTypes; types != nil {
		var err error
		if tl, err = Read(Config{Dirs: []string{r.tmp}, ImageTypes: types}); err != nil {
			return err
		}
	}
	got := call(ctx, tl, args)
	if wantErr := s.Result.State == "error"; wantErr != (got.Outcome == message.OutcomeError) {
		return fmt.Errorf("outcome %s, want %s: %.200s", got.Outcome, s.Result.State, got.Text())
	}
	if err := r.checkFile(in.FilePath, s.FileAfter); err != nil {
		return err
	}
	if n := s.Result.Metadata.Occurrences; n != nil && string(got.Meta["occurrences"]) != fmt.Sprint(*n) {
		return fmt.Errorf("%s occurrences, want %d", got.Meta["occurrences"], *n)
	}
	if got.Outcome == message.OutcomeError && s.TasksAfter == nil {
		return nil // only the text may differ
	}
	return differs(r, s, got)
}

func (r *caseRun) expand(s string) string {
	return strings.NewReplacer("${TMP}", r.tmp, "${BASENAME}", filepath.Base(r.tmp)).Replace(s)
}

func (r *caseRun) put(path string, spec fileSpec) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	switch {
	case spec.Symlink != nil:
		return os.Symlink(r.expand(*spec.Symlink), path)
	case spec.Dir != nil:
		for name, text := range spec.Dir {
			if err := r.put(filepath.Join(path, name), fileSpec{Text: &text}); err != nil {
				return err
			}
		}
		return os.MkdirAll(path, 0o777)
	}
	want := spec.bytes()
	if have, err := os.ReadFile(path); err == nil && string(have) == string(want) {
		return nil // keep the modification time of an unchanged file
	}
	return os.WriteFile(path, want, 0o666)
}

func (s *fileSpec) bytes() []byte {
	if s.B64 != nil {
		data, _ := base64.StdEncoding.DecodeString(*s.B64)
		return data
	}
	if s.Text != nil {
		return []byte(*s.Text)
	}
	return nil
}

func (r *caseRun) checkFile(path string, want *fileSpec) error {
	if want == nil {
		return nil
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if string(have) != string(want.bytes()) {
		return fmt.Errorf("%s holds %q, want %q", path, have, want.bytes())
	}
	return nil
}

// note matches the line in brackets that our tools add to a text.
var note = regexp.MustCompile(`\n*\[(there are more|the file is empty|\S+ has )[^\n]*\]$`)

func TestReadCases(t *testing.T) {
	runCases(t, "read", func(r *caseRun, row caseRow, got *message.ToolResult) error {
		for i, raw := range row.Result.Content {
			var data struct{ Data, Name string }
			if json.Unmarshal(raw, &data) == nil {
				d, ok := got.Blocks[i].(*message.Data)
				if !ok || d.MediaType != data.Data || d.Name != r.expand(data.Name) {
					return fmt.Errorf("block %d is %+v, want %+v", i, got.Blocks[i], data)
				}
				continue
			}
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return err
			}
			if have := note.ReplaceAllString(got.Text(), ""); have != text {
				return fmt.Errorf("text %q, want %q", have, text)
			}
		}
		return nil
	})
}

// noExtraCheck is for rows of which runCases compares everything.
func noExtraCheck(*caseRun, caseRow, *message.ToolResult) error { return nil }

func TestWriteCases(t *testing.T) { runCases(t, "write", noExtraCheck) }
func TestEditCases(t *testing.T)  { runCases(t, "edit", noExtraCheck) }

func TestFileCacheCases(t *testing.T) {
	runCases(t, "file_cache", func(r *caseRun, row caseRow, got *message.ToolResult) error {
		if !row.WithState {
			return nil
		}
		var paths []string
		err := filesRead.Update(toolstate.With(context.Background(), r.state), func(list *[]fileRecord) error {
			for _, f := range *list {
				paths = append(paths, f.Path)
			}
			return nil
		})
		var want []string
		for _, p := range row.ReadCacheAfter {
			want = append(want, r.expand(p))
		}
		slices.Sort(paths)
		slices.Sort(want)
		if err == nil && !slices.Equal(paths, want) {
			err = fmt.Errorf("remembers %q, want %q", paths, want)
		}
		return err
	})
}

// below returns the lines of text that are paths below ${TMP}, as relative paths.
func (r *caseRun) below(text string) []string {
	var rel []string
	for line := range strings.Lines(text) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), r.tmp+"/"); ok {
			rel = append(rel, p)
		}
	}
	slices.Sort(rel)
	return rel
}

func TestGlobCases(t *testing.T) {
	runCases(t, "glob", func(r *caseRun, row caseRow, got *message.ToolResult) error {
		want := slices.Clone(row.Result.Matches)
		for _, raw := range row.Result.Content {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return err
			}
			want = append(want, r.below(r.expand(text))...)
		}
		slices.Sort(want)
		if have := r.below(got.Text()); !slices.Equal(have, want) {
			return fmt.Errorf("%s finds %q, want %q", row.Args, have, want)
		}
		return nil
	})
}

var pathNote = regexp.MustCompile(`(?m)^\[.*\]$`)

func TestGrepCases(t *testing.T) {
	runCases(t, "grep", func(r *caseRun, row caseRow, got *message.ToolResult) error {
		lines := func(text string) []string {
			list := strings.FieldsFunc(pathNote.ReplaceAllString(r.expand(text), ""), func(c rune) bool { return c == '\n' })
			slices.Sort(list)
			return list
		}
		have, want := lines(got.Text()), lines(strings.Join(row.Result.LinesSorted, "\n"))
		if n := row.Result.LineCount; n > 0 {
			if len(have) != n {
				return fmt.Errorf("%d lines, want %d: %q", len(have), n, have)
			}
			return nil
		}
		if row.Result.Text != nil {
			want = lines(*row.Result.Text)
		}
		for _, raw := range row.Result.Content {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return err
			}
			want = append(want, lines(text)...)
		}
		slices.Sort(want)
		if !slices.Equal(have, want) {
			return fmt.Errorf("%s finds %q, want %q", row.Args, have, want)
		}
		return nil
	})
}

// A caseTask is a task in the form of the case files.
type caseTask struct {
	ID, Subject, Description, State string
	Owner                           *string
	Blocks                          []string
	BlockedBy                       []string `json:"blocked_by"`
	Metadata                        map[string]json.RawMessage
}

func (c *caseTask) equal(t Task) bool {
	owner := ""
	if c.Owner != nil {
		owner = *c.Owner
	}
	same := func(a, b json.RawMessage) bool { return string(compact(a)) == string(compact(b)) }
	return c.ID == t.ID && c.Subject == t.Subject && c.Description == t.Description && c.State == string(t.Status) &&
		owner == t.Owner && slices.Equal(c.Blocks, t.Blocks) && slices.Equal(c.BlockedBy, t.BlockedBy) &&
		maps.EqualFunc(c.Metadata, t.Metadata, same)
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	json.Compact(&b, raw)
	return b.Bytes()
}

func TestTaskCases(t *testing.T) {
	runCases(t, "task", func(r *caseRun, row caseRow, got *message.ToolResult) error {
		tasks, err := Tasks(toolstate.With(context.Background(), r.state))
		if err == nil && !slices.EqualFunc(row.TasksAfter, tasks, func(c caseTask, t Task) bool { return c.equal(t) }) {
			err = fmt.Errorf("%s leaves %+v, want %+v", row.Args, tasks, row.TasksAfter)
		}
		return err
	})
}

// TestBashExecCases compares results by outcome and by the words of the output.
func TestBashExecCases(t *testing.T) {
	type row struct {
		Cwd    string
		Args   json.RawMessage
		Chunks []struct {
			State string
			Text  json.RawMessage
		}
	}
	deviations := casetest.LoadDeviations(t, "deviations_bash_exec.json")
	for i, row := range casetest.Rows[row](t, "bash_exec.jsonl") {
		b, err := Bash(Config{Dirs: []string{row.Cwd}})
		if err != nil {
			t.Fatal(err)
		}
		got := call(t.Context(), b, string(row.Args))
		if len(row.Chunks) != 1 {
			t.Fatalf("row %d has %d chunks", i+1, len(row.Chunks))
		}
		want := row.Chunks[0]
		err = nil
		if failed := got.Outcome == message.OutcomeError; failed != (want.State == "error") {
			err = fmt.Errorf("outcome %s, want %s", got.Outcome, want.State)
		} else if !failed {
			err = sameOutput(got.Text(), want.Text)
		}
		if err != nil && !deviations.Allowed(string(row.Args)) {
			t.Errorf("%s: %v", row.Args, err)
		}
	}
}

func sameOutput(got string, want json.RawMessage) error {
	var text string
	if json.Unmarshal(want, &text) == nil {
		got = strings.TrimSuffix(got, "(no output)")
		if !slices.Equal(strings.Fields(got), strings.Fields(text)) {
			return fmt.Errorf("output %q, want %q", got, text)
		}
		return nil
	}
	var shape struct{ Length int }
	if err := json.Unmarshal(want, &shape); err != nil {
		return err
	}
	if len(got) != shape.Length {
		return fmt.Errorf("%d characters, want %d", len(got), shape.Length)
	}
	return nil
}
