package pdf

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/ascii85"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
)

// encoded returns the bytes of a stream as stored in the file.
func (f *File) encoded(ctx context.Context, o object) []byte {
	rest := f.raw[o.body.start:]
	if n, ok := f.get(ctx, o, "Length").integer(len(rest)); ok && wordFollows(rest[n:], "endstream") {
		return rest[:n]
	}
	n := bytes.Index(rest, []byte("endstream")) // Length is wrong
	if n < 0 {
		n = len(rest)
	}
	if !f.spend(ctx, &f.left.parsed, n) {
		return nil
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(rest[:n], []byte("\n")), []byte("\r"))
}

// wordFollows reports whether a word follows after at most a few bytes of white space.
func wordFollows(data []byte, word string) bool {
	data = data[:min(len(data), len(word)+4)]
	i := slices.IndexFunc(data, func(c byte) bool { return !isSpace(c) })
	return i >= 0 && bytes.HasPrefix(data[i:], []byte(word))
}

// decode returns the bytes of a stream after its filters; section 7.4. It fails if a stage has more than limit bytes.
func (f *File) decode(ctx context.Context, o object, limit int) ([]byte, error) {
	filters, parms := f.oneOrMore(ctx, o, "Filter"), f.oneOrMore(ctx, o, "DecodeParms")
	if len(filters) > maxFilters {
		return nil, fmt.Errorf("a stream has %d filters; at most %d are read", len(filters), maxFilters)
	}
	data := f.decrypt(ctx, o, f.encoded(ctx, o))
	for i, filter := range filters {
		var parm object
		if i < len(parms) {
			parm = f.resolve(ctx, parms[i])
		}
		var err error
		if data, err = f.filter(ctx, f.resolve(ctx, filter).name(), parm, data, limit); err != nil {
			return nil, err
		}
	}
	if f.err == nil && len(data) > limit {
		return nil, tooLong(limit)
	}
	return data, f.err
}

func tooLong(limit int) error {
	return fmt.Errorf("its streams have more than %d bytes, the limit", limit)
}

// oneOrMore returns the members of an array, or a single value in place of an array.
func (f *File) oneOrMore(ctx context.Context, o object, name string) []object {
	v := f.get(ctx, o, name)
	switch v.kind {
	case kindNull:
		return nil
	case kindArray:
		return v.list()
	}
	return []object{v}
}

func (f *File) filter(ctx context.Context, name string, parm object, data []byte, limit int) ([]byte, error) {
	if !f.spend(ctx, &f.left.decoded, len(data)) { // some filters read much and return little
		return nil, f.err
	}
	var r io.Reader
	switch name {
	case "FlateDecode", "Fl":
		z, err := zlib.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, damagef("a stream cannot be decompressed: %v", err)
		}
		r = z
	case "LZWDecode", "LZW":
		r = &lzwReader{data: data, early: f.get(ctx, parm, "EarlyChange").integerOr(1, 1)}
	case "RunLengthDecode", "RL":
		r = &runReader{data: data}
	case "ASCIIHexDecode", "AHx":
		r = hex.NewDecoder(bytes.NewReader(hexDigits(data)))
	case "ASCII85Decode", "A85":
		r = ascii85.NewDecoder(bytes.NewReader(ascii85Digits(data)))
	case "Crypt": // decrypt has handled it
		return data, nil
	default:
		return nil, damagef("its filter %q is not supported; only filters for text are", name)
	}
	out, err := f.readAll(ctx, r, limit)
	if err != nil {
		return nil, err
	}
	return f.unpredict(ctx, parm, out)
}

// readAll reads at most limit bytes. A damaged stream ends at the damage; the bytes before it are kept.
func (f *File) readAll(ctx context.Context, r io.Reader, limit int) ([]byte, error) {
	var out []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		if !f.spend(ctx, &f.left.decoded, n) {
			return nil, f.err
		}
		if out = append(out, buf[:n]...); len(out) > limit {
			return nil, tooLong(limit)
		}
		switch {
		case err == io.EOF, err != nil && len(out) > 0:
			return out, nil
		case err != nil:
			return nil, damagef("a stream cannot be decompressed: %v", err)
		}
	}
}

