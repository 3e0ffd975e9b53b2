package pdf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
)

// readTables reads the cross-reference tables from the last to the first; section 7.5.
func (f *File) readTables(ctx context.Context) error {
	tail := f.raw[max(0, len(f.raw)-tailSpace):]
	i := bytes.LastIndex(tail, []byte("startxref"))
	if i < 0 {
		return damagef("startxref is not in its last %d bytes", tailSpace)
	}
	t, _ := (&scanner{data: tail, pos: i + len("startxref")}).token()
	at, ok := t.integer(len(f.raw))
	if !ok {
		return damagef("startxref points outside the file")
	}
	seen := map[int]bool{}
	for {
		if seen[at] {
			return errors.New("its cross-reference tables refer to each other in a cycle")
		}
		seen[at] = true
		trailer, err := f.readTable(ctx, at)
		if err != nil {
			return fmt.Errorf("the cross-reference table at byte %d: %w", at, err)
		}
		if f.trailer.kind == kindNull {
			f.trailer = trailer
		}
		prev, ok := trailer.key("Prev").integer(len(f.raw))
		if !ok || prev == 0 {
			return nil
		}
		at = prev
	}
}

// readTable reads one table in either form. Entries of later tables, which were read before, have precedence.
func (f *File) readTable(ctx context.Context, at int) (trailer object, err error) {
	s := &scanner{data: f.raw, pos: at}
	if t, _ := s.token(); t.kind != kindWord || t.text != "xref" {
		return f.readTableStream(ctx, at)
	}
	var rows []row
	for {
		t, err := f.next(ctx, s)
		if err != nil {
			return object{}, err
		}
		if t.kind == kindWord && t.text == "trailer" {
			break
		}
		if rows, err = f.readSubsection(ctx, s, t, rows); err != nil {
			return object{}, err
		}
	}
	if trailer, err = f.parse(ctx, s); err != nil {
		return object{}, err
	}
	// This stream lists objects that are hidden from old readers by being free in the table.
	if at, ok := trailer.key("XRefStm").integer(len(f.raw)); ok {
		if _, err := f.readTableStream(ctx, at); err != nil {
			return object{}, err
		}
	}
	for _, r := range rows {
		f.define(r)
	}
	return trailer, nil
}

// A row of a table locates an object.
type row struct {
	num int
	entry
}

func (f *File) define(r row) {
	if _, known := f.entries[r.num]; !known {
		f.entries[r.num] = r.entry
	}
}

// readSubsection reads the rows for consecutive objects, the first of which is first.
func (f *File) readSubsection(ctx context.Context, s *scanner, first object, rows []row) ([]row, error) {
	t, err := f.next(ctx, s)
	if err != nil {
		return nil, err
	}
	num, ok := first.integer(maxObject)
	count, ok2 := t.integer(maxObject - num + 1)
	if !ok || !ok2 {
		return nil, damagef("its section of %v objects from number %v is not valid; the greatest number is %d", t.num, first.num, maxObject)
	}
	for range count {
		var fields [3]object
		for i := range fields {
			if fields[i], err = f.token(ctx, s); err != nil {
				return nil, err
			}
		}
		place, ok := fields[0].integer(math.MaxInt32)
		use := fields[2].text
		if !ok || fields[2].kind != kindWord || use != "n" && use != "f" {
			return nil, damagef("the entry of object %d is not valid", num)
		}
		if !f.spend(ctx, &f.left.entries, 1) {
			return nil, f.err
		}
		e := entry{kind: entryPlain, place: place}
		if use == "f" || place == 0 {
			e = entry{}
		}
		rows = append(rows, row{num, e})
		num++
	}
	return rows, nil
}

// readTableStream reads a table that is a stream; section 7.5.8.
func (f *File) readTableStream(ctx context.Context, at int) (trailer object, err error) {
	_, o, err := f.objectAt(ctx, at, -1)
	switch {
	case err != nil:
		return object{}, err
	case o.kind != kindStream:
		return object{}, damagef("it is not a stream")
	}
	data, err := f.decode(ctx, o, maxTable)
	if err != nil {
		return object{}, err
	}
	var widths [3]int
	w := o.key("W").list()
	for i := range min(len(w), len(widths)) {
		n, ok := w[i].integer(8)
		if !ok {
			return object{}, damagef("its fields must have 0 to 8 bytes each")
		}
		widths[i] = n
	}
	if len(w) != len(widths) || widths[1] == 0 {
		return object{}, damagef("W must have the lengths of its three fields")
	}
	index := o.key("Index").list()
	if len(index) == 0 {
		index = []object{{kind: kindNumber}, o.key("Size")}
	}
	for ; len(index) >= 2; index = index[2:] {
		num, ok := index[0].integer(maxObject)
		count, ok2 := index[1].integer(maxObject - num + 1)
		if !ok || !ok2 {
			return object{}, damagef("its section of %v objects from number %v is not valid; the greatest number is %d", index[1].num, index[0].num, maxObject)
		}
		if data, err = f.readRows(ctx, data, widths, num, count); err != nil {
			return object{}, err
		}
	}
	return object{kind: kindDict, body: o.body}, nil
}

// readRows reads rows of three numbers, with fields of the given widths, until the data ends.
func (f *File) readRows(ctx context.Context, data []byte, widths [3]int, num, count int) ([]byte, error) {
	width := widths[0] + widths[1] + widths[2]
	for ; count > 0 && len(data) >= width; count-- {
		if !f.spend(ctx, &f.left.entries, 1) {
			return nil, f.err
		}
		fields := [3]uint64{0: 1} // an absent type is 1
		rest := data
		for i, n := range widths {
			if n > 0 {
				fields[i] = bigEndian(rest[:n])
			}
			rest = rest[n:]
		}
		data = data[width:]
		e := entry{}
		switch place := fields[1]; {
		case place > math.MaxInt32: // out of range: leave it free
		case fields[0] == 1:
			e = entry{entryPlain, int(place)}
		case fields[0] == 2:
			e = entry{entryPacked, int(place)}
		}
		f.define(row{num, e})
		num++
	}
	return data, nil
}

func bigEndian(data []byte) (n uint64) {
	for _, b := range data {
		n = n<<8 | uint64(b)
	}
	return n
}
