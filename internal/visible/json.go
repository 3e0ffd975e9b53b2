package visible

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/strictjson"
)

// Result removes from the text of a result the characters that can carry text that only a model reads: tags
// except in flags, most variation selectors, bidirectional controls, and zero-width characters. It keeps the characters
// that scripts and emoji need, and control characters, since the result may be a file that is later written back.
func Result(s string) string {
	if strings.IndexFunc(s, carrier) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == '\U0001F3F4' {
			for _, region := range flags {
				if strings.HasPrefix(s[n:], region) {
					n += len(region)
					break
				}
			}
		}
		if !carrier(r) {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// flags are the tags of the flags of England, Scotland and Wales; there are no others.
var flags = []string{
	"\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F",
	"\U000E0067\U000E0062\U000E0073\U000E0063\U000E0074\U000E007F",
	"\U000E0067\U000E0062\U000E0077\U000E006C\U000E0073\U000E007F",
}

// Carries reports whether s has characters that can only hide or reorder words in a name or value.
func Carries(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return unicode.Is(tags, r) || unicode.Is(selectors, r) || unicode.Is(bidi, r) }) >= 0
}

var (
	tags      = table(0xE0000, 0xE007F)
	selectors = table(0xE0080, 0xE0FFF) // of variants, and characters that will never be drawn
	bidi      = &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0x202A, Hi: 0x202E, Stride: 1}, {Lo: 0x2066, Hi: 0x2069, Stride: 1}}}
	zeroWidth = &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0x034F, Hi: 0x034F, Stride: 1}, {Lo: 0x115F, Hi: 0x1160, Stride: 1}, {Lo: 0x17B4, Hi: 0x17B5, Stride: 1},
		{Lo: 0x180B, Hi: 0x180F, Stride: 1}, {Lo: 0x200B, Hi: 0x200B, Stride: 1}, {Lo: 0x2060, Hi: 0x2065, Stride: 1}, {Lo: 0x206A, Hi: 0x206F, Stride: 1},
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, {Lo: 0xFE00, Hi: 0xFE0D, Stride: 1}, {Lo: 0xFFA0, Hi: 0xFFA0, Stride: 1}, {Lo: 0xFFF0, Hi: 0xFFFB, Stride: 1}},
		R32: []unicode.Range32{{Lo: 0x1BCA0, Hi: 0x1BCA3, Stride: 1}, {Lo: 0x1D173, Hi: 0x1D17A, Stride: 1}}}
)

func table(lo, hi uint32) *unicode.RangeTable {
	return &unicode.RangeTable{R32: []unicode.Range32{{Lo: lo, Hi: hi, Stride: 1}}}
}

// carrier reports whether r can carry text that only a model reads.
func carrier(r rune) bool { return r > 0x300 && unicode.In(r, zeroWidth, bidi, tags, selectors) }

// Words is a function for [JSON] that applies [Text] to the descriptions and titles of a
// schema, or of an entry of a list.
func Words(key, text string) string {
	if IsWords(key) {
		return Text(text)
	}
	return text
}

// Contents is like Words for contents of a resource, whose text is a result.
func Contents(key, text string) string {
	if key == "text" {
		return Result(text)
	}
	return Words(key, text)
}

// IsWords reports whether the value of a key is prose.
func IsWords(key string) bool { return key == "description" || key == "title" || key == "$comment" }

// JSON replaces each string in valid JSON that is the value of a key by the result of fix. All other bytes stay the same.
func JSON(data json.RawMessage, fix func(key, text string) string) json.RawMessage {
	var out []byte // a copy, from the first change on
	kept := 0      // how much of data is in out
	var key []byte // of the next value; nil for none
	for i := 0; i < len(data); i++ {
		if data[i] != '"' {
			if data[i] != ':' && data[i] > ' ' {
				key = nil
			}
			continue
		}
		end := strictjson.StringEnd(data, i)
		literal := data[i:end]
		switch {
		case strictjson.ColonFollows(data, end):
			key = literal
		case key != nil:
			var name, text string
			if json.Unmarshal(key, &name) == nil && json.Unmarshal(literal, &text) == nil {
				if fixed := fix(name, text); fixed != text {
					encoded, err := json.Marshal(fixed)
					if err == nil {
						out = append(append(out, data[kept:i]...), encoded...)
						kept = end
					}
				}
			}
			key = nil
		}
		i = end - 1
	}
	if out == nil {
		return data
	}
	return append(out, data[kept:]...)
}
