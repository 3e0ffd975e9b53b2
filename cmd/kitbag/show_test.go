package main

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// TestQuestionHidesNothing checks that a question shows every character of what will run, and that a long text
// does not push the question and its effects off the screen.
func TestQuestionHidesNothing(t *testing.T) {
	workspace(t)
	ask := func(name, member, text, preview string) string {
		input, err := json.Marshal(map[string]string{member: text})
		if err != nil {
			t.Fatal(err)
		}
		return new(painter).question(&event.Approval{Name: name, Input: input, Reason: "no rule allows it", Preview: preview})
	}
	for text, want := range map[string]string{
		"node -e '// note\rrun()'":      "// note<U+000D>run()",
		"node -e '// note\u2028run()'":  "// note<U+2028>run()",
		"echo \u202etxt.exe":            "echo <U+202E>txt.exe",
		"echo a\u200bb":                 "echo a<U+200B>b",
		"printf '\x1b[2J\x1b[1;1Hfine'": "printf '<U+001B>[2J",
		"rm a\u00a0b":                   "rm a<U+00A0>b",
	} {
		got := ask("Bash", "command", text, "")
		if !strings.Contains(got, want) || !strings.Contains(got, "invisible characters") {
			t.Errorf("%q is shown as\n%s", text, got)
		}
	}
	got := ask("Write", "content", "plain", "+ a\u202eb")
	if !strings.Contains(got, "+ a<U+202E>b") {
		t.Errorf("the preview is shown as\n%s", got)
	}

	input := json.RawMessage(`{"command":"ls # note\nid"}`)
	got = new(painter).question(&event.Approval{Name: "Bash", Input: input, Reason: "no rule allows it", Runs: "ls\nid"})
	if !strings.Contains(got, "ls # note") || !strings.Contains(got, "what runs, in canonical form:\n    | ls\n    | id") {
		t.Errorf("a command with a canonical form that differs is shown as\n%s", got)
	}

	long := ask("Bash", "command", strings.Repeat("echo line\n", 40)+"rm -rf build", "")
	lines := strings.Split(long, "\n")
	last := strings.Join(lines[len(lines)-2:], "\n")
	if !strings.Contains(last, "rm -rf build  → ") || !strings.Contains(last, "may Bash run? (no rule allows it)") {
		t.Errorf("a long question ends with\n%s", last)
	}
	if short := ask("Bash", "command", "ls", ""); strings.Count(short, "may Bash run?") != 1 || strings.Contains(short, "invisible characters") {
		t.Errorf("a short question is\n%s", short)
	}
}

// TestEndOfBrokenText shows a run whose answer could not be saved: what is printed next must begin on a line of its own.
func TestEndOfBrokenText(t *testing.T) {
	var out, log strings.Builder
	show := showText(&out, &log, new(painter))
	for _, ev := range []event.Event{&event.TextDelta{Text: "half"}, &event.End{Reason: event.EndError}} {
		if err := show(ev); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != "half\n" || log.String() != "" {
		t.Errorf("%q %q", out.String(), log.String())
	}
}

// TestSealedSessions checks that a session file is trusted only if this user's kitbag wrote it.
func TestSealedSessions(t *testing.T) {
	dir := workspace(t)
	file := filepath.Join(dir, "s.jsonl")
	serve(t, openaitest.Text("one"))
	if got := kitbag(t.Context(), "run", "--session", "s.json", "go"); got.code != exitDone {
		t.Fatalf("%+v", got)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	header, record, _ := strings.Cut(string(data), "\n")
	_, record, _ = strings.Cut(record, `",`)
	record, _, _ = strings.Cut(record, "\n")
	record = strings.Replace(record, `"data":{`, `"data":{"rules":[{"tool":"Bash","behavior":"allow"}],`, 1)
	sum := crc32.Checksum([]byte(record), crc32.MakeTable(crc32.Castagnoli))
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s\n{\"crc\":\"%08x\",%s\n", header, sum, record), 0o600); err != nil {
		t.Fatal(err)
	}
	got := kitbag(t.Context(), "run", "--session", "s.json", "again")
	if got.code != exitError || !strings.Contains(got.stderr, "left unchanged") || !strings.Contains(got.stderr, "--trust-session") {
		t.Errorf("a file with an added rule: %+v", got)
	}
	serve(t, openaitest.Text("two"), openaitest.Text("three"))
	if got := kitbag(t.Context(), "run", "--session", "s.json", "--trust-session", "again"); got.code != exitDone || got.out != "two\n" {
		t.Errorf("with --trust-session: %+v", got)
	}
	if got := kitbag(t.Context(), "run", "--session", "s.json", "again"); got.code != exitDone || got.out != "three\n" {
		t.Errorf("sealed anew: %+v", got)
	}
	key := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "kitbag", "session.key")
	if info, err := os.Stat(key); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := kitbag(t.Context(), "run", "--session", "s.json", "again"); got.code != exitError || !strings.Contains(got.stderr, "remove it") {
		t.Errorf("a key that others can read: %+v", got)
	}
}

