package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/agent/event"
)

// A partialJSON is the incomplete JSON of an answer. It is completed and decoded
// repeatedly, but less often once it is long: the total cost is about [partialFactor] times
// the length of the answer, twice that if it does not decode, and a constant for each piece.
type partialJSON struct {
	call    string // id of the call whose arguments are the answer
	text    strings.Builder
	decoded int    // length of text at the last decode
	last    string // the JSON that was last decoded
}

const (
	partialAlways = 4096 // shorter texts are decoded with every piece
	partialFactor = 16   // longer ones whenever they have grown by 1/partialFactor
)

// add appends a piece of an answer; another call starts another answer. It reports whether
// decode, which gets the completed JSON, accepted a new value.
func (p *partialJSON) add(ev *event.ToolCallDelta, decode func(json.RawMessage) error) bool {
	if ev.Name != finalName {
		return false
	}
	if p.call != ev.Call {
		*p = partialJSON{call: ev.Call, last: "{}"} // an empty object is not a new value
	}
	p.text.WriteString(ev.Args)
	n := p.text.Len()
	if n > partialAlways && n < p.decoded+p.decoded/partialFactor {
		return false
	}
	p.decoded = n
	// An incomplete string, such as half a time, may not decode: then try without it.
	for _, withString := range []bool{true, false} {
		text := completeJSON(p.text.String(), withString)
		if text == p.last || text == "" {
			return false
		}
		if decode(json.RawMessage(text)) == nil {
			p.last = text
			return true
		}
	}
	return false
}

// completeJSON returns valid JSON for the beginning of a JSON text: it closes the open objects and arrays. It
// returns "" if there is no value yet. An incomplete string is closed too, or left out unless withString is set.
// Numbers, true, false, null and names of members are left out until they are certainly complete: 1 may become 12.
func completeJSON(text string, withString bool) string {
	var open []byte    // brackets that close the open objects and arrays, the innermost last
	end, tail := 0, "" // the result has text[:end], then tail, then the brackets
	isName := false    // the next string is the name of a member
scan:
	for i := 0; i < len(text); {
		n := 1
		switch c := text[i]; c {
		case '{', '[':
			open, isName, end = append(open, c+2), c == '{', i+1 // the bracket that closes it, in ASCII
		case '}', ']':
			open, end = open[:max(len(open)-1, 0)], i+1
		case ',':
			isName = len(open) > 0 && open[len(open)-1] == '}'
		case ':':
			isName = false
		case ' ', '\t', '\r', '\n':
		case '"':
			var ended bool
			if n, ended = stringLength(text[i:]); !ended {
				if withString && !isName {
					end, tail = i+n, `"`
				}
				break scan
			}
			if !isName {
				end = i + n
			}
		default:
			if n = strings.IndexAny(text[i:], ",]} \t\r\n"); n < 0 {
				break scan
			}
			end = i + n
		}
		i += n
	}
	if strings.TrimSpace(text[:end]) == "" {
		return ""
	}
	slices.Reverse(open)
	return text[:end] + tail + string(open)
}

// stringLength returns the length of the JSON string at the start of text, with its quotes. If the string has not
// ended, an incomplete last character does not count: part of an escape sequence, or the first of two surrogates.
func stringLength(text string) (n int, ended bool) {
	for n = 1; n < len(text); {
		size := 1
		switch rest := text[n:]; {
		case rest[0] == '"':
			return n + 1, true
		case strings.HasPrefix(rest, `\u`):
			if size = 6; isHighSurrogate(rest) && (len(rest) < 8 || rest[6:8] == `\u`) {
				size = 12
			}
		case rest[0] == '\\':
			size = 2
		case rest[0] >= utf8.RuneSelf && !utf8.FullRuneInString(rest):
			return n, false
		}
		if n+size > len(text) {
			return n, false
		}
		n += size
	}
	return n, false
}

// isHighSurrogate reports whether text begins with an escape sequence for the first of two surrogates.
func isHighSurrogate(text string) bool {
	return len(text) >= 6 && strings.EqualFold(text[:3], `\ud`) && strings.IndexByte("89abAB", text[3]) >= 0
}
