package builtin

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/internal/pdf"
	"github.com/kitbag-go/kitbag/message"
)

const (
	pdfWhole   = 10 // pages of a document that is read without saying which
	pdfPages   = 20 // pages of one call
	pdfTimeout = 30 * time.Second
)

// readPDF returns the text of pages, which is "", "N" or "N-M".
func readPDF(ctx context.Context, f io.Reader, info fs.FileInfo, name, pages string) ([]message.Block, error) {
	raw, err := readAll(f, info, name, maxDocument)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pdfTimeout)
	defer cancel()
	text, err := pdfText(ctx, raw, pages)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read as PDF: %w; where the file is in order, try pdftotext with Bash", name, err)
	}
	return textBlock(text), nil
}

func pdfText(ctx context.Context, raw []byte, pages string) (string, error) {
	doc, err := pdf.Open(ctx, raw)
	if err != nil {
		return "", err
	}
	first, last, err := pageRange(pages, doc.Pages())
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for n := first; n <= last; n++ {
		text, err := doc.Text(ctx, n)
		if err != nil {
			return "", fmt.Errorf("page %d: %w", n, err)
		}
		if n > first {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "--- Page %d/%d ---\n%s", n, doc.Pages(), text)
		if b.Len() > maxReadText && n < last {
			fmt.Fprintf(&b, "\n\n[there are more pages: go on with pages %d-%d]", n+1, last)
			break
		}
	}
	return b.String(), nil
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
