package builtin

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
)

// formFeeds is a [PDFReader] of text files with a form feed after each page. The tests of
// real files are in builtin/pdf.
type formFeeds struct{}

func (formFeeds) OpenPDF(_ context.Context, file []byte) (int, func(context.Context, int) (string, error), error) {
	pages := strings.SplitAfter(string(file), "\f")
	pages = pages[:len(pages)-1]
	if len(pages) == 0 {
		return 0, nil, errors.New("it has no pages")
	}
	return len(pages), func(_ context.Context, n int) (string, error) {
		text := strings.TrimSuffix(pages[n-1], "\f")
		if text == "damaged" {
			return "", errors.New("a stream is damaged")
		}
		return text, nil
	}, nil
}

// blankPDF returns n pages without text, for formFeeds.
func blankPDF(n int) []byte { return []byte(strings.Repeat("\f", n)) }

func readTool(t testing.TB, dir string) tool.Tool {
	t.Helper()
	r, err := Read(Config{Dirs: []string{dir}, PDF: formFeeds{}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPDFPages(t *testing.T) {
	long := strings.Repeat("x", maxReadText/2+1)
	dir := files(t, map[string]string{
		"30.pdf": string(blankPDF(30)), "2.PDF": "Hello\fworld\f", "long.pdf": strings.Repeat(long+"\f", 4),
		"none.pdf": "", "damaged.pdf": "well\fdamaged\f",
	})
	read := readTool(t, dir)
	for _, row := range []struct{ file, pages, outcome, text string }{
		{"2.PDF", "", "success", "--- Page 1/2 ---\nHello\n\n--- Page 2/2 ---\nworld"},
		{"30.pdf", "", "error", "pages is missing: the file has 30 pages; say which"},
		{"30.pdf", "1-20", "success", "--- Page 20/30 ---"},
		{"30.pdf", "1-21", "error", "at most 20"},
		{"30.pdf", "11-99", "success", "--- Page 30/30 ---"},
		{"30.pdf", "30", "success", "--- Page 30/30 ---"},
		{"30.pdf", "31", "error", "pages \"31\" does not exist; the file has 30 pages"},
		{"30.pdf", "-3", "error", "neither a number nor a range"},
		{"30.pdf", " 2 - 3 ", "success", "--- Page 3/30 ---"},
		{"long.pdf", "", "success", "[there are more pages: continue with pages 3-4]"},
		{"none.pdf", "", "error", "cannot be read as PDF: it has no pages; if the file is intact, try pdftotext"},
		{"damaged.pdf", "1", "success", "well"},
		{"damaged.pdf", "", "error", "cannot be read as PDF: page 2: a stream is damaged"},
	} {
		got := call(t.Context(), read, args("file_path", filepath.Join(dir, row.file), "pages", row.pages))
		if string(got.Outcome) != row.outcome || !strings.Contains(got.Text(), row.text) {
			t.Errorf("%s, pages %q: %s %.200q, want %s %q", row.file, row.pages, got.Outcome, got.Text(), row.outcome, row.text)
		}
	}
}

// TestNoPDFReader checks that without a reader Read's description does not mention PDF files, and its error
// says what is missing.
func TestNoPDFReader(t *testing.T) {
	dir := files(t, map[string]string{"a.pdf": string(blankPDF(1))})
	without, err := Read(Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	text, with := without.Info().Description, readTool(t, dir).Info().Description
	if strings.Contains(text, "PDF") || !strings.Contains(with, "PDF") {
		t.Errorf("without a reader:\n%s\nwith one:\n%s", text, with)
	}
	got := call(t.Context(), without, args("file_path", filepath.Join(dir, "a.pdf")))
	for _, want := range []string{"a.pdf", "pdftotext with Bash", "set PDF in builtin.Config", "-tags pdfium"} {
		if got.Outcome != "error" || !strings.Contains(got.Text(), want) {
			t.Errorf("%s %q lacks %q", got.Outcome, got.Text(), want)
		}
	}
}
