package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"pgregory.net/rapid"
)

// fileTools returns the tools by name, with the working directory dir, and a context with a session's state.
func fileTools(t testing.TB, dir string) (map[string]tool.Tool, context.Context) {
	t.Helper()
	all, err := New(Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	tools := map[string]tool.Tool{}
	for _, tl := range all {
		tools[tl.Info().Name] = tl
	}
	return tools, toolstate.With(context.Background(), &toolstate.State{})
}

func content(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// endless is a backend with one file of a gigabyte, in lines of 64 bytes, whose line 1,000,000 is different.
type endless struct{ Backend }

const (
	endlessLine = "...............................................................\n"
	endlessHere = "here...........................................................\n"
)

type endlessFile struct{ at int64 }

func (endless) Open(context.Context, permission.File) (fs.File, error) { return &endlessFile{}, nil }
func (f *endlessFile) Stat() (fs.FileInfo, error)                      { return f, nil }
func (f *endlessFile) Close() error                                    { return nil }
func (f *endlessFile) Name() string                                    { return "big.log" }
func (f *endlessFile) Size() int64                                     { return 1 << 30 }
func (f *endlessFile) Mode() fs.FileMode                               { return 0o666 }
func (f *endlessFile) ModTime() time.Time                              { return time.Time{} }
func (f *endlessFile) IsDir() bool                                     { return false }
func (f *endlessFile) Sys() any                                        { return nil }
func (f *endlessFile) Read(p []byte) (n int, err error) {
	for n+64 <= len(p) && f.at < 1<<30 {
		line := endlessLine
		if f.at == 999_999*64 {
			line = endlessHere
		}
		n += copy(p[n:], line)
		f.at += 64
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func TestReadFarLine(t *testing.T) {
	r, err := Read(Config{Dirs: []string{"/"}, Backend: endless{}})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res := call(toolstate.With(t.Context(), &toolstate.State{}), r, args("file_path", "/big.log", "offset", 1_000_000, "limit", 1))
	runtime.ReadMemStats(&after)
	want(t, res, "success", "1000000\there...")
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("allocated %d KiB", used>>10)
	}
}

func TestReadText(t *testing.T) {
	dir := files(t, map[string]string{
		"empty": "", "ten": strings.Repeat("x\n", 10), "many": strings.Repeat("x\n", 2500), "wide": strings.Repeat(strings.Repeat("y", 1999)+"\n", 200),
		"zero": "a\x00b", "mac": "a\rb\r", "utf8": strings.Repeat("é", 2001), "cut": strings.Repeat("a", 5) + "\xc3",
	})
	for _, row := range []struct{ file, more, outcome, text string }{
		{"empty", "", "success", "[the file is empty]"},
		{"ten", `,"offset":11`, "success", "has 10 lines; line 11 does not exist: use a smaller offset]"},
		{"ten", `,"offset":10`, "success", "    10\tx"},
		{"many", "", "success", "continue with offset 2001]"},
		{"many", `,"offset":2001`, "success", "  2500\tx"},
		{"wide", "", "success", "continue with offset 41]"},
		{"zero", "", "error", "zero bytes"},
		{"mac", "", "success", "     1\ta\n     2\tb"},
		{"utf8", "", "success", strings.Repeat("é", 2000) + "[truncated]"},
		{"cut", "", "success", "aaaaa\uFFFD"},
		{"ten", `,"pages":"1"`, "error", "pages is for PDF"},
		{"ten", `,"limit":2001`, "success", "    10\tx"},
		{"many", `,"limit":5000`, "success", "continue with offset 2001]\n[limit 5000 is too large: one call returns at most 2000 lines]"},
		{"many", `,"limit":3`, "success", "     3\tx"},
	} {
		want(t, call(t.Context(), readTool(t, dir), fmt.Sprintf(`{"file_path":%q%s}`, filepath.Join(dir, row.file), row.more)), message.Outcome(row.outcome), row.text)
	}
}

func TestReadNotebook(t *testing.T) {
	dir := files(t, map[string]string{"n.ipynb": `{"nbformat":4,"cells":[
		{"cell_type":"markdown","id":"a","source":["# Title\n","text"]},
		{"cell_type":"code","source":"print(1)","execution_count":1,"outputs":[{"output_type":"stream","text":["1\n"]},
			{"output_type":"display_data","data":{"image/png":"iVBORw==","text/plain":"<Figure>"}},
			{"output_type":"execute_result","data":{"text/plain":["2"]}},
			{"output_type":"error","ename":"E","evalue":"v","traceback":["t1","t2"]}]}]}`,
		"bad.ipynb": `{"cells": 3}`})
	res := call(t.Context(), readTool(t, dir), args("file_path", filepath.Join(dir, "n.ipynb")))
	want(t, res, "success", "<cell id=\"a\" type=\"markdown\">\n# Title\ntext\n</cell>\n<cell id=\"cell-1\" type=\"code\">\nprint(1)\n</cell>\n<output>\n1\n</output>\n")
	want(t, res, "success", "<output>\n2\n</output>\n<output>\nE: v\nt1\nt2\n</output>")
	if d, ok := res.Blocks[1].(*message.Data); !ok || d.MediaType != "image/png" || len(d.Bytes) != 4 {
		t.Errorf("block 1 is %+v", res.Blocks[1])
	}
	want(t, call(t.Context(), readTool(t, dir), args("file_path", filepath.Join(dir, "bad.ipynb"))), "error", "not a notebook")
}

// TestReadNotebookLimits checks that pictures the model cannot see are replaced by text, and that text is
// limited even with pictures in between.
func TestReadNotebookLimits(t *testing.T) {
	cell := fmt.Sprintf(`{"cell_type":"code","source":%q,"outputs":[{"output_type":"display_data","data":{"image/png":"iVBORw==","text/plain":"<Figure>"}}]}`,
		strings.Repeat("x", 30_000))
	dir := files(t, map[string]string{"n.ipynb": `{"cells":[` + strings.Repeat(cell+",", 9) + cell + `]}`,
		"one.ipynb": fmt.Sprintf(`{"cells":[{"cell_type":"code","source":%q}]}`, strings.Repeat("x", 2*maxReadText))})
	read := func(name string, types ...string) *message.ToolResult {
		r, err := Read(Config{Dirs: []string{dir}, ImageTypes: append([]string{}, types...)})
		if err != nil {
			t.Fatal(err)
		}
		return call(t.Context(), r, args("file_path", filepath.Join(dir, name)))
	}
	pictures := func(res *message.ToolResult) (n int) {
		for _, b := range res.Blocks {
			if _, ok := b.(*message.Data); ok {
				n++
			}
		}
		return n
	}
	blind, seeing, one := read("n.ipynb"), read("n.ipynb", "image/*"), read("one.ipynb")
	want(t, blind, "success", "<output>\n<Figure>\n</output>")
	if n, m := pictures(blind), pictures(seeing); n != 0 || m != 3 {
		t.Errorf("%d and %d pictures, want 0 and 3", n, m)
	}
	want(t, seeing, "success", "[7 cells more; see them with Bash]")
	want(t, one, "success", "[truncated]\n</cell>")
	for _, res := range []*message.ToolResult{blind, seeing, one} {
		if n := len(res.Text()); n > maxReadText+200_000 {
			t.Errorf("%d bytes of text", n)
		}
	}
}

// noEnd is an endless file.
type noEnd struct{ fs.File }

func (noEnd) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

type noEndBackend struct{ Local }

func (b *noEndBackend) Open(ctx context.Context, file permission.File) (fs.File, error) {
	f, err := b.Local.Open(ctx, file)
	return noEnd{f}, err
}

// TestReadIsCancelled checks that the search for a late line ends with the context.
func TestReadIsCancelled(t *testing.T) {
	dir := files(t, map[string]string{"a": ""})
	r, err := Read(Config{Dirs: []string{dir}, Backend: &noEndBackend{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	res := call(ctx, r, args("file_path", filepath.Join(dir, "a"), "offset", 1<<50))
	if res.Outcome == message.OutcomeSuccess {
		t.Errorf("%s: %.100q", res.Outcome, res.Text())
	}
}

func TestImageTooLarge(t *testing.T) {
	dir := files(t, map[string]string{"a.png": strings.Repeat("x", maxImage+1)})
	want(t, call(t.Context(), readTool(t, dir), args("file_path", filepath.Join(dir, "a.png"))), "error", "larger than 10 MiB")
}

// TestLongLineNotUTF8 checks that a line is marked as truncated whose bytes make few characters.
func TestLongLineNotUTF8(t *testing.T) {
	dir := files(t, map[string]string{"gbk.txt": strings.Repeat("\xff", 9000) + "the end\n"})
	want(t, call(t.Context(), readTool(t, dir), args("file_path", filepath.Join(dir, "gbk.txt"))), "success", "[truncated]")
}

// TestPathThroughFile checks that the error calls no missing name a file.
func TestPathThroughFile(t *testing.T) {
	dir := files(t, map[string]string{"notes.txt": "x"})
	name := filepath.Join(dir, "notes.txt", "missing", "x")
	want(t, call(t.Context(), readTool(t, dir), args("file_path", name)), "error", name+": a directory of this path is a file")
}

// TestEditKeepsBytes checks that an edit changes only the bytes that it replaces, whatever line ends and byte
// order marks the file has, and that new text gets the file's line ends.
func TestEditKeepsBytes(t *testing.T) {
	dir := files(t, nil)
	tools, ctx := fileTools(t, dir)
	path := filepath.Join(dir, "f")
	lines := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b\n", "c\r\n", "\r", "é", "\r\n", "\n", " ", "\t"}))
	rapid.Check(t, func(t *rapid.T) {
		eol := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "eol")
		mark := rapid.SampledFrom([]string{"", bom}).Draw(t, "mark")
		before := mark + strings.Join(lines.Draw(t, "before"), "")
		after := strings.Join(lines.Draw(t, "after"), "")
		// Add enough line ends of one kind to make it the most frequent.
		common := strings.Repeat(eol, strings.Count(before+after, "\n")+3)
		if err := os.WriteFile(path, []byte(before+"OLD"+eol+"END"+after+common), 0o666); err != nil {
			t.Fatal(err)
		}
		call(ctx, tools["Read"], args("file_path", path))
		res := call(ctx, tools["Edit"], args("file_path", path, "old_string", "OLD\nEND", "new_string", "new\nlines\n"))
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := before + "new" + eol + "lines" + eol + after + common; string(got) != want || res.Outcome != "success" {
			t.Fatalf("%s %s: %q, want %q", res.Outcome, res.Text(), got, want)
		}
	})
}

func TestEditSeveral(t *testing.T) {
	dir := files(t, map[string]string{"f": "one two three\n"})
	tools, ctx := fileTools(t, dir)
	path := filepath.Join(dir, "f")
	edit := func(edits ...map[string]any) *message.ToolResult {
		return call(ctx, tools["Edit"], args("file_path", path, "edits", edits))
	}
	replace := func(old, new string) map[string]any { return map[string]any{"old_string": old, "new_string": new} }
	want(t, edit(replace("one", "1")), "error", "not read in this session")
	call(ctx, tools["Read"], args("file_path", path))
	want(t, edit(replace("one", "1"), replace("four", "4")), "error", "edit 2 of 2 failed, so none was made")
	want(t, edit(replace("one", "1"), replace("1 two", "2")), "success", "2 occurrences")
	if got := content(t, path); got != "2 three\n" {
		t.Errorf("the file has %q", got)
	}
	want(t, edit(replace("three", "3")), "success", "") // its own edit counts as reading
	want(t, call(ctx, tools["Edit"], args("file_path", path, "old_string", "2", "edits", []any{replace("3", "4")})), "error", "not both")
}

// TestEditGrows checks that no edit makes a file larger than Edit can change, however often replacements multiply the text.
func TestEditGrows(t *testing.T) {
	dir := files(t, map[string]string{"a": "a", "many": strings.Repeat("a", 1<<20)})
	tools, ctx := fileTools(t, dir)
	double := slices.Repeat([]any{map[string]any{"old_string": "a", "new_string": "aa", "replace_all": true}}, 100)
	for _, in := range []string{
		args("file_path", "a", "edits", double),
		args("file_path", "many", "old_string", "a", "new_string", strings.Repeat("b", 1<<16), "replace_all", true),
	} {
		for _, name := range []string{"a", "many"} {
			call(ctx, tools["Read"], args("file_path", name))
		}
		want(t, call(ctx, tools["Edit"], in), "error", "more than 32 MiB")
		if _, err := tool.Preview(ctx, tools["Edit"], json.RawMessage(in)); err == nil || !strings.Contains(err.Error(), "more than 32 MiB") {
			t.Errorf("preview: %v", err)
		}
	}
}

func TestEditHints(t *testing.T) {
	dir := files(t, map[string]string{"f": "func a() {\n\treturn\n}\n"})
	tools, _ := fileTools(t, dir)
	for old, hint := range map[string]string{
		"     2\t\treturn": "line numbers", "func a() {\n  return": "line 1 differs in white space", "nothing": "read the file again",
	} {
		want(t, call(t.Context(), tools["Edit"], args("file_path", filepath.Join(dir, "f"), "old_string", old, "new_string", "x")), "error", hint)
	}
}

// TestWriteKeeps checks that mode, line ends, byte order mark and symbolic links survive a Write.
func TestWriteKeeps(t *testing.T) {
	dir := files(t, map[string]string{"run.sh": "#!/bin/sh\n", "crlf": "a\r\nb\r\n", "bom": bom + "a\n", "target": "t"})
	tools, ctx := fileTools(t, dir)
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"run.sh": "x\ny\n", "crlf": "x\r\ny\r\n", "bom": bom + "x\ny\n", "link": "x\ny\n"} {
		path := filepath.Join(dir, name)
		call(ctx, tools["Read"], args("file_path", path))
		if res := call(ctx, tools["Write"], args("file_path", path, "content", "x\ny\n")); res.Outcome != "success" || content(t, path) != want {
			t.Errorf("%s: %s %q has %q, want %q", name, res.Outcome, res.Text(), content(t, path), want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "run.sh")); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "link")); err != nil || info.Mode().Type() != fs.ModeSymlink || content(t, filepath.Join(dir, "target")) != "x\ny\n" {
		t.Errorf("the link is %v (%v)", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".kitbag-*")); left != nil {
		t.Errorf("left behind: %q", left)
	}
}

// TestEditOfRepetitions checks that an edit of a repetitive text costs no more than others.
func TestEditOfRepetitions(t *testing.T) {
	as, blank := strings.Repeat("a", 2<<20), strings.Repeat("\n", 2<<20)
	for _, row := range []struct{ text, old, want string }{
		{as, as[:1<<20], "at least 100 times"},
		{"aaa", "aa", "occurs 2 times"},
		{blank, "x" + blank[:1<<19] + "y", "copy the text exactly"},
	} {
		if _, _, err := (replacement{Old: row.old, New: "b"}).replace(row.text); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%d in %d bytes: %v, want %q", len(row.old), len(row.text), err, row.want)
		}
	}
}

// TestReadThroughLink checks that a link and its target share the record of reads.
func TestReadThroughLink(t *testing.T) {
	dir := files(t, map[string]string{"target": "a\n"})
	tools, ctx := fileTools(t, dir)
	if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	call(ctx, tools["Read"], args("file_path", filepath.Join(dir, "link")))
	want(t, call(ctx, tools["Edit"], args("file_path", filepath.Join(dir, "target"), "old_string", "a", "new_string", "b")), "success", "")
}

// TestWriteBehindMissingDirectory checks that a link behind a missing directory, which Write would create, is
// judged by its target.
func TestWriteBehindMissingDirectory(t *testing.T) {
	dir := files(t, map[string]string{".git/hooks/x": ""})
	tools, _ := fileTools(t, dir)
	if err := os.Symlink(".git/hooks", filepath.Join(dir, "hooks")); err != nil {
		t.Fatal(err)
	}
	p := &permission.Policy{Mode: permission.ModeAcceptEdits, Dirs: []string{dir}}
	in := json.RawMessage(args("file_path", dir+"/new/../hooks/pre-commit", "content", "#!/bin/sh\n"))
	if d := permission.Decide(p, tool.PermissionCall(tools["Write"], in)); !d.Safety || d.Behavior != permission.Ask {
		t.Errorf("%+v, want a safety ask", d)
	}
}

// TestPreviewNamesOneFile checks that a path with line breaks cannot begin a change of another file.
func TestPreviewNamesOneFile(t *testing.T) {
	dir := files(t, nil)
	write, err := Write(Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := tool.As[tool.Previewer](write)
	name := dir + "/n\n--- /dev/null\n+++ b/harmless\n@@ -0,0 +1,1 @@\n+fine\n"
	shown, err := p.Preview(t.Context(), json.RawMessage(args("file_path", name, "content", "evil\n")))
	if want := "--- /dev/null\n+++ b" + strconv.Quote(name) + "\n@@ -0,0 +1,1 @@\n+evil\n"; err != nil || shown != want {
		t.Errorf("the change is shown as\n%s\nwant\n%s\n%v", shown, want, err)
	}
}

// TestPreview checks that the preview equals the diff of the call.
func TestPreview(t *testing.T) {
	dir := files(t, map[string]string{"f": "a\nb\n"})
	tools, ctx := fileTools(t, dir)
	path := filepath.Join(dir, "f")
	call(ctx, tools["Read"], args("file_path", path))
	for name, in := range map[string]string{
		"Edit":  args("file_path", path, "old_string", "b", "new_string", "c"),
		"Write": args("file_path", filepath.Join(dir, "new"), "content", "x\n"),
	} {
		p, ok := tool.As[tool.Previewer](tools[name])
		if !ok {
			t.Fatalf("%s has no preview", name)
		}
		shown, err := p.Preview(ctx, json.RawMessage(in))
		if err != nil || !strings.Contains(shown, "@@") {
			t.Errorf("%s: %q (%v)", name, shown, err)
		}
		res := call(ctx, tools[name], in)
		var diff string
		if err := json.Unmarshal(res.Meta["diff"], &diff); err != nil || diff != shown || res.ForUser.Text() != shown {
			t.Errorf("%s showed %q and did %q", name, shown, diff)
		}
	}
}

func TestRecordsAreBounded(t *testing.T) {
	ctx := toolstate.With(t.Context(), &toolstate.State{})
	for i := range maxRecords + 5 {
		if err := recordHash(ctx, permission.File{Path: fmt.Sprintf("/no/such/%d", i)}, "h"); err != nil {
			t.Fatal(err)
		}
	}
	first, err := recordedHash(ctx, permission.File{Path: "/no/such/0"})
	last, err2 := recordedHash(ctx, permission.File{Path: fmt.Sprintf("/no/such/%d", maxRecords+4)})
	if first != "" || last != "h" || err != nil || err2 != nil {
		t.Errorf("the first is %q, the last %q (%v, %v)", first, last, err, err2)
	}
}

// TestWriteSurvivesKill checks that a killed writer leaves either the old file or the new one.
func TestWriteSurvivesKill(t *testing.T) {
	if path := os.Getenv("KITBAG_TEST_WRITER"); path != "" {
		writeForever(path)
	}
	path := filepath.Join(files(t, map[string]string{"f": "a"}), "f")
	for i := range 10 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWriteSurvivesKill$")
		cmd.Env = append(os.Environ(), "KITBAG_TEST_WRITER="+path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		old := content(t, path)
		for content(t, path) == old { // until it writes
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		got := content(t, path)
		if got != "a" && (len(got) != 1<<20 || strings.Count(got, got[:1]) != len(got)) {
			t.Fatalf("the file has %d bytes, %.20q…", len(got), got)
		}
	}
}

func writeForever(path string) {
	l := &Local{}
	for i := 0; ; i++ {
		if err := l.Write(context.Background(), permission.File{Path: path}, []byte(strings.Repeat(string(rune('b'+i%20)), 1<<20))); err != nil {
			panic(err)
		}
	}
}

// TestLocalOpens checks which files Local opens: none that may block or never end, and none outside Dirs if Confined.
func TestLocalOpens(t *testing.T) {
	dir := files(t, map[string]string{"in/f": "x", "out/g": "y"})
	if err := os.Symlink("../out/g", filepath.Join(dir, "in/link")); err != nil {
		t.Fatal(err)
	}
	l := &Local{Dirs: []string{filepath.Join(dir, "in")}}
	confined := &Local{Dirs: l.Dirs, Confined: true}
	for _, row := range []struct {
		backend *Local
		path    string
		err     string
	}{
		{l, "in/f", ""}, {l, "in/link", ""}, {l, "out/g", ""}, {l, "in", ""}, {l, "in/no", "does not exist"},
		{confined, "in/f", ""}, {confined, "in/link", "confined"}, {confined, "out/g", "confined"}, {confined, "in/../out/g", "confined"},
	} {
		f, err := row.backend.Open(t.Context(), permission.File{Path: filepath.Join(dir, row.path)})
		if err == nil {
			f.Close()
		}
		if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("confined %v, %s: %v, want %q", row.backend.Confined, row.path, err, row.err)
		}
	}
	if err := confined.Write(t.Context(), permission.File{Path: filepath.Join(dir, "in/link")}, []byte("z")); err == nil || content(t, filepath.Join(dir, "out/g")) != "y" {
		t.Errorf("wrote through a link out of the directory (%v)", err)
	}
	if runtime.GOOS == "linux" {
		for _, path := range []string{"/dev/zero", "/proc/self/environ", "/proc/self", "/sys/kernel", "/dev/stdin"} {
			if f, err := l.Open(t.Context(), permission.File{Path: path}); err == nil {
				f.Close()
				t.Errorf("%s was opened", path)
			}
		}
	}
}
