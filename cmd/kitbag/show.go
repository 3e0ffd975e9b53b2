package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/term"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// An eventPrinter prints one event.
type eventPrinter func(event.Event) error

// showJSON writes each event as a line of JSON.
func showJSON(w io.Writer) eventPrinter {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return func(ev event.Event) error { return enc.Encode(ev) }
}

// showText streams the model's text to out and the actions of tools to log.
func showText(out, log io.Writer, p *painter) eventPrinter {
	// out and log are often the same terminal: a log line must not begin in the middle of a line of the model's text.
	inText := false
	return func(ev event.Event) error {
		if t, ok := ev.(*event.TextDelta); ok {
			inText = !strings.HasSuffix(t.Text, "\n")
			_, err := io.WriteString(out, plain(t.Text))
			return err
		}
		line := p.line(ev)
		m, isMessage := ev.(*event.Message)
		_, isEnd := ev.(*event.End)
		endOfText := isEnd || isMessage && m.Finish != ""
		if inText && (line != "" || endOfText) {
			inText = false
			if _, err := io.WriteString(out, "\n"); err != nil {
				return err
			}
		}
		if line == "" {
			return nil
		}
		_, err := fmt.Fprintln(log, line)
		return err
	}
}

// A painter formats events as text.
type painter struct {
	colour    bool
	hasPrompt bool // the prompt shows the questions, so their events are skipped

	dirs     []string          // the agent's working directories; nil for the current directory
	previews map[string]string // the diffs that questions have shown, by call id
	tasks    map[string]string // the subjects of tasks, by task id
}

