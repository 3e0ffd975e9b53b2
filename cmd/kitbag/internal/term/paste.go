package term

import (
	"fmt"
	"strings"
)

// The largest pasted text that the editor shows. A note stands for larger text, and for text with tabs, which the
// editor does not support.
const (
	maxPasteLines = 6
	maxPasteBytes = 2000
)

// paste inserts pasted text, or a note that stands for it, into the message. A question gets pasted text only if it asks
// for a line: a paste must not count as a key.
func (s *state) paste(text string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if q := s.question; q != nil {
		if q.round == 0 && q.keys == "" {
			q.line.InsertString(strings.ReplaceAll(plain(text), "\n", " "))
		}
		return
	}
	if countLines(text) > maxPasteLines || len(text) > maxPasteBytes || strings.Contains(text, "\t") {
		s.pastes = append(s.pastes, text)
		text = pasteNote(len(s.pastes), text)
	}
	s.editor.InsertString(text)
	s.editor, _ = s.editor.Update(nil) // scrolls to the cursor
	s.suggest()
}

func countLines(text string) int { return strings.Count(strings.TrimRight(text, "\n"), "\n") + 1 }

// pasteNote returns the note that stands for text, the n-th of s.pastes counted from one.
func pasteNote(n int, text string) string {
	if lines := countLines(text); lines > 1 {
		return fmt.Sprintf("[pasted text %d: %d lines]", n, lines)
	}
	return fmt.Sprintf("[pasted text %d: 1 line]", n)
}

// expand replaces the notes in the text of the editor by the pasted texts.
func (s *state) expand(value string) string {
	var notes []string
	for i, text := range s.pastes {
		notes = append(notes, pasteNote(i+1, text), text)
	}
	return strings.NewReplacer(notes...).Replace(value)
}
