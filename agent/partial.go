package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/agent/event"
)

// A partialJSON is the incomplete JSON of a typed answer. It is completed and decoded after every piece, but less often
// once it is long: otherwise the cost would grow with the square of the length.
type partialJSON struct {
	call       string // id of the call whose arguments are the answer
	text       strings.Builder
	decodedLen int    // length of text at the last attempt to decode it
	lastJSON   string // the JSON that was last accepted
}

const (
	decodeAlways  = 4096 // up to this length the text is decoded with every piece
	growthDivisor = 16   // a longer text is decoded whenever it has grown by 1/growthDivisor
)

// add appends a piece of an answer; a piece of another call starts another answer. It reports whether
// decode, which gets the completed JSON, accepted a new value.
func (p *partialJSON) add(ev *event.ToolCallDelta, decode func(json.RawMessage) error) bool {
	if ev.Name != finalName {
		return false
	}
	if p.call != ev.Call {
		*p = partialJSON{call: ev.Call, lastJSON: "{}"} // an empty object is not a new value
	}
	p.text.WriteString(ev.Args)
	n := p.text.Len()
	if n > decodeAlways && n < p.decodedLen+p.decodedLen/growthDivisor {
		return false
	}
	p.decodedLen = n
	// An incomplete string, such as half a time, may not decode: then try without the string.
	for _, withString := range []bool{true, false} {
		text := completeJSON(p.text.String(), withString)
		if text == p.lastJSON || text == "" {
			return false
		}
		if decode(json.RawMessage(text)) == nil {
			p.lastJSON = text
			return true
		}
	}
	return false
}

// completeJSON returns valid JSON for the beginning of a JSON text: it closes the open objects and arrays. It
// returns "" if there is no value yet. An incomplete string is closed too, or left out unless withString is set.
// Numbers, true, false, null and names of members are left out until they are certainly complete: 1 may become 12.
func completeJSON(text string, withString bool) string {
	var closing []byte // brackets that close the open objects and arrays, the innermost last
	end, tail := 0, "" // the result is text[:end], then tail, then closing
	isName := false    // the next string is the name of a member
scan:
	for i := 0; i < len(text); {
		n := 1
		switch c := text[i]; c {
		case '{', '[':
			closing, isName, end = append(closing, c+2), c == '{', i+1 // in ASCII, } is { + 2 and ] is [ + 2
		case '}', ']':
			closing, end = closing[:max(len(closing)-1, 0)], i+1
		case ',':
			isName = len(closing) > 0 && closing[len(closing)-1] == '}'
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
		default: // a number, true, false or null
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
	slices.Reverse(closing)
	return text[:end] + tail + string(closing)
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
				size = 12 // two surrogates
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
