package builtin

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/pdf/pdftest"
	"github.com/kitbag-go/kitbag/tool"
)

// blankPDF returns a document of n pages without text.
func blankPDF(n int) []byte { return pdftest.Pages(make([]string, n)...) }

func readTool(t testing.TB, dir string) tool.Tool {
	t.Helper()
	r, err := Read(Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Words are put together from where the characters stand.
func TestPDFText(t *testing.T) {
	page := "BT /F1 10 Tf 72 700 Td (Hello, world) Tj 0 -12 Td [(Second) -400 (line)] TJ 0 -60 Td (Next) Tj 30 0 Td (part) Tj ET"
	dir := files(t, map[string]string{"a.pdf": string(pdftest.Pages(page, page))})
	got := call(t.Context(), readTool(t, dir), args("file_path", filepath.Join(dir, "a.pdf"), "pages", "2"))
	if want := "--- Page 2/2 ---\nHello, world\nSecond line\n\nNext part"; got.Text() != want {
		t.Errorf("%q, want %q", got.Text(), want)
	}
}

func TestPDFPages(t *testing.T) {
	dir := files(t, map[string]string{"a.pdf": string(blankPDF(30))})
	for _, row := range []struct{ pages, outcome, text string }{
		{"", "error", "has 30 pages; say which"},
		{"1-20", "success", "--- Page 20/30 ---"},
		{"1-21", "error", "more than the 20"},
		{"11-99", "success", "--- Page 30/30 ---"},
		{"30", "success", "--- Page 30/30 ---"},
		{"31", "error", "no pages"},
		{"-3", "error", "neither a number nor a range"},
		{" 2 - 3 ", "success", "--- Page 3/30 ---"},
	} {
		got := call(t.Context(), readTool(t, dir), args("file_path", filepath.Join(dir, "a.pdf"), "pages", row.pages))
		if string(got.Outcome) != row.outcome || !strings.Contains(got.Text(), row.text) {
			t.Errorf("pages %q: %s %q, want %s %q", row.pages, got.Outcome, got.Text(), row.outcome, row.text)
		}
	}
}

// What is no sound PDF is an error with a way out, and never ends the program.
func TestPDFMalformed(t *testing.T) {
	good := string(blankPDF(2))
	loop := strings.Replace(good, "/Kids [4 0 R 6 0 R]", "/Kids [2 0 R 2 0 R]", 1)
	prev := strings.Replace(good, "/Root 1 0 R", fmt.Sprintf("/Root 1 0 R /Prev %d", strings.Index(good, "xref\n0")), 1)
	for name, text := range map[string]string{
		"empty": "", "text": "hello", "cut": good[:len(good)/2], "cycle of pages": loop, "cycle of tables": prev,
		"garbage": strings.ReplaceAll(good, "obj", "jbo"), "no root": strings.Replace(good, "/Root 1 0 R", "", 1),
	} {
		dir := files(t, map[string]string{"a.pdf": text})
		got := call(t.Context(), readTool(t, dir), args("file_path", filepath.Join(dir, "a.pdf")))
		if got.Outcome != "error" || !strings.Contains(got.Text(), "pdftotext") {
			t.Errorf("%s: %s %q", name, got.Outcome, got.Text())
		}
	}
}
