// Package pdf reads the text of PDF files for the Read tool of [github.com/kitbag-go/kitbag/builtin]:
//
//	tools, err := builtin.New(builtin.Config{PDF: pdf.Reader{}})
//
// PDFium, the reader of Chromium, does the work. It is WebAssembly that an interpreter runs: no file, variable or
// connection of the program is within its reach, and its memory and time are limited. So a malicious file can make
// its own text wrong, and no more.
//
// Opening a file takes about a second, and 150 MB until it is closed; a page of dense text takes half a second.
package pdf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/klippa-app/go-pdfium"
	pdferrors "github.com/klippa-app/go-pdfium/errors"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

const (
	maxMemory = 256 << 20 // bytes of PDFium's memory, which also holds the file
	maxChars  = 1 << 20   // characters of a page
	wasmPage  = 64 << 10  // bytes of a page of WebAssembly memory
)

// A Reader opens files for [github.com/kitbag-go/kitbag/builtin.Config]. It is safe for concurrent use.
type Reader struct{}

// OpenPDF returns the number of pages of a file, and a function for the text of a page, counted from 1. The file
// is closed when ctx or the context of a page is done, and after an error. A file that is encrypted with a password,
// or without pages, is an error.
func (Reader) OpenPDF(ctx context.Context, file []byte) (pages int, text func(ctx context.Context, page int) (string, error), err error) {
	d := &document{}
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	context.AfterFunc(d.ctx, d.close)
	if err := d.open(file); err != nil {
		return 0, nil, d.fail(err)
	}
	return d.pages, d.text, nil
}

// A document is an open file in its own instance of PDFium.
type document struct {
	ctx    context.Context // stops PDFium, and closes the file
	cancel context.CancelCauseFunc

	mu    sync.Mutex // held while PDFium is used
	pool  pdfium.Pool
	lib   pdfium.Pdfium
	doc   references.FPDF_DOCUMENT
	pages int
}

func (d *document) open(raw []byte) (err error) {
	d.pool, err = webassembly.Init(webassembly.Config{
		Context: d.ctx, MaxTotal: 1, Stdout: io.Discard, Stderr: io.Discard,
		FSConfig: wazero.NewFSConfig(), // no files; the default is all of them
		// Interpret PDFium, since compiling takes ten seconds and 400 MB. PDFium needs WebAssembly exceptions.
		RuntimeConfig: wazero.NewRuntimeConfigInterpreter().WithCloseOnContextDone(true).WithMemoryLimitPages(maxMemory / wasmPage).
			WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesExceptionHandling),
	})
	if err != nil {
		return err
	}
	if d.lib, err = d.pool.GetInstanceWithContext(d.ctx); err != nil {
		return err
	}
	doc, err := d.lib.OpenDocument(&requests.OpenDocument{File: &raw})
	if err != nil {
		return err
	}
	d.doc = doc.Document
	count, err := d.lib.FPDF_GetPageCount(&requests.FPDF_GetPageCount{Document: d.doc})
	if err != nil {
		return err
	}
	if d.pages = count.PageCount; d.pages < 1 {
		return errors.New("it has no pages")
	}
	return nil
}

func (d *document) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pool != nil {
		d.pool.Close()
	}
}

func (d *document) text(ctx context.Context, n int) (string, error) {
	if n < 1 || n > d.pages {
		return "", fmt.Errorf("page %d does not exist; the file has %d pages", n, d.pages)
	}
	defer context.AfterFunc(ctx, func() { d.cancel(ctx.Err()) })() // the last () removes the function on return
	d.mu.Lock()
	defer d.mu.Unlock()
	text, err := d.pageText(n)
	if err != nil {
		return "", d.fail(err)
	}
	return text, nil
}

func (d *document) pageText(n int) (string, error) {
	if err := d.ctx.Err(); err != nil {
		return "", err
	}
	page, err := d.lib.FPDFText_LoadPage(&requests.FPDFText_LoadPage{Page: requests.Page{
		ByIndex: &requests.PageByIndex{Document: d.doc, Index: n - 1}}})
	if err != nil {
		return "", err
	}
	defer d.lib.FPDFText_ClosePage(&requests.FPDFText_ClosePage{TextPage: page.TextPage})
	chars, err := d.lib.FPDFText_CountChars(&requests.FPDFText_CountChars{TextPage: page.TextPage})
	if err != nil || chars.Count < 1 {
		return "", err
	}
	if chars.Count > maxChars {
		return "", fmt.Errorf("it has more than %d characters", maxChars)
	}
	text, err := d.lib.FPDFText_GetText(&requests.FPDFText_GetText{TextPage: page.TextPage, Count: chars.Count})
	if err != nil {
		return "", err
	}
	return strings.Map(readable, text.Text), nil
}

const hyphen = '\uFFFE' // what PDFium returns for a hyphen at the end of a line

// readable removes carriage returns, and replaces control characters, which could affect a terminal.
func readable(r rune) rune {
	switch {
	case r == '\r':
		return -1
	case r == hyphen:
		return '-'
	case unicode.IsControl(r) && !unicode.IsSpace(r):
		return utf8.RuneError
	}
	return r
}

// fail closes the file, and explains an error of PDFium.
func (d *document) fail(err error) error {
	switch {
	case errors.Is(err, pdferrors.ErrPassword):
		err = errors.New("it is encrypted with a password; decrypt it first, for example with Bash: qpdf --password=PASSWORD --decrypt FILE NEW")
	case errors.Is(err, pdferrors.ErrSecurity):
		err = errors.New("its encryption is not supported; decrypt it first, for example with Bash: qpdf --decrypt FILE NEW")
	case errors.Is(err, pdferrors.ErrFormat):
		err = errors.New("it is damaged, or not a PDF file")
	case errors.Is(err, pdferrors.ErrPage):
		err = errors.New("the page is damaged")
	default:
		if message, _, crashed := strings.Cut(err.Error(), "\nwasm stack trace:"); crashed || strings.Contains(message, "could not allocate memory") {
			err = fmt.Errorf("PDFium stopped (%s): the file needs more than %d MiB of memory, or is malicious", message, maxMemory>>20)
		}
	}
	d.cancel(err)
	return context.Cause(d.ctx) // not err if the context had ended before, which made PDFium fail
}
