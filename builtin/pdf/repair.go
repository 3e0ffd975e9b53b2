package pdf

import (
	"bytes"
	"context"
	"errors"
)

// A foundObject is an object that a search has found at an offset.
type foundObject struct{ num, at int }

// search finds all objects of the file, once.
func (f *File) search(ctx context.Context) {
	if f.searched {
		return
	}
	f.searched, f.places = true, map[int]int{}
	for at := 0; f.spend(ctx, &f.left.parsed, 0); {
		i := bytes.Index(f.raw[at:], []byte("obj"))
		if i < 0 {
			return
		}
		if !f.spend(ctx, &f.left.parsed, i+3) {
			return
		}
		if num, start, ok := objectHead(f.raw[at : at+i]); ok {
			if !f.spend(ctx, &f.left.entries, 1) {
				return
			}
			f.found = append(f.found, foundObject{num, at + start})
			f.places[num] = at + start
		}
		at += i + 3
	}
}

// objectHead reads "N G " at the end of data, and returns where it begins.
func objectHead(data []byte) (num, start int, ok bool) {
	end := len(data)
	back := func(is func(byte) bool) []byte {
		from := end
		for end > 0 && from-end < 16 && is(data[end-1]) {
			end--
		}
		return data[end:from]
	}
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	back(isSpace)
	if generation := back(digit); len(generation) == 0 || len(back(isSpace)) == 0 {
		return 0, 0, false
	}
	digits := back(digit)
	if len(digits) == 0 || len(digits) > 10 {
		return 0, 0, false
	}
	for _, c := range digits {
		num = num*10 + int(c-'0')
	}
	return num, end, num <= maxObject
}

// repair builds the table from the objects found in the file.
func (f *File) repair(ctx context.Context) error {
	f.search(ctx)
	var streams []foundObject
	for i, o := range f.found {
		f.entries[o.num] = entry{entryPlain, o.at}
		end := len(f.raw)
		if i+1 < len(f.found) {
			end = f.found[i+1].at
		}
		head, _, _ := bytes.Cut(f.raw[o.at:end], []byte("stream"))
		switch {
		case f.err != nil:
			return f.err
		case bytes.Contains(head, []byte("/ObjStm")):
			streams = append(streams, o)
		case bytes.Contains(head, []byte("/XRef")):
			if _, dict, err := f.objectAt(ctx, o.at, o.num); err == nil && dict.key("Root").kind == kindRef {
				f.trailer = object{kind: kindDict, body: dict.body}
			}
		}
	}
	if t, ok := f.lastTrailer(ctx); ok {
		f.trailer = t
	}
	if f.trailer.kind == kindNull && f.err == nil {
		return errors.New("it has no cross-reference table, and no trailer with the root of the document; it is truncated, or not a PDF file")
	}
	if err := f.unlock(ctx); err != nil {
		return err
	}
	for _, o := range streams {
		f.unpack(ctx, o)
	}
	clear(f.cache) // objects that were read with an incomplete table
	return f.err
}

// unpack adds the objects of an object stream to the table, except those that occur later in the file.
func (f *File) unpack(ctx context.Context, o foundObject) {
	if f.entries[o.num] != (entry{entryPlain, o.at}) {
		return
	}
	s, err := f.openStream(ctx, o.num)
	f.noteDamage(err)
	if f.streams[o.num] = s; s == nil {
		return
	}
	for num := range s.places {
		if e := f.entries[num]; e.kind != entryPlain || e.place < o.at {
			f.entries[num] = entry{entryPacked, o.num}
		}
	}
}

// lastTrailer returns the last trailer with the root of the document.
func (f *File) lastTrailer(ctx context.Context) (object, bool) {
	word := []byte("trailer")
	for end := len(f.raw); f.err == nil; {
		i := bytes.LastIndex(f.raw[:end], word)
		if i < 0 {
			break
		}
		t, err := f.parse(ctx, &scanner{data: f.raw, pos: i + len(word)})
		if err == nil && t.key("Root").kind == kindRef {
			return t, true
		}
		end = i
	}
	return object{}, false
}
