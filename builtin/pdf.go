package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

const (
	maxWholePDF = 10 // pages of the longest document that is read whole if the call does not name pages
	maxPDFPages = 20 // pages that one call may name
	pdfTimeout  = 30 * time.Second
)

// A PDFReader reads the text of PDF files. The package github.com/kitbag-go/kitbag/builtin/pdf has one.
type PDFReader interface {
	// OpenPDF returns the number of pages of a PDF file, at least one, and a function that returns the text of a
	// page, counted from 1. OpenPDF must be safe for concurrent use; calls of the function do not overlap. The
	// file is untrusted: the reader limits its memory, and returns when the context is done. The bytes do not change.
	OpenPDF(ctx context.Context, file []byte) (pages int, text func(ctx context.Context, page int) (string, error), err error)
}

// readPDF returns the text of pages, which is "", "N" or "N-M".
func (r *read) readPDF(ctx context.Context, f io.Reader, info fs.FileInfo, name, pages string) ([]message.Block, error) {
	if r.PDF == nil {
		return nil, fmt.Errorf("%s is a PDF file, and Read has no PDF reader; try pdftotext with Bash, or set PDF in "+
			"builtin.Config (kitbag: go install -tags pdfium)", name)
	}
	raw, err := readAll(f, info, name, maxDocument)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pdfTimeout)
	defer cancel()
	text, err := pdfText(ctx, r.PDF, raw, pages)
	if errors.Is(err, errPages) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read as PDF: %w; if the file is intact, try pdftotext with Bash", name, err)
	}
	return textBlocks(text), nil
}

func pdfText(ctx context.Context, reader PDFReader, raw []byte, pages string) (string, error) {
	total, pageText, err := reader.OpenPDF(ctx, raw)
	if err != nil {
		return "", err
	}
	first, last, err := pageRange(pages, total)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for n := first; n <= last; n++ {
		text, err := pageText(ctx, n)
		if err != nil {
			return "", fmt.Errorf("page %d: %w", n, err)
		}
		if n > first {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "--- Page %d/%d ---\n%s", n, total, text)
		if b.Len() > maxReadText && n < last {
			fmt.Fprintf(&b, "\n\n[there are more pages: continue with pages %d-%d]", n+1, last)
			break
		}
	}
	return b.String(), nil
}

// errPages is wrapped by the errors that are about the pages argument, not about the file. Its text begins theirs.
var errPages = errors.New("pages")

// pageRange parses the pages argument for a document of total pages.
func pageRange(pages string, total int) (first, last int, err error) {
	if pages = strings.TrimSpace(pages); pages == "" {
		if total > maxWholePDF {
			return 0, 0, fmt.Errorf("%w is missing: the file has %d pages; say which to read, such as \"1-%d\", at most %d in a call", errPages, total, maxWholePDF, maxPDFPages)
		}
		return 1, total, nil
	}
	from, to, ranged := strings.Cut(pages, "-")
	first, err = strconv.Atoi(strings.TrimSpace(from))
	last = first
	if err == nil && ranged {
		last, err = strconv.Atoi(strings.TrimSpace(to))
	}
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("%w %q is neither a number nor a range; write \"3\" or \"1-5\"", errPages, pages)
	case first < 1 || last < first || first > total:
		return 0, 0, fmt.Errorf("%w %q does not exist; the file has %s", errPages, pages, plural(total, "page"))
	}
	if last = min(last, total); last-first >= maxPDFPages {
		return 0, 0, fmt.Errorf("%w %q is more than one call returns; request at most %d", errPages, pages, maxPDFPages)
	}
	return first, last, nil
}
