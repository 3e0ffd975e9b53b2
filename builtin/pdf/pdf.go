// Package pdf reads the text of PDF files (PDF 32000-1). The Read tool of [github.com/kitbag-go/kitbag/builtin]
// can use it:
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
// # Malicious files
//
// A file declares how long its tables are, where they are, and how often its streams are compressed. None of
// this is trusted: the cost of each [File] is counted, and exceeding the limits below is an error. A number in
// the file causes allocations only as far as there are bytes to fill them, recursion is bounded, and long work
// polls its context. So a File takes, in addition to the bytes of the file, at most some hundreds of megabytes
// of memory, and time in proportion to these limits.
//
// # What is read
//
// Files of every version up to 2.0 can be read, with cross-reference tables or streams or both; a file with a
// missing or wrong table is searched for its objects. A damaged object counts as null, as in viewers. An
// encrypted file is decrypted if it can be opened without a password. Filters for images are not supported.
package pdf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Limits on the cost of one File.
const (
	maxDecoded = 128 << 20 // bytes that filters read and return
	maxParsed  = 128 << 20 // bytes that are parsed as objects, or searched for an end
	maxObjects = 2 << 20   // tokens of objects
	maxEntries = 2 << 20   // entries of cross-reference tables, of object streams and of character maps
)

// Limits on its structure.
const (
	maxObject  = 8_388_607 // the greatest number of an object; annex C
	maxDepth   = 100       // of nested arrays and dictionaries
	maxChain   = 32        // of references to references, and of objects that need others to be read
	maxFilters = 8         // of a stream
	maxNodes   = 50_000    // of the page tree
	maxLevels  = 50        // of the page tree
	maxTable   = 16 << 20  // bytes of a cross-reference stream or of objects
	maxStream  = 8 << 20   // bytes of the content streams of one page, or of its text
	headSpace  = 1024      // bytes at the beginning that may come before the header
	tailSpace  = 1024      // bytes at the end that are searched for the offset of the table
)

// A File is an open PDF file. It is not safe for concurrent use.
type File struct {
	raw     []byte
	trailer object
	entries map[int]entry
	cache   map[int]object
	streams map[int]*objectStream // by object number; nil if damaged
	busy    map[int]bool          // objects that are being read

	fonts    map[int]*font // by object number
	lock     *lock         // of an encrypted file
	searched bool
	found    []foundObject // by searching, in order of offset
	places   map[int]int   // the last offset of each number

	pages  []page
	left   budget
	damage error // the first damage
	err    error // the error that ended the reading
}

// A Reader opens files for [github.com/kitbag-go/kitbag/builtin.Config]. It is safe for
// concurrent use.
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

// A budget is what is left of the limits on cost.
type budget struct{ decoded, parsed, objects, entries int }

// Open reads the tables and the page tree of a file, which must not change while the
// File is used. A file that is encrypted with a password, or without pages, is an error.
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
		return fmt.Errorf("not a PDF file: %%PDF- is not in its first %d bytes", headSpace)
	}
	f.raw = raw[head:] // offsets are counted from the header
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

// reset drops all objects, but not their cost.
func (f *File) reset() {
	f.trailer, f.pages, f.lock = object{}, nil, nil
	f.entries, f.cache = map[int]entry{}, map[int]object{}
	f.streams, f.busy = map[int]*objectStream{}, map[int]bool{}
	f.fonts = map[int]*font{}
}

// Pages returns how many pages there are, at least one.
func (f *File) Pages() int { return len(f.pages) }

// spend subtracts n from left, and reports whether enough was left and the context is not done.
func (f *File) spend(ctx context.Context, left *int, n int) bool {
	if f.err != nil {
		return false
	}
	before := *left
	if *left -= n; *left < 0 {
		*left = 0
		f.err = fmt.Errorf("reading it takes more than %d MiB of streams, %d MiB of objects, %d objects or %d entries of tables: it is too large, or malicious",
			maxDecoded>>20, maxParsed>>20, maxObjects, maxEntries)
	} else if n > 0 && before>>12 != *left>>12 {
		f.err = ctx.Err()
	}
	return f.err == nil
}

// noteDamage records the first damage, for an error without another cause.
func (f *File) noteDamage(err error) {
	if f.damage == nil && err != nil {
		f.damage = err
	}
}
