// Package pdf reads the text of PDF files, as PDF 32000-1 describes them, and nothing
// else of them. With it the Read tool of [github.com/kitbag-go/kitbag/builtin] reads them:
//
//	tools, err := builtin.New(builtin.Config{PDF: pdf.Reader{}})
//
// It also works alone:
//
//	f, err := pdf.Open(ctx, raw)
//	for n := range f.Pages() {
//		text, err := f.Text(ctx, n+1)
//	}
//
// # Files made to do harm
//
// A file says how long its tables are, where they are, and how often its streams are
// compressed. None of this is believed: all that one [File] costs is counted, and it is
// an error to go beyond what is set below. Nothing is allocated for a number in the file
// before there are bytes for it, nothing recurs without a limit, and what takes long asks
// its context. So a File takes, besides the bytes of the file, memory of at most some
// hundreds of megabytes, and time in proportion to these limits.
//
// # What is read
//
// Files of every version up to 2.0, with tables or streams of references, or both; a file
// whose table is missing or wrong is searched for its objects. An object that is damaged
// counts as null, as in viewers. A file that is encrypted, but has no password for who only
// reads it, is decrypted. Filters for images are not read.
package pdf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// What one File may cost.
const (
	maxDecoded = 128 << 20 // bytes that go into filters and come out
	maxParsed  = 128 << 20 // bytes that are read as objects, or searched for an end
	maxObjects = 2 << 20   // tokens of objects
	maxEntries = 2 << 20   // of tables of objects, of heads of object streams and of character maps
)

// What it may be like.
const (
	maxObject  = 8_388_607 // the greatest number of an object; annex C
	maxDepth   = 100       // arrays and dictionaries in each other
	maxChain   = 32        // references to references, and objects that need others to be read
	maxFilters = 8         // of a stream
	maxNodes   = 50_000    // of the tree of pages
	maxLevels  = 50        // of it
	maxTable   = 16 << 20  // bytes of a stream of references or of objects
	maxStream  = 8 << 20   // bytes that draw one page, or of its text
	headSpace  = 1024      // bytes at the beginning that may come before the header
	tailSpace  = 1024      // bytes at the end in which the place of the table is said
)

// A File is an open PDF file. It must not be used by several goroutines at once.
type File struct {
	raw     []byte
	trailer object
	entries map[int]entry
	cache   map[int]object
	streams map[int]*objectStream // by the number of the stream; nil if damaged
	busy    map[int]bool          // objects that are being read

	fonts    map[int]*font // by the number of the object
	lock     *lock         // of an encrypted file
	searched bool
	found    []foundObject // by searching, in the order of the file
	places   map[int]int   // of the last of each number

	pages  []page
	left   budget
	damage error // the first
	err    error // what ended the reading
}

// A Reader opens files for [github.com/kitbag-go/kitbag/builtin.Config]. It may be used by several goroutines at
// once.
type Reader struct{}

// OpenPDF returns the number of pages of a file, and a function for the text of a page; see
// [Open] and [File.Text].
func (Reader) OpenPDF(ctx context.Context, file []byte) (pages int, text func(ctx context.Context, page int) (string, error), err error) {
	f, err := Open(ctx, file)
	if err != nil {
		return 0, nil, err
	}
	return f.Pages(), f.Text, nil
}

// A budget is what may yet be spent.
type budget struct{ decoded, parsed, objects, entries int }

// Open reads the tables and the tree of pages of a file, which must not change as long as
// the File is used. It is an error if the file is encrypted with a
// password, or has no pages.
func Open(ctx context.Context, raw []byte) (*File, error) {
	f := &File{left: budget{maxDecoded, maxParsed, maxObjects, maxEntries}}
	if err := f.open(ctx, raw); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) open(ctx context.Context, raw []byte) error {
	head := bytes.Index(raw[:min(len(raw), headSpace)], []byte("%PDF-"))
	if head < 0 {
		return fmt.Errorf("it is no PDF file: %%PDF- is not in its first %d bytes", headSpace)
	}
	f.raw = raw[head:] // places in the file are counted from the header
	f.reset()
	err := f.readTables(ctx)
	if err == nil {
		err = f.readPages(ctx)
	}
	if _, repairable := errors.AsType[damage](err); repairable {
		f.reset()
		if err = f.repair(ctx); err == nil {
			err = f.readPages(ctx)
		}
	}
	return err
}

// reset forgets all objects, but not what they cost.
func (f *File) reset() {
	f.trailer, f.pages, f.lock = object{}, nil, nil
	f.entries, f.cache = map[int]entry{}, map[int]object{}
	f.streams, f.busy = map[int]*objectStream{}, map[int]bool{}
	f.fonts = map[int]*font{}
}

// Pages returns how many pages there are, at least one.
func (f *File) Pages() int { return len(f.pages) }

// spend takes n from what is left of something, and reports whether there was so much.
// It also reports false when nobody waits any more.
func (f *File) spend(ctx context.Context, left *int, n int) bool {
	if f.err != nil {
		return false
	}
	before := *left
	if *left -= n; *left < 0 {
		*left = 0
		f.err = fmt.Errorf("to read it takes more than %d MiB of streams, %d MiB of objects, %d objects or %d entries of tables: it is too large, or made to cost memory",
			maxDecoded>>20, maxParsed>>20, maxObjects, maxEntries)
	} else if n > 0 && before>>12 != *left>>12 {
		f.err = ctx.Err()
	}
	return f.err == nil
}

// spoiled keeps the first damage, for when there is no more to say.
func (f *File) spoiled(err error) {
	if f.damage == nil && err != nil {
		f.damage = err
	}
}
