package term

import (
	"fmt"
	"strings"
)

// The size of the longest pasted text that the editor shows. A note replaces longer text, and text with tabs, which the
// editor does not support.
const (
	shownLines = 6
	shownBytes = 2000
)

// paste inserts pasted text into the message, even if it has several lines.
func (s *state) paste(text string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if q := s.question; q != nil {
		if q.accepts && q.keys == "" {
			q.line.InsertString(strings.ReplaceAll(plain(text), "\n", " "))
		}
		return // pasted text must not answer a question
	}
	if lines := strings.Count(strings.TrimRight(text, "\n"), "\n") + 1; lines > shownLines || strings.Contains(text, "\t") || len(text) > shownBytes {
		s.pastes = append(s.pastes, text)
		text = pasteNote(len(s.pastes), lines)
	}
	s.editor.InsertString(text)
	s.editor, _ = s.editor.Update(nil) // scrolls to the cursor
	s.suggest()
}

func pasteNote(n, lines int) string {
	if lines == 1 {
		return fmt.Sprintf("[pasted text %d: 1 line]", n)
	}
	return fmt.Sprintf("[pasted text %d: %d lines]", n, lines)
}

// expand replaces the notes by the pasted texts.
func (s *state) expand(value string) string {
	var notes []string
	for i, text := range s.pastes {
		notes = append(notes, pasteNote(i+1, strings.Count(strings.TrimRight(text, "\n"), "\n")+1), text)
	}
	return strings.NewReplacer(notes...).Replace(value)
}
