package pdf

import (
	"bytes"
	"context"
	"strconv"
	"strings"
)

// A scanner reads the tokens of a file, and the operators of a content stream or of a
// character map; PDF 32000-1, sections 7.2 and 7.8. It takes linear time. It skips invalid
// input, as viewers do.
type scanner struct {
	data []byte
	pos  int
}

// run calls do with each operator and at most limit of its operands, which do must not keep. It ends with the
// context, or with an error of do.
func (s *scanner) run(ctx context.Context, limit int, do func(op string, args []object) error) error {
	var args, list []object
	depth := 0 // of nested lists and dictionaries
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		t, ok := s.token()
		if !ok {
			return nil
		}
		switch {
		case t.kind == kindOpen:
			if depth++; depth == 1 {
				list = nil
			}
		case t.kind == kindClose:
			if depth == 1 && len(args) < limit {
				args = append(args, object{kind: kindArray, body: &body{list: list}})
			}
			depth = max(depth-1, 0)
		case depth == 1 && len(list) < maxList:
			list = append(list, t)
		case depth > 0: // lists of text do not nest
		case t.kind == kindWord:
			if err := do(t.text, args); err != nil {
				return err
			}
			if clear(args); t.text == "ID" {
				s.skipImage()
			}
			args = args[:0]
		case len(args) < limit:
			args = append(args, t)
		}
	}
}

// token returns the next token, and false at the end.
func (s *scanner) token() (object, bool) {
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		switch {
		case isSpace(c):
			s.pos++
		case c == '%':
			s.pos = s.index(s.pos, "\r\n")
		case c == '(':
			return object{kind: kindString, text: s.literal()}, true
		case c == '<' && s.peek(1) != '<':
			return object{kind: kindString, text: s.hex()}, true
		case c == '[':
			s.pos++
			return object{kind: kindOpen, text: "["}, true
		case c == ']':
			s.pos++
			return object{kind: kindClose}, true
		case c == '<':
			s.pos += 2
			return object{kind: kindOpen, text: "<<"}, true
		case c == '>' && s.peek(1) == '>':
			s.pos += 2
			return object{kind: kindClose}, true
		case c == '/':
			s.pos++
			return object{kind: kindName, text: unescapeName(s.word())}, true
		case isDelimiter(c): // an unmatched delimiter
			s.pos++
		default:
			return wordOperand(s.word()), true
		}
	}
	return object{}, false
}

func wordOperand(word string) object {
	if c := word[0]; c == '+' || c == '-' || c == '.' || '0' <= c && c <= '9' {
		num, _ := strconv.ParseFloat(word, 64) // 0 if invalid, as in viewers
		return object{kind: kindNumber, num: num}
	}
	return object{kind: kindWord, text: word}
}

// peek returns the byte n after the position, 0 after the end.
func (s *scanner) peek(n int) byte {
	if s.pos+n < len(s.data) {
		return s.data[s.pos+n]
	}
	return 0
}

// index returns the index of the first of the characters at or after from, or the end.
func (s *scanner) index(from int, chars string) int {
	if i := bytes.IndexAny(s.data[from:], chars); i >= 0 {
		return from + i
	}
	return len(s.data)
}

// word reads until white space or a delimiter.
func (s *scanner) word() string {
	from := s.pos
	for s.pos < len(s.data) && !isSpace(s.data[s.pos]) && !isDelimiter(s.data[s.pos]) {
		s.pos++
	}
	return string(s.data[from:s.pos])
}

// literal reads a string in parentheses.
func (s *scanner) literal() string {
	var out []byte
	depth := 0
	for ; s.pos < len(s.data); s.pos++ {
		c := s.data[s.pos]
		switch c {
		case '(':
			if depth++; depth == 1 {
				continue
			}
		case ')':
			if depth--; depth == 0 {
				s.pos++
				return string(out)
			}
		case '\\':
			out = s.escape(out)
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

// escape appends the character of a backslash escape, and moves pos to the last byte of the escape.
func (s *scanner) escape(out []byte) []byte {
	c := s.peek(1)
	if c == 0 {
		return out
	}
	s.pos++
	switch {
	case '0' <= c && c <= '7':
		x := int(c - '0')
		for range 2 {
			if d := s.peek(1); '0' <= d && d <= '7' {
				x = x*8 + int(d-'0')
				s.pos++
			} else {
				break
			}
		}
		return append(out, byte(x)) // overflow is ignored, as the specification requires
	case c == '\r' || c == '\n': // the string continues in the next line
		if c == '\r' && s.peek(1) == '\n' {
			s.pos++
		}
		return out
	}
	if i := bytes.IndexByte([]byte("nrtbf"), c); i >= 0 {
		c = "\n\r\t\b\f"[i]
	}
	return append(out, c)
}

// hex reads a string of hexadecimal digits; other characters are skipped.
func (s *scanner) hex() string {
	end := s.index(s.pos, ">")
	var out []byte
	n := 0
	for _, c := range s.data[s.pos:end] {
		digit := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
		if c < '0' || digit < 0 {
			continue
		}
		if n++; n%2 == 1 {
			out = append(out, byte(digit<<4))
		} else {
			out[len(out)-1] |= byte(digit)
		}
	}
	s.pos = min(end+1, len(s.data))
	return string(out)
}

// skipImage skips the bytes of an inline image.
func (s *scanner) skipImage() {
	for at := s.pos; ; at += 2 {
		i := bytes.Index(s.data[at:], []byte("EI"))
		if i < 0 {
			s.pos = len(s.data)
			return
		}
		at += i
		s.pos = at
		before, after := byte(' '), s.peek(2)
		if at > 0 {
			before = s.data[at-1]
		}
		if isSpace(before) && isSpace(after) {
			s.pos += 2
			return
		}
	}
}

func unescapeName(name string) string {
	if !strings.Contains(name, "#") {
		return name
	}
	var out []byte
	for i := 0; i < len(name); i++ {
		if x, err := strconv.ParseUint(name[min(i+1, len(name)):min(i+3, len(name))], 16, 8); name[i] == '#' && err == nil && i+2 < len(name) {
			out = append(out, byte(x))
			i += 2
		} else {
			out = append(out, name[i])
		}
	}
	return string(out)
}

func isSpace(c byte) bool { return strings.IndexByte("\x00\t\n\f\r ", c) >= 0 }

func isDelimiter(c byte) bool { return strings.IndexByte("()<>[]{}/%", c) >= 0 }
