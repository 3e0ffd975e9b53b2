package pdf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
)

const maxDifferences = 2048 // numbers and names of an encoding, which has 256 codes

// A font is the part of a font that reading text needs.
type font struct {
	decode func(codes string) string
	first  int
	widths []float64 // of the codes from first on, in thousandths of the font size
}

// font returns a font, from the cache if another page uses it.
func (f *File) font(ctx context.Context, o object) (*font, error) {
	if t := f.fonts[int(o.num)]; o.kind == kindRef && t != nil {
		return t, nil
	}
	t, err := f.readFont(ctx, f.resolve(ctx, o))
	if err == nil && o.kind == kindRef {
		f.fonts[int(o.num)] = t
	}
	return t, err
}

func (f *File) readFont(ctx context.Context, dict object) (*font, error) {
	t := &font{first: f.get(ctx, dict, "FirstChar").integerOr(255, 0)}
	widths := f.get(ctx, dict, "Widths").list()
	for _, w := range widths[:min(len(widths), 256)] {
		t.widths = append(t.widths, f.resolve(ctx, w).num)
	}
	encoding, unicode := f.get(ctx, dict, "Encoding"), f.get(ctx, dict, "ToUnicode")
	named := namedEncoding(encoding.name())
	switch {
	case encoding.kind == kindDict, named != nil:
		table, err := f.readEncoding(ctx, encoding, named)
		if err == nil && unicode.kind == kindStream {
			err = f.overlay(ctx, table, unicode)
		}
		if err != nil {
			return nil, err
		}
		t.decode = table.decode
	case encoding.name() == "UniGB-UCS2-H":
		t.decode = func(codes string) string { return string(utf16.Decode(utf16Units(codes, len(codes)))) }
	case unicode.kind == kindStream:
		m, err := f.readCharMap(ctx, unicode)
		if err != nil {
			return nil, err
		}
		t.decode = m.decode
	case encoding.kind == kindNull:
		t.decode = pdfDocEncoding().decode
	default:
		t.decode = winAnsiEncoding().decode
	}
	return t, f.err
}

// An encodingTable maps single-byte codes to text.
type encodingTable [256]string

func (t *encodingTable) decode(codes string) string {
	var b strings.Builder
	for i := range len(codes) {
		b.WriteString(t[codes[i]])
	}
	return b.String()
}

// readEncoding reads an encoding, which is a name or a list of differences from another;
// section 9.6.6.
func (f *File) readEncoding(ctx context.Context, dict object, base *encodingTable) (*encodingTable, error) {
	if base == nil {
		base = namedEncoding(f.get(ctx, dict, "BaseEncoding").name())
	}
	if base == nil { // the default is in the font's program, which is not read
		base = winAnsiEncoding()
	}
	table := *base
	list := f.get(ctx, dict, "Differences").list()
	if len(list) > maxDifferences {
		return nil, fmt.Errorf("the encoding of a font has %d entries; at most %d are read", len(list), maxDifferences)
	}
	code := 0
	for _, o := range list {
		switch o = f.resolve(ctx, o); o.kind {
		case kindNumber:
			code = o.integerOr(255, 256)
		case kindName:
			if text := glyphText(o.text); text != "" && code < len(table) {
				table[code] = text
			}
			code++
		}
	}
	return &table, nil
}

// overlay lets the character map override the names of glyphs for single-byte codes;
// section 9.10.2. It ignores a damaged map.
func (f *File) overlay(ctx context.Context, table *encodingTable, stream object) error {
	m, err := f.readCharMap(ctx, stream)
	if _, damaged := errors.AsType[damage](err); damaged {
		return nil
	} else if err != nil {
		return err
	}
	for i := range table {
		if text, ok := m.text(charCode{1, uint32(i)}); ok {
			table[i] = text
		}
	}
	return nil
}
