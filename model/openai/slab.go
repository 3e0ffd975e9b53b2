package openai

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/slab"
	"github.com/kitbag-go/kitbag/model"
)

// slabs hand out deltas (see package slab) and the text in them from larger pieces of memory,
// so that a delta costs a fraction of an allocation. Whoever keeps one delta keeps some 4 KiB
// of text. No piece is handed out twice: what was given belongs to whoever has it.
type slabs struct {
	buf       strings.Builder
	texts     []model.TextDelta
	thoughts  []model.ThinkingDelta
	callArgs  []model.ToolCallDelta
	nextBytes int
}

// The sizes of a piece of text, in bytes. Each is twice the last, so that a short answer
// does not pay for a long one's.
const (
	minSlab = 256
	maxSlab = 4096
)

func (s *slabs) text(text string) model.Chunk {
	d := slab.Take(&s.texts)
	d.Text = text
	return d
}

func (s *slabs) thinking(text string) model.Chunk {
	d := slab.Take(&s.thoughts)
	d.Text = text
	return d
}

func (s *slabs) args(index int, text string) model.Chunk {
	d := slab.Take(&s.callArgs)
	d.Index, d.Args = index, text
	return d
}

// unquote returns the string that starts inside of b and ends before the first
// quote, and the length of its JSON form; false if it is not well-formed, or
// needs full decoding. The string shares memory with its neighbours.
func (s *slabs) unquote(b []byte) (text string, n int, ok bool) {
	n = bytes.IndexByte(b, '"')
	for n > 0 && b[n-1] == '\\' { // an escaped quote, or an escaped backslash
		next := bytes.IndexByte(b[n+1:], '"')
		if next < 0 || escapesAtEnd(b[:n])%2 == 0 {
			break
		}
		n += 1 + next
	}
	if n < 0 {
		return "", 0, false
	}
	s.reserve(n)
	start, copied := s.buf.Len(), 0
	for i := 0; i < n; {
		c := b[i]
		switch {
		case c < ' ':
			return "", 0, false
		case c >= utf8.RuneSelf:
			if r, size := utf8.DecodeRune(b[i:n]); r != utf8.RuneError {
				i += size
				continue
			}
			return "", 0, false // full decoding says what becomes of it
		case c != '\\':
			i++
			continue
		}
		plain := byte(0)
		if i+1 < n {
			plain = unescape(b[i+1])
		}
		if plain == 0 {
			return "", 0, false
		}
		s.buf.Write(b[copied:i])
		s.buf.WriteByte(plain)
		i += 2
		copied = i
	}
	s.buf.Write(b[copied:n])
	return s.buf.String()[start:], n, true
}

// escapesAtEnd returns how many backslashes b ends with.
func escapesAtEnd(b []byte) (n int) {
	for n < len(b) && b[len(b)-1-n] == '\\' {
		n++
	}
	return n
}

// reserve makes room for n bytes of text. A builder that is full is left to
// the strings that were cut from it.
func (s *slabs) reserve(n int) {
	if s.buf.Cap()-s.buf.Len() >= n {
		return
	}
	s.nextBytes = min(max(2*s.nextBytes, minSlab), maxSlab)
	s.buf = strings.Builder{}
	s.buf.Grow(max(s.nextBytes, n))
}

// unescape returns the byte that a backslash and c stand for, 0 if that is not
// one byte.
func unescape(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	}
	return 0
}