// unpredict undoes the predictor of a filter.
func (f *File) unpredict(ctx context.Context, parm object, data []byte) ([]byte, error) {
	number := func(name string, limit, otherwise int) int { return f.get(ctx, parm, name).integerOr(limit, otherwise) }
	predictor := number("Predictor", 15, 1)
	if predictor < 2 {
		return data, nil
	}
	colors, bits, columns := number("Colors", 32, 1), number("BitsPerComponent", 16, 8), number("Columns", 1<<20, 1)
	width := (colors*bits*columns + 7) / 8 // at most 64 MiB, which fits into an int of 32 bits
	step := max(1, colors*bits/8)
	if width == 0 {
		return nil, damagef("the rows of a stream have no bytes")
	}
	if predictor == 2 {
		if bits != 8 {
			return nil, damagef("a stream predicts samples of %d bits; only 8 bits are supported", bits)
		}
		for i := range data {
			if i%width >= step {
				data[i] += data[i-step]
			}
		}
		return data, nil
	}
	out := data[:0] // never overwrites data that is still to be read
	above := make([]byte, min(width, len(data)))
	for len(data) > 1 {
		kind, row := data[0], data[1:min(len(data), 1+width)]
		data = data[1+len(row):]
		unpredictRow(kind, row, above, step)
		copy(above, row)
		out = append(out, row...)
	}
	return out, nil
}

// unpredictRow undoes a filter of PNG; section 9 of its specification.
func unpredictRow(kind byte, row, above []byte, step int) {
	for i := range row {
		var left, corner byte
		if i >= step {
			left, corner = row[i-step], above[i-step]
		}
		switch kind {
		case 1:
			row[i] += left
		case 2:
			row[i] += above[i]
		case 3:
			row[i] += byte((int(left) + int(above[i])) / 2)
		case 4:
			row[i] += paeth(left, above[i], corner)
		}
	}
}

func paeth(left, above, corner byte) byte {
	a, b, c := int(left), int(above), int(corner)
	distance := func(x int) int { return max(a+b-c-x, x-a-b+c) }
	switch nearest := min(distance(a), distance(b), distance(c)); nearest {
	case distance(a):
		return left
	case distance(b):
		return above
	}
	return corner
}

// hexDigits returns the digits before the end, padded to an even number.
func hexDigits(data []byte) []byte {
	data, _, _ = bytes.Cut(data, []byte(">"))
	var digits []byte
	for _, c := range data {
		if bytes.IndexByte([]byte("0123456789abcdef"), c|0x20) >= 0 && c >= '0' {
			digits = append(digits, c)
		}
	}
	if len(digits)%2 == 1 {
		digits = append(digits, '0')
	}
	return digits
}

// ascii85Digits returns the digits without the optional prefix and the end marker.
func ascii85Digits(data []byte) []byte {
	data, _, _ = bytes.Cut(data, []byte("~"))
	return bytes.TrimPrefix(bytes.TrimLeft(data, "\x00\t\n\f\r "), []byte("<~"))
}

// A runReader reads bytes in runs of repeated and literal bytes; section 7.4.5.
type runReader struct{ data []byte }

func (r *runReader) Read(p []byte) (n int, _ error) {
	for len(r.data) > 1 && r.data[0] != 128 && len(p)-n >= 128 {
		length, rest := int(r.data[0]), r.data[1:]
		if length > 128 {
			n += copy(p[n:], bytes.Repeat(rest[:1], 257-length))
			r.data = rest[1:]
			continue
		}
		run := rest[:min(length+1, len(rest))]
		n += copy(p[n:], run)
		r.data = rest[len(run):]
	}
	return n, eofIf(n == 0)
}

func eofIf(end bool) error {
	if end {
		return io.EOF
	}
	return nil
}