// newPainter returns a painter for log, in colour if log is a terminal.
func newPainter(log io.Writer) *painter {
	// Any value of NO_COLOR but the empty one counts (see no-color.org). A dumb terminal would print escapes as text.
	return &painter{colour: isTerminal(log) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// maxName is how much of a name or an id is shown, in runes: a model may send a name of any length.
const maxName = 100

// maxArguments is how much of a call's arguments, or of a message, is shown in a log line, in runes. A question about the
// call shows all of its arguments.
const maxArguments = 160

// ANSI colours that are readable on both a dark and a light background.
const (
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint returns s in a colour. Control characters in s are removed.
func (p *painter) paint(colour, s string) string {
	return term.Paint(p.colour, colour, plain(s))
}

// line returns the log line of an event, or "" for none.
func (p *painter) line(ev event.Event) string {
	switch ev := ev.(type) {
	case *event.ToolCall:
		if p.noteTaskCall(ev) {
			return ""
		}
		if line := fileCall(ev.Name, ev.Input); line != "" {
			return line
		}
		s := strings.TrimRight("→ "+shorten(ev.Name, maxName)+" "+shorten(arguments(ev.Input, " "), maxArguments), " ")
		if len(ev.Repaired) > 0 {
			s += p.paint(dim, " (repaired: "+plainLine(strings.Join(ev.Repaired, "; "))+")")
		}
		return s
	case *event.ToolDelta:
		if ev.ForUser && ev.Text != p.previews[ev.Call] { // the question has not shown this diff
			return p.forUser(ev.Text)
		}
	case *event.ToolResult:
		return p.toolResult(ev)
	case *event.Approval:
		if !p.hasPrompt {
			return p.question(ev)
		}
	case *event.External:
		return p.paint(yellow, "? "+shorten(ev.Name, maxName)+" is run by the host: call "+shorten(ev.Call, maxName))
	case *event.Background:
		if ev.Result != nil { // the call's result so far
			return p.result(shorten(ev.Name, maxName)+" in the background", ev.Result.Outcome, ev.Result.Text())
		}
	case *event.Elicitation:
		return p.elicitation(ev)
	case *event.Sampling:
		if ev.Refused != "" {
			return p.paint(yellow, fmt.Sprintf("! the MCP server %q may not use the model: %s", ev.Server, plainLine(ev.Refused)))
		}
		return p.paint(dim, fmt.Sprintf("the MCP server %q has used the model: %d tokens", ev.Server, ev.Usage.Input+ev.Usage.Output))
	case *event.Retry:
		return p.paint(yellow, fmt.Sprintf("! %s; trying again in %v", plainLine(ev.Error), ev.Wait.Round(100*time.Millisecond)))
	case *event.Compaction:
		line := fmt.Sprintf("the conversation was compacted: from about %d to %d tokens", ev.Before, ev.After)
		if ev.Failed != "" {
			line += "; without a summary of the removed part: " + plainLine(ev.Failed)
		}
		return p.paint(dim, line)
	case *event.Discard:
		return p.paint(yellow, "! the answer broke off: "+plainLine(ev.Error))
	case *event.End:
		switch ev.Reason {
		case event.EndLimit:
			return p.paint(yellow, strings.TrimRight("! "+string(ev.Reason)+": "+plainLine(ev.Detail), ": "))
		case event.EndInterrupted: // its detail does not help the user
			return p.paint(yellow, "! interrupted")
		}
	}
	return ""
}

// result formats the result of a call.
func (p *painter) result(name string, outcome message.Outcome, text string) string {
	mark, colour := "✓", green
	if outcome != message.OutcomeSuccess {
		mark, colour = "✗", red
	}
	return p.paint(colour, mark+" "+name) + p.paint(dim, " "+firstLines(text, 6))
}

// forUser formats text that the model does not get, such as the diff of a change.
func (p *painter) forUser(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		line = plain(line)
		if isDiff(text) {
			line = p.diffLine(line)
		}
		lines[i] = "  | " + line
	}
	return strings.Join(lines, "\n")
}

// isDiff reports whether text is a unified diff, as the built-in tools make it.
func isDiff(text string) bool {
	return strings.HasPrefix(text, "--- ") && strings.Contains(text, "\n@@ ")
}

// diffLine colours a line of a diff. Unlike paint it does not remove control characters.
func (p *painter) diffLine(line string) string {
	return term.Paint(p.colour, term.DiffStyle(line), line)
}

// elicitation formats the outcome of a question during a call. With a prompt it returns "", since the prompt
// has shown the question.
func (p *painter) elicitation(ev *event.Elicitation) string {
	if p.hasPrompt || ev.Action == "" {
		return ""
	}
	asker := "kitbag"
	if ev.Server != "" {
		asker = fmt.Sprintf("the MCP server %q", ev.Server)
	}
	return p.paint(yellow, fmt.Sprintf("? %s has asked: %s (%s; questions can only be answered at a terminal)", asker, shorten(ev.Message, maxArguments), ev.Action))
}

const (
	longQuestion = 12 // lines; the beginning of a longer question may have left the screen
	maxColumns   = 76 // of a line after its indent
	tabColumns   = 8

	gutter    = "| " // before each line of text that could imitate a line of kitbag
	continued = "> " // before the rest of a line that is longer than maxColumns
)

// breakLines breaks text into lines of at most maxColumns: a line that the terminal wraps would continue in the first
// column, and could imitate a line of kitbag. Tabs become spaces: a terminal does not clear the cells that a tab skips.
func breakLines(text string) []string {
	var all []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\t", strings.Repeat(" ", tabColumns)), "\n") {
		parts := term.HardWrap(line, maxColumns)
		all = append(all, parts[0])
		if len(parts) > 1 {
			for _, part := range term.HardWrap(strings.Join(parts[1:], ""), maxColumns-len(continued)) {
				all = append(all, continued+part)
			}
		}
	}
	return all
}

// question formats the question about a call, with the whole call and no hidden characters, as the user must see what is
// approved. At the end are the effects of the call and, if the text is long, the first line again.
func (p *painter) question(q *event.Approval) string {
	head := p.paint(yellow, "? may "+shorten(q.Name, maxName)+" run? ("+plainLine(q.Reason)+")")
	lines, hidden := p.questionText(q)
	lines = append(breakLines(head), lines...)
	if hidden > 0 {
		lines = append(lines, p.paint(red, fmt.Sprintf("! %d invisible characters are written as <U+…>; check them", hidden)))
	}
	lines = append(lines, breakLines(strings.Join(p.effects(q), "\n"))...)
	if len(lines) > longQuestion {
		lines = append(lines, breakLines(head)...)
	}
	return strings.Join(lines, "\n    ")
}

// questionText formats the diff of the file that a call would change, and stores the diff in p.previews, or else formats the
// call's arguments. hidden is the number of invisible characters that are written as <U+…>.
func (p *painter) questionText(q *event.Approval) (lines []string, hidden int) {
	add := func(text string, paint func(string) string) {
		text, n := visible.Escape(strings.TrimRight(text, "\n"), p.highlight)
		hidden += n
		for _, line := range breakLines(text) {
			lines = append(lines, paint(line))
		}
	}
	unpainted := func(s string) string { return s }
	if q.Name != "Read" && fileOf(q.Name, q.Input) != "" && isDiff(q.Preview) { // the diff names the file
		if p.previews == nil {
			p.previews = map[string]string{}
		}
		p.previews[q.Call] = q.Preview
		add(q.Preview, p.diffLine)
		return lines, hidden
	}
	add(arguments(q.Input, "\n"), unpainted)
	if q.Preview != "" {
		add(withGutter(q.Preview), unpainted)
	}
	if q.Runs != "" {
		add("what runs, in canonical form:\n"+withGutter(q.Runs), unpainted)
	}
	return lines, hidden
}

func withGutter(text string) string { return gutter + strings.ReplaceAll(text, "\n", "\n"+gutter) }

// fileOf returns the file that a call of the built-in tools Read, Edit and Write is about; "" for another call.
func fileOf(name string, input json.RawMessage) string {
	if name != "Read" && name != "Edit" && name != "Write" {
		return ""
	}
	var in struct {
		FilePath string `json:"file_path"`
	}
	_ = json.Unmarshal(input, &in) // invalid input is shown like the input of any other tool
	return in.FilePath
}

// fileCall formats a call of a built-in tool on one file; "" for another call. It leaves out the change of the file, which
// the question and the result show.
func fileCall(name string, input json.RawMessage) string {
	path, rest := fileOf(name, input), ""
	if path == "" {
		return ""
	}
	var members map[string]json.RawMessage
	if name == "Read" && json.Unmarshal(input, &members) == nil {
		delete(members, "file_path")
		rest = " " + formatMembers(members, " ")
	}
	return strings.TrimRight("→ "+name+" "+shorten(relative(path)+rest, maxArguments), " ")
}

// relative makes a path below the current directory relative, and returns any other path unchanged.
func relative(path string) string {
	cwd, err := currentDir()
	if err != nil {
		return path
	}
	if rel, ok := strings.CutPrefix(path, cwd+string(filepath.Separator)); ok {
		return rel
	}
	return path
}

// highlight inverts the colours of characters that replace invisible ones, if the terminal has colours.
func (p *painter) highlight(s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[7m" + s + "\x1b[27m"
}

// effects returns a line for each part of a built-in tool's call, such as each command of a pipe, and a line for the access
// of a shell command.
func (p *painter) effects(q *event.Approval) (lines []string) {
	cwd, err := currentDir()
	if err != nil {
		return nil
	}
	e := permission.Explain(&permission.Policy{Dirs: p.dirs}, new(builtins).describe(q.Name, q.Input, cwd))
	for _, part := range e.Parts {
		lines = append(lines, partLine(part))
	}
	if access := accessText(permission.Judgement{Profile: q.Profile, Network: q.Network}); access != "" {
		lines = append(lines, access)
	}
	return lines
}

// accessText describes what a shell command can access; "" for calls of other tools.
func accessText(j permission.Judgement) string {
	network := "without the network"
	if j.Network {
		network = "with the network"
	}
	switch j.Profile {
	case permission.ProfileRead:
		return "in the sandbox, " + network + ", read-only"
	case permission.ProfileWork:
		return "in the sandbox, " + network + ", writing in the working directories"
	case permission.ProfileOpen:
		return "outside the sandbox"
	}
	return ""
}

// partLine formats a part of a call with its effects.
func partLine(part permission.Part) string {
	effects := cmp.Or(strings.Join(part.Effects, ", "), "nothing")
	argv := slices.Clone(part.Argv)
	for i, arg := range argv {
		if strings.ContainsAny(arg, " \t\n'\"→") { // without quotes a word could look like several, or like an effect
			argv[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	command, _ := visible.Escape(strings.Join(argv, " "), nil)
	return strings.ReplaceAll(command, "\n", `\n`) + "  → " + effects
}

// arguments formats the members of a JSON object as name=value, sorted by name, with strings unquoted. If separator is a
// line break, all lines of a value but the first begin with the gutter, so that they cannot look like another member.
func arguments(input json.RawMessage, separator string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(input, &members) != nil {
		return string(input)
	}
	return formatMembers(members, separator)
}

func formatMembers(members map[string]json.RawMessage, separator string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := string(members[name])
		var text string
		if json.Unmarshal(members[name], &text) == nil {
			value = text
		}
		if strings.ContainsAny(name, "=\n") {
			name = strconv.Quote(name)
		}
		if separator == "\n" {
			value = strings.ReplaceAll(value, "\n", "\n"+gutter)
		}
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, separator)
}

// plain removes terminal control characters from text of a model, a tool or a server.
func plain(s string) string { return visible.Text(s) }

// plainLine is like plain, on one line: a name with a line break must not imitate a line of kitbag.
func plainLine(s string) string { return strings.ReplaceAll(plain(s), "\n", `\n`) }

// indented is like plain, and indents all lines but the first, so that they cannot imitate a line of kitbag.
func indented(s string) string {
	return strings.ReplaceAll(plain(strings.TrimRight(s, "\n")), "\n", "\n  ")
}

// shorten returns s on one line, of at most n runes.
func shorten(s string, n int) string {
	r := []rune(plain(strings.Join(strings.Fields(s), " ")))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// firstLines returns the first n lines of s, each shortened, and a line that says how many follow.
func firstLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(plain(s), "\n"), "\n")
	more := ""
	if len(lines) > n {
		more = fmt.Sprintf("\n  … %d more lines", len(lines)-n)
		if len(lines) == n+1 {
			more = "\n  … 1 more line"
		}
		lines = lines[:n]
	}
	for i, l := range lines {
		lines[i] = shorten(l, 200)
	}
	return strings.Join(lines, "\n  ") + more
}
