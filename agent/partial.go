package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// A partial is the JSON of an answer that is still coming. It is closed off and
// decoded again and again, but not for every piece once it is long: together
// that costs some [partialFactor] times the length of the answer, twice that where
// it does not decode, beside a constant for each piece.
type partial struct {
	call    string // the answer comes with this call
	prefix  prefix
	decoded int    // how long the text was that was decoded last
	last    string // what that was, closed off
}

const (
	partialAlways = 4096 // a text of fewer bytes is decoded with every piece
	partialFactor = 16   // a longer one when it has grown by this part of itself
)

// add takes the next piece of an answer, which begins anew with another call.
// It reports whether decode, which is given the closed text, took a new value.
func (p *partial) add(ev *ToolCallDelta, decode func(json.RawMessage) error) bool {
	if ev.Name != finalName {
		return false
	}
	if p.call != ev.Call {
		*p = partial{call: ev.Call, last: "{}"} // which says nothing
	}
	p.prefix.add(ev.Args)
	n := p.prefix.text.Len()
	if n > partialAlways && n < p.decoded+p.decoded/partialFactor {
		return false
	}
	p.decoded = n
	// Half a string may be no value of its type, such as a time: then what was
	// whole before it counts.
	for _, text := range []string{p.prefix.closed(true), p.prefix.closed(false)} {
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

// A prefix is JSON of which the end has not come yet, and which can be closed
// off at any time. Each byte is looked at once.
//
// Strings are shown as far as they have come. Numbers, true, false, null and
// names of members are shown when they have certainly ended: 1 may become 12.
type prefix struct {
	text strings.Builder
	open []byte // what would close the open objects and arrays, the innermost last
	safe int    // up to here the text holds nothing but whole values

	in     scan
	name   bool // the next string is the name of a member
	escape bool // the last byte of a string was a backslash that escapes

	// Where the last two escape sequences of the current string began. An
	// emoji is two of them, and half of it is nothing.
	escapes [2]int
}

// A scan says what the next byte of a prefix belongs to.
type scan int

const (
	between scan = iota // punctuation and white space
	inString
	inWord // a number, true, false or null
)

func (p *prefix) add(s string) {
	at := p.text.Len()
	p.text.WriteString(s)
	for i := range len(s) {
		if c := s[i]; p.in == inString {
			p.addToString(c, at+i)
		} else {
			p.addOutside(c, at+i)
		}
	}
}

func (p *prefix) addToString(c byte, at int) {
	switch {
	case p.escape:
		p.escape = false
	case c == '\\':
		p.escape = true
		p.escapes = [2]int{p.escapes[1], at}
	case c == '"':
		p.in = between
		if !p.name {
			p.safe = at + 1
		}
	}
}

func (p *prefix) addOutside(c byte, at int) {
	if p.in == inWord && strings.IndexByte(",]} \t\r\n", c) >= 0 {
		p.in, p.safe = between, at
	}
	switch c {
	case '{', '[':
		p.open = append(p.open, c+2) // the bracket that closes it, in ASCII
		p.safe, p.name = at+1, c == '{'
	case '}', ']':
		if n := len(p.open); n > 0 {
			p.open, p.safe = p.open[:n-1], at+1
		}
	case ',':
		p.name = len(p.open) > 0 && p.open[len(p.open)-1] == '}'
	case ':':
		p.name = false
	case '"':
		p.in, p.escapes = inString, [2]int{-1, -1}
	case ' ', '\t', '\r', '\n':
	default:
		p.in = inWord
	}
}

// closed returns the text with what is open closed, the string that is coming
// included or left out. It is JSON if the text is the beginning of JSON, and ""
// as long as there is nothing.
func (p *prefix) closed(withString bool) string {
	text, quote := p.text.String(), ""
	if withString && p.in == inString && !p.name {
		text, quote = text[:p.stringEnd()], `"`
	} else {
		text = text[:p.safe]
	}
	if strings.TrimSpace(text) == "" {
		return ""
	}
	end := slices.Clone(p.open)
	slices.Reverse(end)
	return text + quote + string(end)
}

// stringEnd returns up to where the string that is coming can be shown: not
// within an escape sequence, half an emoji, or a character.
func (p *prefix) stringEnd() int {
	text := p.text.String()
	end := len(text)
	for i := range min(utf8.UTFMax-1, end) { // the last character may be cut
		if tail := text[end-1-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				end -= i + 1
			}
			break
		}
	}
	if at := p.escapes[1]; at >= 0 && (end-at < 2 || text[at+1] == 'u' && end-at < 6) {
		end = at
	}
	for _, at := range p.escapes {
		if at >= 0 && end-at == 6 && isHighSurrogate(text[at:end]) {
			return at
		}
	}
	return end
}

// isHighSurrogate reports whether an escape sequence is the first of two that
// stand for one character.
func isHighSurrogate(escape string) bool {
	return len(escape) == 6 && strings.EqualFold(escape[:3], `\ud`) && strings.IndexByte("89abAB", escape[3]) >= 0
}
