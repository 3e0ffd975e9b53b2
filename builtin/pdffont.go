package builtin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/ledongthuc/pdf"
)

const (
	pdfMaxMap         = 4 << 20 // bytes of the character map of a font
	pdfMaxMapOperands = 1 << 16 // before an operator of one
	pdfMaxChars       = 1 << 17 // entries of one
	pdfMaxSpaces      = 100     // ranges of codes; as many as section 9.7.5 allows
	pdfMaxOverlap     = 16      // ranges that begin before a code and end after it
	pdfMaxCode        = 4       // bytes of a code
	pdfMaxUnits       = 32      // of UTF-16 that a code stands for
	pdfMaxDifferences = 2048    // numbers and names; there are 256 codes
)

// A pageFont is what has to be known of a font to read text.
type pageFont struct {
	decode func(codes string) string
	first  int
	widths []float64 // of the codes from first on, in thousandths of the size
}

// newPageFont reads a font. What it says of characters is looked up once and not, as
// the library does, in the whole list for each character.
func newPageFont(ctx context.Context, font pdf.Font) (*pageFont, error) {
	f := &pageFont{first: font.FirstChar()}
	widths := font.V.Key("Widths")
	for i := range min(widths.Len(), 256) {
		f.widths = append(f.widths, widths.Index(i).Float64())
	}
	encoding, unicode := font.V.Key("Encoding"), font.V.Key("ToUnicode")
	switch {
	case (encoding.IsNull() || encoding.Name() == "Identity-H") && unicode.Kind() == pdf.Stream:
		m, err := readCharMap(ctx, unicode)
		if err != nil {
			return nil, fmt.Errorf("the character map of a font: %w", err)
		}
		f.decode = m.decode
	case encoding.Kind() == pdf.Dict:
		if n := encoding.Key("Differences").Len(); n > pdfMaxDifferences {
			return nil, fmt.Errorf("the encoding of a font has %d entries; at most %d are read", n, pdfMaxDifferences)
		}
		var table [256]string
		encoder := font.Encoder()
		for i := range table {
			table[i] = encoder.Decode(string([]byte{byte(i)}))
		}
		f.decode = func(codes string) string {
			var b strings.Builder
			for i := range len(codes) {
				b.WriteString(table[codes[i]])
			}
			return b.String()
		}
	default:
		f.decode = font.Encoder().Decode
	}
	return f, nil
}

// A charMap tells what the codes of a font stand for; PDF 32000-1, section 9.10.3.
type charMap struct {
	spaces []charRange // which codes there are
	ranges []charRange // in order
	chars  map[charCode][]uint16
}

// A charCode is a code of n bytes.
type charCode struct {
	n    int
	code uint32
}

// A charRange is a range of codes of n bytes. The first stands for text, the others
// for what follows it, unless they have texts of their own.
type charRange struct {
	charCode
	hi    uint32
	reach uint32 // the greatest hi up to this range
	text  []uint16
	texts [][]uint16
}

func (a charRange) compare(b charRange) int { return cmp.Or(a.n-b.n, cmp.Compare(a.code, b.code)) }

func (a charRange) has(c charCode) bool { return a.n == c.n && a.code <= c.code && c.code <= a.hi }

func readCharMap(ctx context.Context, stream pdf.Value) (*charMap, error) {
	data, err := readStream(stream, pdfMaxMap)
	if err != nil {
		return nil, err
	}
	m := &charMap{chars: map[charCode][]uint16{}}
	add := func(to *[]charRange, most int, lo, hi string, text pdfOperand) {
		if len(lo) == 0 || len(lo) > pdfMaxCode || len(lo) != len(hi) || len(*to) >= most {
			return
		}
		r := charRange{charCode: codeOf(lo), hi: codeOf(hi).code, text: utf16Units(text.text)}
		for _, t := range text.list {
			r.texts = append(r.texts, utf16Units(t.text))
		}
		*to = append(*to, r)
	}
	err = (&pdfScanner{data: data}).run(ctx, pdfMaxMapOperands, func(op string, args []pdfOperand) error {
		switch op {
		case "endcodespacerange":
			for ; len(args) >= 2; args = args[2:] {
				add(&m.spaces, pdfMaxSpaces, args[0].text, args[1].text, pdfOperand{})
			}
		case "endbfchar":
			for ; len(args) >= 2 && len(m.chars) < pdfMaxChars; args = args[2:] {
				m.chars[codeOf(args[0].text)] = utf16Units(args[1].text)
			}
		case "endbfrange":
			for ; len(args) >= 3; args = args[3:] {
				add(&m.ranges, pdfMaxChars, args[0].text, args[1].text, args[2])
			}
		}
		return nil
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

// utf16Units reads UTF-16, big end first.
func utf16Units(s string) (units []uint16) {
	for i := 0; i+1 < len(s) && len(units) < pdfMaxUnits; i += 2 {
		units = append(units, uint16(s[i])<<8|uint16(s[i+1]))
	}
	return units
}

func (m *charMap) decode(codes string) string {
	var b strings.Builder
	for len(codes) > 0 {
		c := m.next(codes)
		b.WriteString(m.text(c))
		codes = codes[c.n:]
	}
	return b.String()
}

// next returns the first code.
func (m *charMap) next(codes string) charCode {
	for n := 1; n <= min(pdfMaxCode, len(codes)); n++ {
		c := codeOf(codes[:n])
		if slices.ContainsFunc(m.spaces, func(r charRange) bool { return r.has(c) }) {
			return c
		}
	}
	return codeOf(codes[:1])
}

func (m *charMap) text(c charCode) string {
	if text, ok := m.chars[c]; ok {
		return string(utf16.Decode(text))
	}
	i, exact := slices.BinarySearchFunc(m.ranges, charRange{charCode: c}, charRange.compare)
	if !exact {
		i--
	}
	// One that begins before may be longer. In a map made in earnest few overlap.
	for last := max(0, i-pdfMaxOverlap); i >= last && m.ranges[i].n == c.n && m.ranges[i].reach >= c.code; i-- {
		if m.ranges[i].has(c) {
			return m.ranges[i].at(c.code)
		}
	}
	return "\uFFFD"
}

// at returns what a code in the range stands for.
func (a charRange) at(code uint32) string {
	past, text := code-a.code, a.text
	switch {
	case uint64(past) < uint64(len(a.texts)):
		text = a.texts[past]
	case len(text) == 0:
		return "\uFFFD"
	case past > 0:
		text = slices.Clone(text)
		text[len(text)-1] += uint16(past)
	}
	return string(utf16.Decode(text))
}
