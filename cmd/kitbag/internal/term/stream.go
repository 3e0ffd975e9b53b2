package term

import (
	"strings"

	"github.com/yuin/goldmark/text"
)

// A stream splits Markdown that arrives in pieces into blocks.
type stream struct{ rest string } // rest is the text after the complete blocks

// add appends text, and returns the blocks that are now complete, or "".
func (s *stream) add(text string) (blocks string) {
	s.rest += text
	if !strings.Contains(text, "\n") { // only a complete line can complete a block
		return ""
	}
	n := completeBlocks(s.rest)
	blocks, s.rest = s.rest[:n], s.rest[n:]
	return blocks
}

// end removes and returns the incomplete block.
func (s *stream) end() string {
	rest := s.rest
	s.rest = ""
	return rest
}

// completeBlocks returns the length of the blocks of s that further text cannot change: all but the last block in the
// complete lines of s.
func completeBlocks(s string) int {
	s = s[:strings.LastIndexByte(s, '\n')+1]
	if !strings.Contains(s, "\n\n") { // wait for a blank line: parsing a long list again after each of its lines would be slow
		return 0
	}
	if tooComplex(s) {
		return len(s) // Markdown prints such text line by line
	}
	last := parser().Parser().Parse(text.NewReader([]byte(s))).LastChild()
	if last == nil {
		return 0
	}
	return strings.LastIndexByte(s[:max(last.Pos(), 0)], '\n') + 1 // the beginning of the last block's first line
}
