package term

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// maxFrameRows is the maximum number of redrawn rows, so that a third of the terminal shows printed text.
func maxFrameRows(height int) int { return max(4, height*2/3) }

// view returns the frame below the printed lines, and the cursor; nil for none. From top to bottom the frame has the end
// of the streamed text, the status (the queue and the running work), and the input.
func (s *state) view() (text string, cursor *tea.Cursor) {
	input, cursor := s.input()
	var status []string
	for _, message := range s.queue {
		status = append(status, s.faint("  next: "+firstLine(message)))
	}
	if s.work != nil && (s.question == nil || s.work.stopping) { // during a question the work waits for the user
		status = append(status, s.faint(s.statusLine()))
	}
	rows := maxFrameRows(s.height)
	if cut := len(input) - rows; cut > 0 {
		if cursor != nil { // keep the row of the cursor
			cut = min(cut, cursor.Y)
			cursor.Y -= cut
		}
		input = input[cut : cut+rows]
	}
	if over := len(status) + len(input) - rows; over > 0 {
		status = status[min(over, len(status)):]
	}
	lines := append(s.tailLines(rows-len(status)-len(input)), status...)
	if cursor != nil {
		cursor.Y = len(lines) + min(cursor.Y, len(input)-1) // after a resize the row of the cursor is outdated until the editor scrolls
	}
	lines = append(lines, input...)
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, max(s.width, 1), "…")
	}
	return strings.Join(lines, "\n"), cursor
}

// tailLines returns at most the last n rows of the streamed text.
func (s *state) tailLines(n int) []string {
	if s.tail == "" || n <= 0 {
		return nil
	}
	lines := wrap(plain(strings.TrimRight(s.tail, "\n")), max(s.width, minWidth))
	return lines[max(0, len(lines)-n):]
}

// statusLine returns the work's label, duration and tokens, and how to stop the work.
func (s *state) statusLine() string {
	w := s.work
	if w.stopping {
		return "stopping; Ctrl-C again ends kitbag at once"
	}
	parts := []string{w.label}
	if d := s.now.Sub(w.start); d >= time.Second {
		parts = append(parts, d.Truncate(time.Second).String())
	}
	if w.tokens > 0 {
		parts = append(parts, tokenCount(w.tokens))
	}
	return strings.Join(append(parts, "Ctrl-C stops"), " · ")
}

func tokenCount(n int) string {
	if n < 1000 {
		return fmt.Sprintf("%d tokens", n)
	}
	return fmt.Sprintf("%.1fk tokens", float64(n)/1000)
}

// input returns the question, or else the editor with its menu, and the cursor in the returned lines.
func (s *state) input() (lines []string, cursor *tea.Cursor) {
	if q := s.question; q != nil {
		lines = fold(q.label, max(s.width, minWidth))
		if q.keys != "" {
			last := len(lines) - 1
			cursor = tea.NewCursor(min(ansi.StringWidth(lines[last]), s.width-1), last)
		} else {
			if cursor = q.line.Cursor(); cursor != nil {
				cursor.Y += len(lines)
			}
			lines = append(lines, strings.Split(q.line.View(), "\n")...)
		}
		if q.round != 0 { // the cursor appears when keys are accepted
			cursor = nil
		}
		return lines, cursor
	}
	cursor = s.editor.Cursor()
	lines = strings.Split(s.editor.View(), "\n")
	shown, picked := s.visibleMenu()
	for i, c := range shown {
		marker := " "
		if i == picked {
			marker = ">"
		}
		lines = append(lines, s.faint(strings.TrimRight(fmt.Sprintf("%s %-14s %s", marker, c.Text, c.Help), " ")))
	}
	if s.leaving {
		lines = append(lines, s.faint("Ctrl-C again leaves"))
	}
	return lines, cursor
}

func (s *state) faint(text string) string { return Paint(s.Colour, faint, text) }

// firstLine returns the first line of text, with … if more lines follow.
func firstLine(text string) string {
	line, _, more := strings.Cut(plain(text), "\n")
	if more {
		line += " …"
	}
	return line
}
