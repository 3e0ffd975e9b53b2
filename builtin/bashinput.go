package builtin

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// commandOf returns the command in a call's arguments, whatever their other members are: the tool accepts numbers
// in more forms than encoding/json does, such as 1e3.
func commandOf(input []byte) (string, bool) {
	if command, ok := plainCommand(input); ok {
		return string(command), true
	}
	var in struct{ Command string }
	err := json.Unmarshal(input, &in)
	return in.Command, err == nil
}

// plainCommand reads arguments in the usual form: only bashIn's fields, of their usual types, with usual
// escapes. For any other form it returns false. Its result equals that of encoding/json, which FuzzPlainCommand
// checks, at a fraction of the cost; every permission decision about a command begins here.
func plainCommand(input []byte) (command []byte, ok bool) {
	c := inputCursor{rest: input}
	if !c.take("{") {
		return nil, false
	}
	for {
		switch {
		case c.take(`"command"`):
			if command, ok = c.member(); !ok {
				return nil, false
			}
		case c.take(`"description"`):
			if _, ok = c.member(); !ok {
				return nil, false
			}
		case c.take(`"timeout"`):
			if !c.take(":") || !c.number() {
				return nil, false
			}
		default:
			return nil, false
		}
		if c.take("}") {
			return command, len(c.skip()) == 0
		}
		if !c.take(",") {
			return nil, false
		}
	}
}

// An inputCursor scans JSON.
type inputCursor struct{ rest []byte }

// skip skips white space and returns the rest.
func (c *inputCursor) skip() []byte {
	for len(c.rest) > 0 && (c.rest[0] == ' ' || c.rest[0] == '\n' || c.rest[0] == '\t' || c.rest[0] == '\r') {
		c.rest = c.rest[1:]
	}
	return c.rest
}

func (c *inputCursor) take(token string) bool {
	if rest := c.skip(); len(rest) < len(token) || string(rest[:len(token)]) != token {
		return false
	}
	c.rest = c.rest[len(token):]
	return true
}

// number skips digits that fit into an int.
func (c *inputCursor) number() bool {
	digits := c.skip()
	c.rest = bytes.TrimLeft(digits, "0123456789")
	n := len(digits) - len(c.rest)
	return n > 0 && n < 10 && (digits[0] != '0' || n == 1)
}

// member returns the string that is the value of a name.
func (c *inputCursor) member() ([]byte, bool) {
	if !c.take(":") || !c.take(`"`) {
		return nil, false
	}
	ascii := true
	for i := range len(c.rest) {
		switch b := c.rest[i]; {
		case b == '"':
			text := c.rest[:i]
			c.rest = c.rest[i+1:]
			return text, ascii || utf8.Valid(text)
		case b == '\\':
			return c.escaped()
		case b < ' ':
			return nil, false
		case b >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false
}

// escapes maps the letter after a backslash to its character.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escaped reads the rest of a string with backslashes in it.
func (c *inputCursor) escaped() ([]byte, bool) {
	text := make([]byte, 0, len(c.rest))
	for i := 0; i < len(c.rest); i++ {
		switch b := c.rest[i]; {
		case b == '"':
			c.rest = c.rest[i+1:]
			return text, utf8.Valid(text)
		case b < ' ':
			return nil, false
		case b != '\\':
			text = append(text, b)
		case i+5 < len(c.rest) && c.rest[i+1] == 'u':
			r, err := strconv.ParseUint(string(c.rest[i+2:i+6]), 16, 16)
			if err != nil || utf16.IsSurrogate(rune(r)) {
				return nil, false
			}
			text = utf8.AppendRune(text, rune(r))
			i += 5
		case i+1 < len(c.rest) && escapes[c.rest[i+1]] != 0:
			i++
			text = append(text, escapes[c.rest[i]])
		default:
			return nil, false
		}
	}
	return nil, false
}
