package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/ledongthuc/pdf"
)

const (
	pdfWhole     = 10      // pages of a document that is read without saying which
	pdfPages     = 20      // pages of one call
	pdfMaxNodes  = 50_000  // nodes of the tree of pages
	pdfMaxStream = 8 << 20 // bytes that draw one page
	pdfMaxSaved  = 1000    // states that a page keeps to come back to
	pdfMaxFonts  = 1000    // names of fonts that a page uses

	pdfMaxOperands = 64      // of an operator
	pdfMaxList     = 1 << 16 // members of a list
	pdfMaxString   = 1 << 16 // bytes of a string; PDF 32000-1, annex C, asks for half of it
	pdfTimeout     = 30 * time.Second
)

// readPDF returns the text of pages, which is "", "N" or "N-M".
func readPDF(ctx context.Context, f io.Reader, info fs.FileInfo, name, pages string) (blocks []message.Block, err error) {
	raw, err := readAll(f, info, name, maxDocument)
	if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil { // the library panics on malformed input
			err = fmt.Errorf("%v", r)
		}
		if err != nil {
			err = fmt.Errorf("%s cannot be read as PDF: %w; where the file is in order, try pdftotext with Bash", name, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, pdfTimeout)
	defer cancel()
	file := &boundedReader{ctx: ctx, r: bytes.NewReader(raw), left: 16*int64(len(raw)) + 1<<20}
	doc, err := pdf.NewReader(file, int64(len(raw)))
	if err != nil {
		return nil, err
	}
	file.left = math.MaxInt64 // nothing from here on can go in circles
	all, err := pdfPageTree(doc)
	if err != nil {
		return nil, err
	}
	first, last, err := pageRange(pages, len(all))
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for n := first; n <= last; n++ {
		text, err := pageText(ctx, all[n-1])
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", n, err)
		}
		if n > first {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "--- Page %d/%d ---\n%s", n, len(all), text)
		if b.Len() > maxReadText && n < last {
			fmt.Fprintf(&b, "\n\n[there are more pages: go on with pages %d-%d]", n+1, last)
			break
		}
	}
	return textBlock(b.String()), nil
}

// A boundedReader fails after it has read so much that the tables of objects
// must lead in circles, and when nobody waits any more.
type boundedReader struct {
	ctx  context.Context
	r    io.ReaderAt
	left int64
}

func (b *boundedReader) ReadAt(p []byte, off int64) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errors.New("it refers to itself")
	}
	return b.r.ReadAt(p, off)
}

// pdfPageTree returns the pages in order. The library's own look-up does not
// end if the tree has a cycle.
func pdfPageTree(doc *pdf.Reader) ([]pdf.Page, error) {
	var all []pdf.Page
	nodes := 0
	var walk func(v pdf.Value, depth int) error
	walk = func(v pdf.Value, depth int) error {
		if nodes++; nodes > pdfMaxNodes || depth > 50 {
			return fmt.Errorf("its tree of pages has more than %d nodes or 50 levels", pdfMaxNodes)
		}
		if v.Key("Type").Name() == "Page" {
			all = append(all, pdf.Page{V: v})
			return nil
		}
		kids := v.Key("Kids")
		for i := range kids.Len() {
			if err := walk(kids.Index(i), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	err := walk(doc.Trailer().Key("Root").Key("Pages"), 0)
	if err == nil && len(all) == 0 {
		err = errors.New("it has no pages")
	}
	return all, err
}

// pageRange reads what a model may say of pages in a document of total pages.
func pageRange(s string, total int) (first, last int, err error) {
	if s = strings.TrimSpace(s); s == "" {
		if total > pdfWhole {
			return 0, 0, fmt.Errorf("it has %d pages; say which to read with pages, such as \"1-%d\", at most %d in a call", total, pdfWhole, pdfPages)
		}
		return 1, total, nil
	}
	from, to, ranged := strings.Cut(s, "-")
	first, err = strconv.Atoi(strings.TrimSpace(from))
	last = first
	if err == nil && ranged {
		last, err = strconv.Atoi(strings.TrimSpace(to))
	}
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("pages %q is neither a number nor a range; write \"3\" or \"1-5\"", s)
	case first < 1 || last < first || first > total:
		return 0, 0, fmt.Errorf("there are no pages %q; it has %s", s, count(total, "page"))
	}
	if last = min(last, total); last-first >= pdfPages {
		return 0, 0, fmt.Errorf("pages %q are more than the %d of one call", s, pdfPages)
	}
	return first, last, nil
}

// readStreams returns what draws a page: a stream, or several that count as one.
func readStreams(v pdf.Value) ([]byte, error) {
	if v.Kind() == pdf.Stream {
		return readStream(v, pdfMaxStream)
	}
	var all []byte
	for i := range v.Len() {
		s := v.Index(i)
		if s.Kind() != pdf.Stream {
			continue
		}
		data, err := readStream(s, pdfMaxStream-len(all))
		if err != nil {
			return nil, err
		}
		all = append(append(all, data...), '\n')
	}
	return all, nil
}

// readStream decompresses a stream of at most limit bytes.
func readStream(v pdf.Value, limit int) ([]byte, error) {
	r := v.Reader()
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("a stream cannot be decompressed: %w", err)
	}
	if len(data) > limit {
		return nil, fmt.Errorf("its streams have more than %d bytes, the most that is read", limit)
	}
	return data, nil
}