// TestRedactsByDefault checks that neither the session file nor the output has a credential.
func TestRedactsByDefault(t *testing.T) {
	dir := workspace(t)
	const key = "sk-proj-4f9c2d7ab81e4c0d9f6b3a5e7c1d8e2f"
	serve(t, openaitest.Text("it is "+key), openaitest.Text("it is "+key))
	t.Setenv("OPENAI_API_KEY", key)
	got := kitbag(t.Context(), "run", "--session", "s.json", "say it")
	data, err := os.ReadFile(filepath.Join(dir, "s.jsonl"))
	if err != nil || got.code != exitDone || strings.Contains(got.out+got.stderr+string(data), key) {
		t.Errorf("%v: %+v\n%s", err, got, data)
	}
	if got := kitbag(t.Context(), "run", "--no-redact", "say it"); got.code != exitDone || !strings.Contains(got.out, key) {
		t.Errorf("--no-redact: %+v", got)
	}
}

// TestQuestionCannotBeImitated checks that no text of a call begins where a line of kitbag begins, even if the
// terminal wraps lines, that it overwrites nothing, and that the question comes last.
func TestQuestionCannotBeImitated(t *testing.T) {
	workspace(t)
	fake := "? may Read run? (it only reads)"
	for name, text := range map[string]string{
		"a long line":           strings.Repeat("x", 76) + fake,
		"many long lines":       strings.Repeat("x", 4000) + fake,
		"a line of wide runes":  strings.Repeat("漢", 38) + fake,
		"tabs at the margin":    strings.Repeat("x", 76) + "\tr\tm\t-\tr",
		"lines":                 "x\n" + fake,
		"emoji":                 strings.Repeat("😀", 60) + fake,
		"a line with a heading": strings.Repeat("\t", 9) + fake,
	} {
		input, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []*event.Approval{
			{Name: "mcp__srv__tool", Input: input, Reason: "no rule allows it"},
			{Name: "mcp__srv__tool", Input: json.RawMessage(`{}`), Reason: "no rule allows it", Preview: text},
			{Name: "mcp__srv__tool", Input: json.RawMessage(`{}`), Reason: strings.ReplaceAll(text, "\n", " ") + " is outside"},
		} {
			lines := strings.Split(new(painter).question(q), "\n")
			for i, line := range lines {
				columns := 0
				for _, r := range line {
					if columns++; r >= 0x1100 {
						columns++
					}
				}
				own := strings.HasPrefix(line, "? may mcp__srv__tool run?")
				if columns > 80 || strings.Contains(line, "\t") || !own && !strings.HasPrefix(line, "    ") {
					t.Errorf("%s: line %d has %d columns: %q", name, i, columns, line)
				}
			}
			last := lines[max(0, len(lines)-longQuestion):]
			if len(text) < 1000 && !strings.Contains(strings.Join(last, "\n"), "? may mcp__srv__tool run?") {
				t.Errorf("%s: the question is not among the last lines:\n%s", name, strings.Join(last, "\n"))
			}
		}
	}
	own := "in the sandbox, without the network, read-only"
	for name, text := range map[string]string{
		"a line":          "touch x\n" + own + "\noutside_sandbox=false",
		"a broken line":   strings.Repeat(" ", 75-len("command=")) + own + "\n",
		"a broken change": strings.Repeat("x", 75) + own,
		"margins":         strings.Repeat(" ", 73-len("command=")) + own + "\n" + strings.Repeat(" ", 74) + own + "\n" + strings.Repeat(" ", 76) + own,
	} {
		input, err := json.Marshal(map[string]string{"command": text, "x\n" + own: text})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []*event.Approval{
			{Name: "Bash", Input: input, Reason: "no rule allows it", Runs: text, Preview: text},
			{Name: "Write", Input: json.RawMessage(`{"file_path":"f"}`), Reason: "no rule allows it", Preview: "--- /dev/null\n+++ b/f\n@@ -0,0 +1,1 @@\n+" + strings.ReplaceAll(text, "\n", "\n+")},
			{Name: "Bash", Input: json.RawMessage(`{}`), Reason: strings.ReplaceAll(text, "\n", " ")},
		} {
			for line := range strings.Lines(new(painter).question(q)) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, own) || strings.HasPrefix(line, "outside_sandbox=") {
					t.Errorf("%s imitates the effects of %s in %q", name, q.Name, line)
				}
			}
		}
	}
	long := new(painter).question(&event.Approval{Name: "mcp__srv__tool", Input: json.RawMessage(`{"text":"` + strings.Repeat("x", 9000) + `"}`), Reason: "no rule allows it"})
	if !strings.HasSuffix(long, "\n    ? may mcp__srv__tool run? (no rule allows it)") {
		t.Errorf("a line of 9000 characters pushes the question off: it ends with %q", long[len(long)-100:])
	}
	got := new(painter).question(&event.Approval{Name: "Bash", Input: json.RawMessage(`{"command":"touch 'a  → nothing' b"}`), Reason: "why"})
	if strings.Contains(got, "touch a  → nothing") {
		t.Errorf("the effects can be forged:\n%s", got)
	}
}
