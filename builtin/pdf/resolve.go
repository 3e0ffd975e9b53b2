package pdf

import (
	"context"
	"fmt"
)

// An entry locates an object.
type entry struct {
	kind  entryKind
	place int // offset in the file, or the number of an object stream
}

type entryKind int8

const (
	entryFree entryKind = iota
	entryPlain
	entryPacked // in an object stream
)

// An objectStream contains objects; section 7.5.7.
type objectStream struct {
	data   []byte
	places map[int]int // offsets by object number
}

// get returns an entry of a dictionary, with references resolved.
func (f *File) get(ctx context.Context, o object, name string) object {
	return f.resolve(ctx, o.key(name))
}

// resolve follows references.
func (f *File) resolve(ctx context.Context, o object) object {
	for range maxChain {
		if o.kind != kindRef {
			return o
		}
		o = f.load(ctx, int(o.num))
	}
	f.noteDamage(fmt.Errorf("a chain of more than %d references", maxChain))
	return object{}
}

// load returns an object by its number.
func (f *File) load(ctx context.Context, num int) object {
	if o, known := f.cache[num]; known {
		return o
	}
	if f.err == nil {
		f.err = ctx.Err()
	}
	if f.err != nil {
		return object{}
	}
	if f.busy[num] || len(f.busy) >= maxChain {
		f.noteDamage(fmt.Errorf("object %d depends on itself, or on a chain of more than %d others", num, maxChain))
		return object{}
	}
	f.busy[num] = true
	defer delete(f.busy, num)
	o, err := f.read(ctx, num)
	if err != nil {
		f.noteDamage(fmt.Errorf("object %d: %w", num, err))
		o = object{}
	}
	f.cache[num] = o
	return o
}

func (f *File) read(ctx context.Context, num int) (object, error) {
	e := f.entries[num]
	switch e.kind {
	case entryFree:
		return object{}, nil
	case entryPacked:
		return f.readPacked(ctx, num, e.place)
	}
	_, o, err := f.objectAt(ctx, e.place, num)
	if err == nil || f.err != nil {
		return o, err
	}
	f.search(ctx)
	if place, ok := f.places[num]; ok && place != e.place && f.err == nil {
		_, o, err = f.objectAt(ctx, place, num)
	}
	return o, err
}

// readPacked reads an object from an object stream.
func (f *File) readPacked(ctx context.Context, num, stream int) (object, error) {
	s, known := f.streams[stream]
	if !known {
		var err error
		if s, err = f.openStream(ctx, stream); err != nil {
			f.noteDamage(fmt.Errorf("object stream %d: %w", stream, err))
		}
		f.streams[stream] = s
	}
	if s == nil {
		return object{}, damagef("object stream %d cannot be read", stream)
	}
	place, ok := s.places[num]
	if !ok {
		return object{}, damagef("it is not in object stream %d", stream)
	}
	return f.parse(ctx, &scanner{data: s.data, pos: place})
}

// openStream reads an object stream. It fails if the stream is in an object stream itself, or depends on itself.
func (f *File) openStream(ctx context.Context, num int) (*objectStream, error) {
	if f.entries[num].kind != entryPlain {
		return nil, damagef("it is in an object stream")
	}
	o := f.load(ctx, num)
	if o.kind != kindStream {
		return nil, damagef("it is not a stream")
	}
	data, err := f.decode(ctx, o, maxTable)
	if err != nil {
		return nil, err
	}
	first, ok := f.get(ctx, o, "First").integer(len(data))
	if !ok {
		return nil, damagef("First is not within its %d bytes", len(data))
	}
	s := &objectStream{data: data, places: map[int]int{}}
	head := &scanner{data: data[:first]}
	for n := f.get(ctx, o, "N").integerOr(maxObject, 0); n > 0; n-- {
		number, ok := head.token()
		place, ok2 := head.token()
		if !ok || !ok2 {
			break
		}
		if !f.spend(ctx, &f.left.entries, 1) {
			return nil, f.err
		}
		at, ok := place.integer(len(data) - first)
		if num, ok2 := number.integer(maxObject); ok && ok2 {
			s.places[num] = first + at
		}
	}
	return s, nil
}
