package term

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// frameRows is the maximum number of redrawn rows; the others show printed text.
func frameRows(height int) int { return max(4, height*2/3) }

// view returns the frame below the printed lines, and the cursor; nil for none.
func (s *state) view() (text string, cursor *tea.Cursor) {
	below, cursor := s.input()
	var above []string
	for _, m := range s.queue {
		above = append(above, s.faint("  next: "+firstLine(m)))
	}
	if s.work != nil && (s.question == nil || s.work.stopping) {
		above = append(above, s.faint(s.statusLine()))
	}
	rows := frameRows(s.height)
	if over := len(below) - rows; over > 0 { // keep the row of the cursor
		cut := over
		if cursor != nil {
			cut = min(over, cursor.Y)
			cursor.Y -= cut
		}
		below = below[cut:min(len(below), cut+rows)]
	}
	if over := len(above) + len(below) - rows; over > 0 {
		above = above[min(over, len(above)):]
	}
	lines := append(s.tailLines(rows-len(above)-len(below)), above...)
	if cursor != nil {
		cursor.Y = len(lines) + min(cursor.Y, len(below)-1) // the editor scrolls only after a resize
	}
	lines = append(lines, below...)
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

// statusLine shows the label of the work, its time, and how to stop it.
func (s *state) statusLine() string {
	w := s.work
	if w.stopping {
		return "stopping; Ctrl-C again ends kitbag at once"
	}
	parts := []string{w.label}
	if d := s.now.Sub(w.since); d >= time.Second {
		parts = append(parts, d.Truncate(time.Second).String())
	}
	if w.tokens > 0 {
		parts = append(parts, tokens(w.tokens))
	}
	return strings.Join(append(parts, "Ctrl-C stops"), " · ")
}

func tokens(n int) string {
	if n < 1000 {
		return fmt.Sprintf("%d tokens", n)
	}
	return fmt.Sprintf("%.1fk tokens", float64(n)/1000)
}

// input returns the question, or else the editor with its menu, and the cursor in it.
func (s *state) input() (lines []string, cursor *tea.Cursor) {
	if q := s.question; q != nil {
		if !q.accepts {
			return nil, nil
		}
		lines = fold(q.label, max(s.width, minWidth))
		if q.keys != "" {
			return lines, nil
		}
		if cursor = q.line.Cursor(); cursor != nil {
			cursor.Y += len(lines)
		}
		return append(lines, strings.Split(q.line.View(), "\n")...), cursor
	}
	cursor = s.editor.Cursor()
	lines = strings.Split(s.editor.View(), "\n")
	shown, picked := s.visibleMenu()
	for i, c := range shown {
		line := "  " + c.Text
		if c.Help != "" {
			line = fmt.Sprintf("  %-14s %s", c.Text, c.Help)
		}
		if i == picked {
			line = ">" + line[1:]
		}
		lines = append(lines, s.faint(line))
	}
	if s.leaving {
		lines = append(lines, s.faint("Ctrl-C again leaves"))
	}
	return lines, cursor
}

func (s *state) faint(text string) string { return Paint(s.Colour, faint, text) }

// firstLine returns the first line of text, with a mark if there are more.
func firstLine(text string) string {
	line, _, more := strings.Cut(plain(text), "\n")
	if more {
		line += " …"
	}
	return line
}
