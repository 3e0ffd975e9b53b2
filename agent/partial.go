package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/agent/event"
)

// A partial is the JSON of an answer that is still coming. It is closed off and decoded again and
// again, but not for every piece once it is long: together that costs some [partialFactor] times the
// length of the answer, twice that where it does not decode, and a constant for each piece.
type partial struct {
	call    string // the answer comes with this call
	text    strings.Builder
	decoded int    // how long the text was that was decoded last
	last    string // what that was, closed off
}

const (
	partialAlways = 4096 // a text of fewer bytes is decoded with every piece
	partialFactor = 16   // a longer one when it has grown by this part of itself
)

// add takes the next piece of an answer, which begins anew with another call. It reports whether
// decode, which is given the closed text, took a new value.
func (p *partial) add(ev *event.ToolCallDelta, decode func(json.RawMessage) error) bool {
	if ev.Name != finalName {
		return false
	}
	if p.call != ev.Call {
		*p = partial{call: ev.Call, last: "{}"} // which says nothing
	}
	p.text.WriteString(ev.Args)
	n := p.text.Len()
	if n > partialAlways && n < p.decoded+p.decoded/partialFactor {
		return false
	}
	p.decoded = n
	// Half a string may be no value of its type, such as a time: then what was whole before it counts.
	for _, withString := range []bool{true, false} {
		text := closed(p.text.String(), withString)
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

// closed returns the beginning of a JSON text with what is open closed, "" as long as there is
// nothing. A string that is coming is shown as far as it has come, or left out. Numbers, true, false,
// null and names of members are shown when they have certainly ended: 1 may become 12.
func closed(text string, withString bool) string {
	var open []byte // what closes the open objects and arrays, the innermost last
	whole, tail := 0, ""
	name := false // the next string is the name of a member
scan:
	for i := 0; i < len(text); {
		n := 1
		switch c := text[i]; c {
		case '{', '[':
			open, name, whole = append(open, c+2), c == '{', i+1 // the bracket that closes it, in ASCII
		case '}', ']':
			open, whole = open[:max(len(open)-1, 0)], i+1
		case ',':
			name = len(open) > 0 && open[len(open)-1] == '}'
		case ':':
			name = false
		case ' ', '\t', '\r', '\n':
		case '"':
			var ended bool
			if n, ended = stringLength(text[i:]); !ended {
				if withString && !name {
					whole, tail = i+n, `"`
				}
				break scan
			}
			if !name {
				whole = i + n
			}
		default:
			if n = strings.IndexAny(text[i:], ",]} \t\r\n"); n < 0 {
				break scan
			}
			whole = i + n
		}
		i += n
	}
	if strings.TrimSpace(text[:whole]) == "" {
		return ""
	}
	slices.Reverse(open)
	return text[:whole] + tail + string(open)
}

// stringLength returns how long the JSON string is that text begins with, up to and with its closing
// quote. Of one that has not ended it leaves out half a character, which may be an escape sequence,
// or two of them for an emoji.
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

// isHighSurrogate reports whether text begins with an escape sequence that is the first of two for
// one character.
func isHighSurrogate(text string) bool {
	return len(text) >= 6 && strings.EqualFold(text[:3], `\ud`) && strings.IndexByte("89abAB", text[3]) >= 0
}
