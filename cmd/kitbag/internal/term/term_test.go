package term

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// keys are the keys that the rows name; all other text is typed.
var keys = map[string]tea.KeyPressMsg{
	"<enter>": {Code: tea.KeyEnter}, "<up>": {Code: tea.KeyUp}, "<down>": {Code: tea.KeyDown}, "<tab>": {Code: tea.KeyTab},
	"<c>": {Code: 'c', Mod: tea.ModCtrl}, "<d>": {Code: 'd', Mod: tea.ModCtrl}, "<j>": {Code: 'j', Mod: tea.ModCtrl}, "<left>": {Code: tea.KeyLeft},
}

// press presses the keys of a row, and sends what <report>, <shown>, <ask>, <line>, <work>, <done> and <paste:…> mean.
func press(t *testing.T, s *state, typed string, reply chan answer) {
	t.Helper()
	for typed != "" {
		name, rest := typed[:len(string([]rune(typed)[0]))], ""
		if strings.HasPrefix(typed, "<") {
			name = typed[:strings.Index(typed, ">")+1]
		}
		rest = typed[len(name):]
		if text, ok := strings.CutPrefix(name, "<paste:"); ok {
			s.update(tea.PasteMsg{Content: strings.ReplaceAll(strings.TrimSuffix(text, ">"), "|", "\r\n")})
		} else if k, ok := keys[name]; ok {
			s.update(k)
		} else {
			switch name {
			case "<report>":
				s.update(tea.CursorPositionMsg{})
			case "<shown>":
				s.update(tea.CursorPositionMsg{})
				s.update(tea.CursorPositionMsg{})
			case "<late>":
				s.update(lateMsg{s.asked})
			case "<resume>":
				s.update(tea.ResumeMsg{})
			case "<ask>":
				s.update(askMsg{label: "may it?", keys: "yn", reply: reply})
			case "<line>":
				s.update(askMsg{label: "name?", text: "old", reply: reply})
			case "<work>":
				s.update(workMsg{label: "thinking", cancel: func() { reply <- answer{text: "cancelled"} }})
			case "<done>":
				s.update(doneMsg{})
			case "<read>":
				s.update(readMsg{reply})
			default:
				r := []rune(name)[0]
				s.update(tea.KeyPressMsg{Code: r, Text: name})
			}
		}
		typed = rest
	}
}

