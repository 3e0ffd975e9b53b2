package pdf

import (
	"context"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxSaved    = 1000    // saved graphics states of a page
	maxFonts    = 1000    // names of fonts that a page uses
	maxOperands = 64      // operands of an operator
	maxList     = 1 << 16 // members of a list
	maxString   = 1 << 16 // bytes of a string; PDF 32000-1, annex C, requires half as much
)

// Text returns the text of a page, counted from 1. It derives words and lines from the gaps between runs of
// characters.
func (f *File) Text(ctx context.Context, n int) (string, error) {
	if n < 1 || n > len(f.pages) {
		return "", fmt.Errorf("page %d does not exist; the file has %d pages", n, len(f.pages))
	}
	p := f.pages[n-1]
	data, err := f.contents(ctx, f.get(ctx, p.dict, "Contents"))
	if err != nil {
		return "", err
	}
	w := pageWriter{file: f, resources: p.resources, fonts: map[string]*font{}, pen: pen{ctm: identity, scale: 1}}
	scan := scanner{data: data}
	if err := scan.run(ctx, maxOperands, func(op string, args []object) error { return w.operator(ctx, op, args) }); err != nil {
		return "", err
	}
	return strings.Map(readable, w.text.String()), f.err
}

// readable replaces control characters, which could affect a terminal.
func readable(r rune) rune {
	if unicode.IsControl(r) && !unicode.IsSpace(r) {
		return utf8.RuneError
	}
	return r
}

// contents returns the content of a page: a stream, or the concatenation of several.
func (f *File) contents(ctx context.Context, o object) ([]byte, error) {
	if o.kind == kindStream {
		return f.decode(ctx, o, maxStream)
	}
	var all []byte
	for _, s := range o.list() {
		if s = f.resolve(ctx, s); s.kind != kindStream {
			continue
		}
		data, err := f.decode(ctx, s, maxStream-len(all))
		if err != nil {
			return nil, err
		}
		all = append(append(all, data...), '\n')
	}
	return all, f.err
}

// A pageWriter executes the operators that place and show text; PDF 32000-1, section 9.
type pageWriter struct {
	file      *File
	resources object
	fonts     map[string]*font
	text      strings.Builder
	pen
	saved []pen

	begun  bool
	lastX  float64 // end of the last run
	lastY  float64
	height float64 // height of its font
}

// A pen is the part of the graphics state that concerns text.
type pen struct {
	ctm, tm, line    matrix
	font             *font
	size, char, word float64 // font size, and the space after characters and words
	scale, leading   float64
}

// A matrix is the first two columns of a 3×3 matrix, by rows.
type matrix [6]float64

var identity = matrix{1, 0, 0, 1, 0, 0}

func (m matrix) times(n matrix) matrix {
	return matrix{
		m[0]*n[0] + m[1]*n[2], m[0]*n[1] + m[1]*n[3],
		m[2]*n[0] + m[3]*n[2], m[2]*n[1] + m[3]*n[3],
		m[4]*n[0] + m[5]*n[2] + n[4], m[4]*n[1] + m[5]*n[3] + n[5],
	}
}

func (m matrix) moved(x, y float64) matrix { return matrix{1, 0, 0, 1, x, y}.times(m) }

// operator handles one operator.
func (w *pageWriter) operator(ctx context.Context, op string, args []object) error {
	num := func(i int) float64 {
		if i >= len(args) {
			return 0
		}
		return args[i].num
	}
	m := matrix{num(0), num(1), num(2), num(3), num(4), num(5)}
	switch op {
	case "q":
		if len(w.saved) < maxSaved {
			w.saved = append(w.saved, w.pen)
		}
	case "Q":
		if n := len(w.saved); n > 0 {
			w.pen, w.saved = w.saved[n-1], w.saved[:n-1]
		}
	case "cm":
		w.ctm = m.times(w.ctm)
	case "BT":
		w.tm, w.line = identity, identity
	case "Tm":
		w.tm, w.line = m, m
	case "TD":
		w.leading = -num(1)
		w.nextLine(num(0), num(1))
	case "Td":
		w.nextLine(num(0), num(1))
	case "T*":
		w.nextLine(0, -w.leading)
	case "TL":
		w.leading = num(0)
	case "Tc":
		w.char = num(0)
	case "Tw":
		w.word = num(0)
	case "Tz":
		w.scale = num(0) / 100
	case "Tf":
		if len(args) == 2 {
			font, err := w.fontNamed(ctx, args[0].text)
			if err != nil {
				return err
			}
			w.font, w.size = font, num(1)
		}
	case "Tj", "'", "\"":
		if op == "\"" {
			w.word, w.char = num(0), num(1)
		}
		if op != "Tj" {
			w.nextLine(0, -w.leading)
		}
		if len(args) > 0 {
			return w.show(ctx, args[len(args)-1].text)
		}
	case "TJ":
		if len(args) == 0 {
			break
		}
		for _, v := range args[0].list() {
			if v.kind != kindString {
				w.tm = w.tm.moved(-v.num/1000*w.size*w.scale, 0)
			} else if err := w.show(ctx, v.text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *pageWriter) nextLine(x, y float64) {
	w.line = w.line.moved(x, y)
	w.tm = w.line
}

func (w *pageWriter) fontNamed(ctx context.Context, name string) (*font, error) {
	f, known := w.fonts[name]
	if !known {
		if len(w.fonts) >= maxFonts {
			return nil, fmt.Errorf("it uses more than %d fonts", maxFonts)
		}
		var err error
		if f, err = w.file.font(ctx, w.file.get(ctx, w.resources, "Font").key(name)); err != nil {
			return nil, err
		}
		w.fonts[name] = f
	}
	return f, nil
}

// show writes a run of characters, after the white space before it.
func (w *pageWriter) show(ctx context.Context, codes string) error {
	if w.font == nil || codes == "" {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(codes) > maxString {
		return fmt.Errorf("it has a string of more than %d bytes", maxString)
	}
	text := w.font.decode(codes)
	if w.text.Len()+len(text) > maxStream {
		return fmt.Errorf("its text has more than %d MiB", maxStream>>20)
	}
	at := w.tm.times(w.ctm)
	height := w.size * math.Hypot(at[2], at[3])
	if w.begun {
		w.text.WriteString(w.space(at[4], at[5], max(height, w.height), text))
	}
	w.text.WriteString(text)
	w.tm = w.tm.moved(w.advance(codes, text), 0)
	end := w.tm.times(w.ctm)
	w.begun, w.lastX, w.lastY, w.height = true, end[4], end[5], height
	return nil
}

// advance returns how far a run moves the pen.
func (w *pageWriter) advance(codes, text string) float64 {
	sum := 0.0
	if len(w.font.widths) == 0 { // estimate, for instance for a two-byte font
		return float64(utf8.RuneCountInString(text)) * (w.size/2 + w.char) * w.scale
	}
	for i := range len(codes) {
		if n := int(codes[i]) - w.font.first; n >= 0 && n < len(w.font.widths) {
			sum += w.font.widths[n] / 1000 * w.size
		}
		sum += w.char
		if codes[i] == ' ' {
			sum += w.word
		}
	}
	return sum * w.scale
}

// space returns the white space between the last run and one at x, y.
func (w *pageWriter) space(x, y, height float64, next string) string {
	down, right := math.Abs(w.lastY-y), x-w.lastX
	switch {
	case down > 1.7*height:
		return "\n\n"
	case down > 0.5*height, right < -3*height:
		return "\n"
	case right > 0.15*height && !strings.HasSuffix(w.text.String(), " ") && !strings.HasPrefix(next, " "):
		return " "
	}
	return ""
}
