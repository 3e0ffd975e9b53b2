package pdf

import (
	"context"
	"fmt"
	"math"
)

// An object is one of the objects of PDF 32000-1, section 7.3, or a token. The zero object is null; an
// unreadable object is null too.
type object struct {
	kind kind
	num  float64 // of a number, and the object number of a reference
	text string  // of a string, a name or a word
	body *body
}

// A body is the content of an array, a dictionary or a stream.
type body struct {
	list []object
	dict map[string]object

	// For a stream: the offset of its bytes in the file, and the numbers that its key needs.
	start, num, generation int
}

type kind int

const (
	kindNull kind = iota
	kindNumber
	kindString
	kindName
	kindArray
	kindDict
	kindStream
	kindRef
	kindWord  // true, false, or an operator
	kindOpen  // of a scanner: the beginning of an array or a dictionary
	kindClose // of a scanner: the end of one
)

// list returns the members of an array.
func (o object) list() []object {
	if o.kind != kindArray {
		return nil
	}
	return o.body.list
}

// key returns an entry of a dictionary, which may be a reference.
func (o object) key(name string) object {
	if o.kind != kindDict && o.kind != kindStream {
		return object{}
	}
	return o.body.dict[name]
}

// name returns the text of a name.
func (o object) name() string {
	if o.kind != kindName {
		return ""
	}
	return o.text
}

// integer returns the value of an integer from 0 to limit.
func (o object) integer(limit int) (int, bool) {
	if o.kind != kindNumber || o.num != math.Trunc(o.num) || o.num < 0 || o.num > float64(limit) {
		return 0, false
	}
	return int(o.num), true
}

// integerOr returns the value of an integer from 0 to limit, or otherwise.
func (o object) integerOr(limit, otherwise int) int {
	if n, ok := o.integer(limit); ok {
		return n
	}
	return otherwise
}

// token returns the next token, and counts it in the budget.
func (f *File) token(ctx context.Context, s *scanner) (object, error) {
	from := s.pos
	t, ok := s.token()
	switch {
	case !f.spend(ctx, &f.left.parsed, s.pos-from):
		return object{}, f.err
	case !ok:
		return object{}, damagef("it ends in the middle of an object")
	}
	return t, nil
}

// next returns the next token, which is an object or a part of one.
func (f *File) next(ctx context.Context, s *scanner) (object, error) {
	if !f.spend(ctx, &f.left.objects, 1) {
		return object{}, f.err
	}
	return f.token(ctx, s)
}

// parse reads an object that is not a stream.
func (f *File) parse(ctx context.Context, s *scanner) (object, error) {
	t, err := f.next(ctx, s)
	if err != nil {
		return object{}, err
	}
	return f.value(ctx, s, t, 0)
}

// value reads the object that begins with a token, nested depth deep.
func (f *File) value(ctx context.Context, s *scanner, t object, depth int) (object, error) {
	switch t.kind {
	case kindNumber:
		if num, ok := t.integer(maxObject); ok && s.reference() {
			return object{kind: kindRef, num: float64(num)}, nil
		}
	case kindWord:
		switch t.text {
		case "null":
			return object{}, nil
		case "endobj", "stream", "endstream", "xref", "trailer", "startxref":
			return object{}, damagef("%s in place of an object", t.text)
		}
	case kindClose:
		return object{}, damagef("the end of an array or a dictionary without a beginning")
	case kindOpen:
		if depth >= maxDepth {
			return object{}, damagef("objects are nested more than %d deep", maxDepth)
		}
		return f.composite(ctx, s, t.text == "<<", depth+1)
	}
	return t, nil
}

// composite reads an array or a dictionary after its beginning.
func (f *File) composite(ctx context.Context, s *scanner, dict bool, depth int) (object, error) {
	var list []object
	for {
		t, err := f.next(ctx, s)
		if err != nil {
			return object{}, err
		}
		if t.kind == kindClose {
			break
		}
		o, err := f.value(ctx, s, t, depth)
		if err != nil {
			return object{}, err
		}
		list = append(list, o)
	}
	if !dict {
		return object{kind: kindArray, body: &body{list: list}}, nil
	}
	d := make(map[string]object, len(list)/2)
	for i := 0; i+1 < len(list); i++ {
		if list[i].kind == kindName { // skip a value without a key
			d[list[i].text] = list[i+1]
			i++
		}
	}
	return object{kind: kindDict, body: &body{dict: d}}, nil
}

// reference skips the rest of a reference, "0 R", if it follows the number of an object.
func (s *scanner) reference() bool {
	pos := s.pos
	spaces := func() bool {
		from := pos
		for pos < len(s.data) && isSpace(s.data[pos]) {
			pos++
		}
		return pos > from
	}
	if !spaces() {
		return false
	}
	digits := pos
	for pos < len(s.data) && '0' <= s.data[pos] && s.data[pos] <= '9' {
		pos++
	}
	if pos == digits || !spaces() || pos >= len(s.data) || s.data[pos] != 'R' {
		return false
	}
	if end := pos + 1; end < len(s.data) && !isSpace(s.data[end]) && !isDelimiter(s.data[end]) {
		return false
	}
	s.pos = pos + 1
	return true
}

// objectAt reads the object at an offset of the file, and returns its number too. It fails if want is not
// negative and differs from the number.
func (f *File) objectAt(ctx context.Context, at, want int) (num int, o object, err error) {
	if at < 0 || at >= len(f.raw) {
		return 0, object{}, damagef("its entry in the table is byte %d, but the file has only %d bytes", at, len(f.raw))
	}
	s := &scanner{data: f.raw, pos: at}
	var head [3]object
	for i := range head {
		if head[i], err = f.next(ctx, s); err != nil {
			return 0, object{}, err
		}
	}
	num, ok := head[0].integer(maxObject)
	if !ok || head[1].kind != kindNumber || head[2].kind != kindWord || head[2].text != "obj" || want >= 0 && num != want {
		return 0, object{}, damagef("it is not at byte %d, where the cross-reference table locates it", at)
	}
	if o, err = f.parse(ctx, s); err != nil || o.kind != kindDict {
		return num, o, err
	}
	if t, ok := s.token(); ok && t.kind == kindWord && t.text == "stream" {
		if s.peek(0) == '\r' {
			s.pos++
		}
		if s.peek(0) == '\n' {
			s.pos++
		}
		o.kind = kindStream
		o.body.start, o.body.num, o.body.generation = s.pos, num, int(head[1].num)
	}
	return num, o, nil
}

// A damage is an error of a damaged file that searching the file for objects may repair. Any other error is final.
type damage string

func (d damage) Error() string { return string(d) }

func damagef(format string, args ...any) error { return damage(fmt.Sprintf(format, args...)) }
