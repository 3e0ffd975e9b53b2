package term

import (
	"strings"

	"github.com/yuin/goldmark/text"
)

// A stream splits Markdown that arrives in pieces into blocks.
type stream struct{ rest string }

// add appends text and returns the blocks that are complete, or "".
func (s *stream) add(text string) (done string) {
	s.rest += text
	if !strings.Contains(text, "\n") {
		return ""
	}
	n := completeBlocks(s.rest)
	done, s.rest = s.rest[:n], s.rest[n:]
	return done
}

// end returns the rest.
func (s *stream) end() string {
	rest := s.rest
	s.rest = ""
	return rest
}

// completeBlocks returns the length of the blocks at the beginning of s that further text cannot change: all blocks of
// its complete lines but the last.
func completeBlocks(s string) int {
	s = s[:strings.LastIndexByte(s, '\n')+1]
	if !strings.Contains(s, "\n\n") { // parsing each line of a long list again would take long
		return 0
	}
	if tooComplex(s) {
		return len(s) // it is printed as lines
	}
	last := parser().Parser().Parse(text.NewReader([]byte(s))).LastChild()
	if last == nil {
		return 0
	}
	return strings.LastIndexByte(s[:max(last.Pos(), 0)], '\n') + 1
}
