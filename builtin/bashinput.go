package builtin

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// readInput returns the command in a call's arguments, and whether the arguments request to leave the sandbox: only
// the exact name outside_sandbox counts, though encoding/json ignores case. Other arguments are not decoded, since the
// tool accepts numbers in more forms than encoding/json does, such as 1e3. ok is false if the command cannot be decoded.
func readInput(input []byte) (command string, outside, ok bool) {
	if command, ok = plainCommand(input); ok {
		return command, false, true
	}
	var in struct {
		Command string
		Outside bool `json:"outside_sandbox"`
	}
	err := json.Unmarshal(input, &in)
	return in.Command, in.Outside && bytes.Contains(input, []byte(outsideField)), err == nil
}

// plainCommand reads arguments in the usual form: only bashIn's fields, of their usual types. For any other form it
// returns false. FuzzPlainCommand checks that the result equals that of encoding/json, with which every permission
// decision about a command would take a sixth longer.
func plainCommand(input []byte) (command string, ok bool) {
	c := inputCursor{rest: input}
	if !c.accept("{") {
		return "", false
	}
	for {
		switch {
		case c.accept(`"command"`):
			if command, ok = c.stringValue(); !ok {
				return "", false
			}
		case c.accept(`"description"`):
			if _, ok = c.stringValue(); !ok {
				return "", false
			}
		case c.accept(`"timeout"`):
			if !c.accept(":") || !c.skipNumber() {
				return "", false
			}
		default:
			return "", false
		}
		if c.accept("}") {
			return command, len(c.skipSpace()) == 0
		}
		if !c.accept(",") {
			return "", false
		}
	}
}

// An inputCursor scans JSON.
type inputCursor struct{ rest []byte }

// skipSpace skips white space and returns the rest.
func (c *inputCursor) skipSpace() []byte {
	c.rest = bytes.TrimLeft(c.rest, " \n\t\r")
	return c.rest
}

// accept reports whether the token is next, and then skips it.
func (c *inputCursor) accept(token string) bool {
	rest, found := bytes.CutPrefix(c.skipSpace(), []byte(token))
	if found {
		c.rest = rest
	}
	return found
}

// skipNumber skips at most nine digits, which fit into any int. As in JSON, a longer number must not begin with 0.
func (c *inputCursor) skipNumber() bool {
	digits := c.skipSpace()
	c.rest = bytes.TrimLeft(digits, "0123456789")
	n := len(digits) - len(c.rest)
	return n == 1 || n > 1 && n < 10 && digits[0] != '0'
}

// stringValue reads the colon and the string after a name. It fails for escapes that JSON and Go do not share.
func (c *inputCursor) stringValue() (string, bool) {
	if !c.accept(":") || !c.accept(`"`) {
		return "", false
	}
	escaped := false
	for i := 0; i < len(c.rest); i++ {
		switch b := c.rest[i]; {
		case b == '"':
			text := c.rest[:i]
			c.rest = c.rest[i+1:]
			if !utf8.Valid(text) {
				return "", false
			}
			if escaped {
				unquoted, err := strconv.Unquote(`"` + string(text) + `"`)
				return unquoted, err == nil
			}
			return string(text), true
		case b == '\\':
			if i++; i == len(c.rest) || strings.IndexByte(`"\bfnrtu`, c.rest[i]) < 0 {
				return "", false
			}
			escaped = true
		case b < ' ':
			return "", false
		}
	}
	return "", false
}