// TestKeys has rows: what is pressed, what is answered (to a reader or a question), and what is in the editor then.
func TestKeys(t *testing.T) {
	for _, row := range []struct{ why, typed, answered, editor string }{
		{"a message", "<read>hi<enter>", "hi", ""},
		{"nothing is not a message", "<read>  <enter>", "", "  "},
		{"a line with a backslash continues", `<read>a\<enter>b<enter>`, "a\nb", ""},
		{"ctrl-j begins a line", "<read>a<j>b<enter>", "a\nb", ""},
		{"several pasted lines are one message", "<read><paste:a|b|c><enter>", "a\nb\nc", ""},
		{"a long text is pasted as a note", "<read>see <paste:1|2|3|4|5|6|7|8>!", "", "see [pasted text 1: 8 lines]!"},
		{"and sent whole", "<read>see <paste:1|2|3|4|5|6|7|8>!<enter>", "see 1\n2\n3\n4\n5\n6\n7\n8!", ""},
		{"tabs are kept", "<read><paste:a\tb><enter>", "a\tb", ""},
		{"the last message again", "<read><up>", "", "second"},
		{"the first message", "<read><up><up><up>", "", "first"},
		{"what was typed comes back", "<read>draft<up><down>", "", "draft"},
		{"a message that is sent during work waits", "<work>next<enter><done><read>", "next", ""},
		{"an interrupt cancels the work and keeps what is typed", "<work>half<c>", "cancelled", "half"},
		{"and takes back what waits", "<work>one<enter>two<c>", "cancelled", "one\ntwo"},
		{"an interrupt empties the editor", "<read>half<c>", "", ""},
		{"a second one leaves", "<read>half<c><c>", "error: the input has ended", ""},
		{"not after another key", "<read><c>a<c>", "", ""},
		{"ctrl-d leaves", "<read><d>", "error: the input has ended", ""},
		{"not with text before it", "<read>a<d>", "", "a"},
		{"nor during work", "<read><work><d>", "", ""},
		{"leaving before a reader is there", "<c><c><read>", "error: the input has ended", ""},
		{"a key before the question is shown is no answer", "<ask>y", "", ""},
		{"nor while it may still be drawn", "<ask><report>y", "", ""},
		{"a key after it is", "<ask>y<shown>n", "n", ""},
		{"other keys are not", "<ask><shown>x<enter>", "", ""},
		{"a paste is no key", "<ask><shown><paste:y>", "", ""},
		{"a question is not shown by the reports for an earlier one", "<ask><c><ask><report><report>y", "error: interrupted", ""},
		{"but by its own", "<ask><c><ask><report><report><report>y", "error: interrupted, y", ""},
		{"a terminal without reports gets time", "<ask>y<late>n", "n", ""},
		{"not one whose reports are late", "<ask><report>y<late>y<shown>n", "n", ""},
		{"a report that is lost is requested again", "<ask><shown>n<ask><late>y<shown>n", "n, n", ""},
		{"as after another program had the terminal", "<ask><resume><report>y<report>n", "n", ""},
		{"upper case", "<ask><shown>Y", "y", ""},
		{"what was typed stays behind a question", "dra<ask><shown>yft", "y", "draft"},
		{"a line", "<line><shown>er<enter>", "older", ""},
		{"a line is not typed before it is shown", "<line>x<enter><shown><enter>", "old", ""},
		{"an interrupt at a question", "<ask><shown><c>", "error: interrupted", ""},
		{"at a question that is not shown yet", "<ask><c>", "error: interrupted", ""},
		{"at a question during work", "<work><ask><shown><c>", "cancelled, error: interrupted", ""},
		{"a command is completed", "<read>/he<tab>", "", "/help"},
		{"as far as it is certain", "<read>/e<tab>", "", "/ex"},
		{"then the one that is picked", "<read>/ex<down><tab>", "", "/export"},
		{"a file is completed", "<read>see @a<tab>", "", "see @add.go"},
		{"a path is not a command", "<read>see /he<tab>", "", "see /he"},
	} {
		t.Run(row.why, func(t *testing.T) {
			reply := make(chan answer, 10)
			s := newState(Options{History: &History{entries: []string{"first", "second"}}, Complete: completions})
			s.update(tea.WindowSizeMsg{Width: 80, Height: 24})
			press(t, s, row.typed, reply)
			var got []string
			for len(reply) > 0 {
				if a := <-reply; a.err != nil {
					got = append(got, "error: "+a.err.Error())
				} else {
					got = append(got, a.text)
				}
			}
			if strings.Join(got, ", ") != row.answered || s.editor.Value() != row.editor {
				t.Errorf("answered %q, want %q; the editor has %q, want %q", got, row.answered, s.editor.Value(), row.editor)
			}
		})
	}
}

func completions(word string) (out []Candidate) {
	for _, c := range []string{"/exit", "/export", "/help", "@add.go"} {
		if strings.HasPrefix(c, word) {
			out = append(out, Candidate{Text: c})
		}
	}
	return out
}

// TestKeysAnyhow presses anything in any order: the state never panics, the frame fits the terminal, and
// nothing is answered by keys from before a question was shown.
func TestKeysAnyhow(t *testing.T) {
	all := []string{"<enter>", "<up>", "<down>", "<tab>", "<c>", "<d>", "<j>", "<left>", "<shown>", "<ask>", "<line>", "<work>", "<done>", "<read>",
		"<paste:a|b>", "<paste:1|2|3|4|5|6|7>", "a", "y", "n", "/", "@", "漢", "é", "\\", " "}
	rapid.Check(t, func(rt *rapid.T) {
		reply := make(chan answer, 1000)
		s := newState(Options{History: &History{}, Complete: completions})
		for range rapid.IntRange(1, 60).Draw(rt, "n") {
			if rapid.IntRange(0, 9).Draw(rt, "resize") == 0 {
				s.update(tea.WindowSizeMsg{Width: rapid.IntRange(1, 90).Draw(rt, "width"), Height: rapid.IntRange(1, 30).Draw(rt, "height")})
			}
			press(t, s, rapid.SampledFrom(all).Draw(rt, "key"), reply)
			text, cursor := s.view()
			lines := strings.Split(text, "\n")
			if len(lines) > max(maxFrameRows(s.height), 4) {
				rt.Fatalf("%d rows of %d:\n%s", len(lines), s.height, text)
			}
			for _, line := range lines {
				if ansi.StringWidth(line) > s.width {
					rt.Fatalf("%q is wider than %d", line, s.width)
				}
			}
			if cursor != nil && (cursor.Y < 0 || cursor.Y >= len(lines)) {
				rt.Fatalf("the cursor is in row %d of %d", cursor.Y, len(lines))
			}
		}
	})
}

