package pdf

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

const (
	maxMap         = 4 << 20 // bytes of the character map of a font
	maxMapOperands = 1 << 16 // operands of an operator of a map
	maxChars       = 1 << 17 // entries of a map
	maxSpaces      = 100     // ranges of codes; as many as section 9.7.5 allows
	maxOverlap     = 16      // ranges that begin before a code and end after it
	maxCode        = 4       // bytes of a code
	maxUnits       = 32      // UTF-16 units of the text of a code
)

// A charMap maps the codes of a font to text; PDF 32000-1, section 9.10.3.
type charMap struct {
	spaces []charRange // the lengths and ranges of valid codes
	ranges []charRange // sorted
	chars  map[charCode][]uint16
}

// A charCode is a code of n bytes.
type charCode struct {
	n    int
	code uint32
}

// A charRange is a range of codes of n bytes. text is the text of its first code; the others have the
// characters that follow, unless texts lists their texts.
type charRange struct {
	charCode
	hi    uint32
	reach uint32 // the greatest hi up to this range
	text  []uint16
	texts [][]uint16
}

func (a charRange) compare(b charRange) int { return cmp.Or(a.n-b.n, cmp.Compare(a.code, b.code)) }

func (a charRange) has(c charCode) bool { return a.n == c.n && a.code <= c.code && c.code <= a.hi }

func (f *File) readCharMap(ctx context.Context, stream object) (*charMap, error) {
	data, err := f.decode(ctx, stream, maxMap)
	if err != nil {
		return nil, fmt.Errorf("the character map of a font: %w", err)
	}
	m := &charMap{chars: map[charCode][]uint16{}}
	add := func(to *[]charRange, limit int, lo, hi string, text object) {
		if len(lo) == 0 || len(lo) > maxCode || len(lo) != len(hi) || len(*to) >= limit {
			return
		}
		r := charRange{charCode: codeOf(lo), hi: codeOf(hi).code, text: utf16Units(text.text, maxUnits)}
		for _, t := range text.list() {
			r.texts = append(r.texts, utf16Units(t.text, maxUnits))
		}
		if f.spend(ctx, &f.left.entries, 1+len(r.texts)) {
			*to = append(*to, r)
		}
	}
	err = (&scanner{data: data}).run(ctx, maxMapOperands, func(op string, args []object) error {
		switch op {
		case "endcodespacerange":
			for ; len(args) >= 2; args = args[2:] {
				add(&m.spaces, maxSpaces, args[0].text, args[1].text, object{})
			}
		case "endbfchar":
			for ; len(args) >= 2 && len(m.chars) < maxChars && f.spend(ctx, &f.left.entries, 1); args = args[2:] {
				m.chars[codeOf(args[0].text)] = utf16Units(args[1].text, maxUnits)
			}
		case "endbfrange":
			for ; len(args) >= 3; args = args[3:] {
				add(&m.ranges, maxChars, args[0].text, args[1].text, args[2])
			}
		}
		return f.err
	})
	slices.SortStableFunc(m.ranges, charRange.compare)
	for i := range m.ranges {
		r := &m.ranges[i]
		if r.reach = r.hi; i > 0 && m.ranges[i-1].n == r.n {
			r.reach = max(r.hi, m.ranges[i-1].reach)
		}
	}
	return m, err
}

func codeOf(s string) charCode {
	c := charCode{n: len(s)}
	for i := range len(s) {
		c.code = c.code<<8 | uint32(s[i])
	}
	return c
}

// utf16Units decodes big-endian UTF-16.
func utf16Units(s string, limit int) (units []uint16) {
	for i := 0; i+1 < len(s) && len(units) < limit; i += 2 {
		units = append(units, uint16(s[i])<<8|uint16(s[i+1]))
	}
	return units
}

func (m *charMap) decode(codes string) string {
	var b strings.Builder
	for len(codes) > 0 {
		c := m.next(codes)
		text, ok := m.text(c)
		if !ok {
			text = "\uFFFD"
		}
		b.WriteString(text)
		codes = codes[c.n:]
	}
	return b.String()
}

// next returns the first code.
func (m *charMap) next(codes string) charCode {
	for n := 1; n <= min(maxCode, len(codes)); n++ {
		c := codeOf(codes[:n])
		if slices.ContainsFunc(m.spaces, func(r charRange) bool { return r.has(c) }) {
			return c
		}
	}
	return codeOf(codes[:1])
}

// text returns the text of a code, if the map has one.
func (m *charMap) text(c charCode) (string, bool) {
	if text, ok := m.chars[c]; ok {
		return string(utf16.Decode(text)), true
	}
	i, exact := slices.BinarySearchFunc(m.ranges, charRange{charCode: c}, charRange.compare)
	if !exact {
		i--
	}
	// An earlier range may reach further. In genuine maps few ranges overlap.
	for last := max(0, i-maxOverlap); i >= last && m.ranges[i].n == c.n && m.ranges[i].reach >= c.code; i-- {
		if m.ranges[i].has(c) {
			return m.ranges[i].at(c.code)
		}
	}
	return "", false
}

// at returns the text of a code in the range.
func (a charRange) at(code uint32) (string, bool) {
	past, text := code-a.code, a.text
	switch {
	case uint64(past) < uint64(len(a.texts)):
		text = a.texts[past]
	case len(text) == 0:
		return "", false
	case past > 0:
		text = slices.Clone(text)
		text[len(text)-1] += uint16(past)
	}
	return string(utf16.Decode(text)), true
}
