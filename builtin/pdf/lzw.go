package pdf

import "errors"

const (
	lzwClear = 256
	lzwEnd   = 257
	lzwCodes = 1 << 12
)

// An lzwReader decodes the LZW of PDF 32000-1, section 7.4.4, whose codes become longer one code earlier than
// those of compress/lzw.
type lzwReader struct {
	data  []byte
	early int // 0 or 1

	bits  uint32 // read but not used yet
	have  int    // how many bits
	next  int    // the first code without a string; 0 before the first
	width int
	last  int // code, or -1 after a clear
	// The string of a code is that of its prefix and one more byte.
	prefix [lzwCodes]uint16
	suffix [lzwCodes]byte
	length [lzwCodes]uint16
	buf    []byte // decoded but not returned yet
	err    error
}

func (r *lzwReader) Read(p []byte) (int, error) {
	for len(r.buf) == 0 && r.err == nil {
		r.err = r.step()
	}
	if len(r.buf) == 0 {
		return 0, r.err
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

// step decodes one code.
func (r *lzwReader) step() error {
	if r.next == 0 {
		r.reset()
	}
	for r.have < r.width {
		if len(r.data) == 0 {
			return eofIf(true)
		}
		r.bits, r.have, r.data = r.bits<<8|uint32(r.data[0]), r.have+8, r.data[1:]
	}
	r.have -= r.width
	code := int(r.bits >> r.have & (1<<r.width - 1))
	switch {
	case code == lzwClear:
		r.reset()
		return nil
	case code == lzwEnd:
		return eofIf(true)
	case code > r.next, code == r.next && r.last < 0:
		return errors.New("an LZW code is not defined")
	}
	r.add(code)
	r.buf = r.text(code)
	r.last = code
	return nil
}

func (r *lzwReader) reset() { r.next, r.width, r.last = lzwEnd+1, 9, -1 }

// add assigns to the next code the string of the last one and the first byte of this one.
func (r *lzwReader) add(code int) {
	if r.last < 0 || r.next >= lzwCodes {
		return
	}
	first := code
	if code == r.next {
		first = r.last
	}
	for first > lzwEnd {
		first = int(r.prefix[first])
	}
	r.prefix[r.next], r.suffix[r.next] = uint16(r.last), byte(first)
	r.length[r.next] = 2
	if r.last > lzwEnd {
		r.length[r.next] = r.length[r.last] + 1
	}
	if r.next++; r.next+r.early >= 1<<r.width && r.width < 12 {
		r.width++
	}
}

// text returns the string of a code.
func (r *lzwReader) text(code int) []byte {
	if code < lzwClear {
		return []byte{byte(code)}
	}
	out := make([]byte, r.length[code])
	for i := len(out) - 1; i > 0; i-- {
		out[i] = r.suffix[code]
		code = int(r.prefix[code])
	}
	out[0] = byte(code)
	return out
}