// TestMarkdown renders what models write. Without colour the marks stay.
func TestMarkdown(t *testing.T) {
	for _, row := range []struct {
		why, src, want string
		width          int
	}{
		{"a paragraph is wrapped", "one two three four", "one two\nthree four", 10},
		{"a heading", "## About *it*", "## About *it*", 40},
		{"nested lists", "1. a\n   - b\n   - c\n2. d", "1. a\n   • b\n   • c\n2. d", 40},
		{"a long item", "- one two three", "• one two\n  three", 11},
		{"tasks", "- [x] a\n- [ ] b", "• ☑ a\n• ☐ b", 40},
		{"code", "```\n\ta  b\n```", "      a  b", 40},
		{"a quotation", "> a\n> b", "│ a b", 40},
		{"a table", "|a|bb|\n|-|-|\n|ccc|d|", "a   │ bb\n────┼────\nccc │ d", 40},
		{"cells that share the width", "|a|b|\n|-|-|\n|one|one two three four five six seven|\n|two|-|", "a   │ b\n────┼────────────────────────────\none │ one two three four five\n    │ six seven\n────┼────────────────────────────\ntwo │ -", 33},
		{"a row with too few cells", "|a|bb|\n|-|-|\n|ccc|", "a   │ bb\n────┼────\nccc │", 40},
		{"a table that is too wide", "|a|bb|\n|-|-|\n|cccccccc|dddddd|", "a: cccccccc\nbb: dddddd", 12},
		{"a link", "[here](https://a.b/c?d=1&e=2)", "here (https://a.b/c?d=1&e=2)", 60},
		{"a link that shows its address", "<https://a.b>", "https://a.b", 60},
		{"references", "a &amp; b &lt;", "a & b <", 40},
		{"the reference of a control character", "a &#27;[31m &#x1b;]0;t&#7; &#155;b", "a [31m ]0;t ›b", 40},
		{"one without its end", "a &#27[31mb", "a [31mb", 40},
		{"one in code", "`&#27;[31m`", "`&#27;[31m`", 40},
		{"one in a link", "[a](http://b/&#27;[2J)", "a (http://b/&#27;[2J)", 40},
		{"raw control characters", "a\x1b[2Jb\x9b31m\u202ec", "a[2Jb\ufffd31mc", 40},
		{"wide characters", "漢字漢字漢字", "漢字漢字\n漢字", 8},
		{"HTML", "<b>x</b>", "<b>x</b>", 40},
	} {
		if got := strings.Join(Markdown(row.src, row.width, false), "\n"); got != row.want {
			t.Errorf("%s: %q is shown as\n%s\nwant\n%s", row.why, row.src, got, row.want)
		}
	}
	if got, want := Markdown("a **b *c* d**", 40, true)[0], "a \x1b[1mb \x1b[3mc\x1b[0m\x1b[1m d\x1b[0m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzMarkdown checks that no control character gets through, that every line fits, and that the blocks of a
// stream are the text, however it is cut.
func FuzzMarkdown(f *testing.F) {
	for _, s := range []string{"# a\n\n- b\n\n  c\n\nd", "```\n\n~~~\n\n```\n\nx", "&#27;[31m&#x9b;`&#7;`", "|a|\n|-|\n|\\&#27;|", "[a]: b&#27;\n\n[a]", "1. a\n\n2. b\n\nc\n", "<a href='&#27;'>\n\n![&#27;](&#27;)"} {
		f.Add(s, 20, 3)
	}
	f.Fuzz(func(t *testing.T, src string, width, cut int) {
		width, cut = 8+abs(width)%100, 1+abs(cut)%20
		for _, line := range Markdown(src, width, false) {
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
				t.Fatalf("%q has a control character", line)
			}
		}
		for _, line := range Markdown(src, width, true) {
			if rest := ansi.Strip(line); onlyColours(line) != line || strings.Contains(rest, "\x1b") {
				t.Fatalf("%q has more than colours", line)
			}
		}
		s, all := stream{}, ""
		for i := 0; i < len(src); i += cut {
			all += s.add(src[i:min(len(src), i+cut)])
		}
		if all += s.end(); all != src {
			t.Fatalf("%q came out as %q", src, all)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

// TestStream has rows of text in which | is where the complete blocks end.
func TestStream(t *testing.T) {
	for _, want := range []string{
		"a\n\n|b\n",
		"a\nb\n",
		"- a\n\n- b\n\n|c\n",
		"1. a\n\n   b\n\n2. c\n\n|d\n",
		"```\na\n\nb\n```\n\n|c\n",
		"````\n```\n\nb\n````\n\n|c\n",
		"# a\n\n|b\n\nc",
		"- a\n\n  ```\n  x\n\n  y\n  ```\n\n|b\n",
	} {
		src := strings.ReplaceAll(want, "|", "")
		if n := completeBlocks(src); n != max(strings.Index(want, "|"), 0) {
			t.Errorf("%q is complete up to %d", want, n)
		}
	}
}

// TestHistory stores messages for the owner only, without secrets, and forgets the oldest.
func TestHistory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "of", "dir", "history")
	open := func() *History {
		t.Helper()
		h, err := OpenHistory(file, func(s string) string { return strings.ReplaceAll(s, "secret", "[redacted]") })
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := open()
	for _, text := range []string{"one\ntwo", "my secret", "my secret", " ", strings.Repeat("x", maxEntry+1)} {
		if err := h.Add(text); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(open().entries, "|"); got != "one\ntwo|my [redacted]" {
		t.Errorf("the history is %q", got)
	}
	for file, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	for range maxHistory {
		h.Add("a")
		h.Add("b")
	}
	before, _ := os.ReadFile(file)
	if h = open(); len(h.entries) != maxHistory {
		t.Errorf("%d entries", len(h.entries))
	}
	if after, _ := os.ReadFile(file); len(after) >= len(before) {
		t.Errorf("the file has %d bytes, and %d after it was read", len(before), len(after))
	}
	damaged := strings.Repeat("\"a\"\n\"b\"\n", 2*maxHistory) + strings.Repeat("x", 8*maxEntry) + "\n\"newest\"\n"
	if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenHistory(file, nil)
	if after, _ := os.ReadFile(file); err == nil || string(after) != damaged {
		t.Errorf("after an error in reading: %v, and %d of %d bytes", err, len(after), len(damaged))
	}
}

// TestPrintKeepsColours removes all but colours from what is printed.
func TestPrintKeepsColours(t *testing.T) {
	if got, want := onlyColours("\x1b[31ma\x1b[0m\x1b[2J\x1b]0;t\x07b\x1b[1;1Hc\x9b2Jd\te"), "\x1b[31ma\x1b[0m2J]0;tb1;1Hc\ufffd2Jd    e"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := fold("    long words here", 12); strings.Join(got, "|") != "    long|      words|      here" {
		t.Errorf("%q", got)
	}
}

// TestTooComplex: Markdown that would take long to lay out is only wrapped, with all of its text.
func TestTooComplex(t *testing.T) {
	const n = 20_000
	repeat := strings.Repeat
	for name, src := range map[string]string{
		"quotations": repeat(">", n) + "end", "quotations and spaces": repeat("> ", n) + "end", "lists": repeat("- ", n) + "end", "numbers": repeat("1. ", n) + "end",
		"both": repeat("- > ", n) + "end", "emphasis": repeat("*a ", n) + repeat("b* ", n) + "end", "underscores": repeat("_a ", n) + repeat("b_ ", n) + "end",
		"over lines": repeat("*a\n", n) + repeat("b*\n", n) + "end", "strikethrough": repeat("~~a ", n) + repeat("b~~ ", n) + "end", "links": repeat("[a](", n) + "end",
		"columns": repeat("|a", n) + "\n" + repeat("|-", n) + "\n" + repeat("|a\n", n) + "end", "after a fence in HTML": "<!--\n```\n-->\n" + repeat("~~a ", n) + "end",
		"after a fence in a list": "- a\n  ```\n" + repeat("~~a ", n) + "end", "after code": "```\n```\n" + repeat("~~a ", n) + "end", "after a fence with text": "```\n``` a\n```\n" + repeat("~~a ", n) + "end",
	} {
		lines := Markdown(src, 80, true)
		if len(lines) == 0 || !strings.HasSuffix(strings.TrimSpace(lines[len(lines)-1]), "end") || !tooComplex(src) {
			t.Errorf("%s: %d lines", name, len(lines))
		}
	}
	for name, src := range map[string]string{
		"code": "```go\n" + repeat("a[*b] = c_d ~ e\n", n) + "```\n", "a list": repeat("- **bold** and [a](b)\n", n), "paragraphs": repeat("some *words* in a row\n\n", n),
		"names": repeat("a_b c_d ", n), "a rule": repeat("-", n), "a rule of stars": repeat("* ", 200), "a drawn table": "+" + repeat("-----+", 99), "a table": "|a|b|\n|-|-|\n" + repeat("|1|2|\n", n),
		"quoted": repeat("> quoted\n", n),
	} {
		if tooComplex(src) {
			t.Errorf("%s is tangled", name)
		}
	}
}
