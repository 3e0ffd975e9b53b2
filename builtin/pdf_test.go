package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/ledongthuc/pdf"
)

// blankPDF returns a document of n pages without text.
func blankPDF(n int) []byte { return buildPDF(make([]string, n)) }

// buildPDF returns a document with a page for each content stream.
func buildPDF(contents []string) []byte {
	objects := []string{"<< /Type /Catalog /Pages 2 0 R >>", ""}
	objects = append(objects, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /FirstChar 32 /LastChar 126 /Widths ["+strings.Repeat("500 ", 95)+"] >>")
	var kids []string
	for _, c := range contents {
		n := len(objects)
		kids = append(kids, fmt.Sprintf("%d 0 R", n+1))
		objects = append(objects,
			fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>", n+2),
			fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(c), c))
	}
	objects[1] = fmt.Sprintf("<< /Type /Pages /Kids [%s] /Count %d >>", strings.Join(kids, " "), len(contents))
	return joinPDF(objects)
}

// joinPDF returns a document of objects, of which the first is the catalogue.
func joinPDF(objects []string) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n")
	var offsets []int
	for i, o := range objects {
		offsets = append(offsets, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	start := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, at := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", at)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, start)
	return b.Bytes()
}

// fontPDF returns a document of a page with a font, which may have a character map.
func fontPDF(font, charMap, content string) []byte {
	stream := func(s string) string { return fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(s), s) }
	return joinPDF([]string{
		"<< /Type /Catalog /Pages 2 0 R >>",
		"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /Resources << /Font << /F1 4 0 R >> >> /Contents 6 0 R >>",
		"<< /Type /Font /Subtype /Type0 " + font + " /ToUnicode 5 0 R >>",
		stream(charMap), stream(content),
	})
}

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
	dir := files(t, map[string]string{"a.pdf": string(buildPDF([]string{page, page}))})
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

// Characters are what the font says of their codes.
func TestPDFCharacters(t *testing.T) {
	const spaces = "1 begincodespacerange <0000> <FFFF> endcodespacerange "
	differences := "/Encoding << /Differences [65 /alpha /beta 97 /Euro] >>"
	for _, row := range []struct{ font, charMap, content, want string }{
		{"", spaces + "2 beginbfchar <0001> <0041> <0002> <00660069> endbfchar", "<000100020003> Tj", "Afi\uFFFD"},
		{"/Encoding /Identity-H", spaces + "1 beginbfrange <0010> <0020> <03B1> endbfrange", "<00100012 0020> Tj", "αγρ"},
		{"", spaces + "1 beginbfrange <0010> <0012> [<0058> <0059>] endbfrange", "<001000110012> Tj", "XY\uFFFD"},
		{"", spaces + "1 beginbfrange <0000> <FFFF> <0000> endbfrange 1 beginbfchar <0041> <D83DDE00> endbfchar", "<004100420141> Tj", "😀BŁ"},
		{"", "2 begincodespacerange <00> <7F> <8000> <FFFF> endcodespacerange 2 beginbfchar <41> <0061> <8001> <0062> endbfchar", "<418001> Tj", "ab"},
		{differences, "", "(A\\102Ca) Tj", "αβC€"},
		{"/Encoding /WinAnsiEncoding", "", "(a\\(\\)(b)\\\nc\\223) Tj", "a()(b)c“"},
		{"/Encoding /WinAnsiEncoding", "", "<616> Tj", "a`"},
		{"/Encoding /WinAnsiEncoding", "", "/P <</MCID 0 /K [[1]]>> BDC (a) Tj EMC BI /W 1 ID (((\x00EI< EI (b) Tj", "ab"},
		{"/Encoding /WinAnsiEncoding", "", "(a) Tj % (no\n /F#31 10 Tf (b) Tj", "ab"},
	} {
		dir := files(t, map[string]string{"a.pdf": string(fontPDF(row.font, row.charMap, "BT /F1 10 Tf "+row.content+" ET"))})
		got := call(t.Context(), readTool(t, dir), args("file_path", filepath.Join(dir, "a.pdf")))
		if want := "--- Page 1/1 ---\n" + row.want; got.Text() != want {
			t.Errorf("%s %s %s: %q, want %q", row.font, row.charMap, row.content, got.Text(), want)
		}
	}
}

// A page that is made to cost time or memory without end is read in the time that its
// bytes take, or is an error.
func TestPDFAttacks(t *testing.T) {
	const spaces = "1 begincodespacerange <0000> <FFFF> endcodespacerange "
	many := strings.Repeat
	var chars, names strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&chars, "1 beginbfchar <%08X> <0041> endbfchar\n", i)
		fmt.Fprintf(&names, "/N%d 1 Tf ", i)
	}
	long := "(" + many("x", pdfMaxString) + ") Tj "
	for _, row := range []struct{ name, font, charMap, content, outcome, text string }{
		{"a string without end", "", "", "(a) Tj <41", "success", "a"},
		{"a literal without end", "", "", "(a) Tj (b\\", "success", "a"},
		{"a list without end", "", "", "(a) Tj " + many("[", 100_000), "success", "a"},
		{"dictionaries without end", "", "", many("<</A ", 100_000), "success", ""},
		{"a long list", "", "", "[" + many("1 ", 200_000) + "] TJ (a) Tj", "success", "a"},
		{"many operands", "", "", many("1 ", 200_000) + "w (a) Tj", "success", "a"},
		{"many dictionaries to look in", "", "", many("1 dict begin ", 100_000) + many("a ", 500_000), "success", ""},
		{"many fonts", "", "", names.String(), "error", "fonts"},
		{"a map that claims to be long", "", spaces + "9223372036854775807 beginbfchar endbfchar 1 beginbfchar <0041> <0042> endbfchar", "<0041> Tj", "success", "B"},
		{"a long map, much text", "", "1 begincodespacerange <00000000> <FFFFFFFF> endcodespacerange " + chars.String(), many("<"+many("00004E1F", 5000)+"> Tj ", 20), "success", "AAA"},
		{"ranges in each other", "", spaces + many("1 beginbfrange <0000> <FFFF> <0041> endbfrange ", 20_000), many("<"+many("FFFF", 5000)+"> Tj ", 20), "success", ""},
		{"a code that is a book", "", spaces + "1 beginbfchar <0041> <" + many("0041", 100_000) + "> endbfchar", many("<"+many("0041", 10_000)+"> Tj ", 100), "error", "8 MiB"},
		{"a long encoding", "/Encoding << /Differences [" + many("/x ", 200_000) + "] >>", "", many(long, 10), "error", "entries"},
		{"a long string", "", "", "(x" + long[1:], "error", "string"},
		{"a long page", "", "", many(" ", pdfMaxStream+1), "error", "bytes"},
	} {
		dir := files(t, map[string]string{"a.pdf": string(fontPDF(row.font, row.charMap, "BT /F1 10 Tf "+row.content))})
		got := call(t.Context(), readTool(t, dir), args("file_path", filepath.Join(dir, "a.pdf")))
		if string(got.Outcome) != row.outcome || !strings.Contains(got.Text(), row.text) {
			t.Errorf("%s: %s %.300q, want %s %q", row.name, got.Outcome, got.Text(), row.outcome, row.text)
		}
	}
}

// lasting is a context that ends when it has been asked a number of times.
type lasting struct {
	context.Context
	left int
}

func (l *lasting) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// However far the reading of a page has come, it ends with its context.
func TestPDFCancel(t *testing.T) {
	data := fontPDF("", "1 begincodespacerange <00> <FF> endcodespacerange "+strings.Repeat("1 beginbfchar <41> <0041> endbfchar ", 1000),
		"BT /F1 10 Tf "+strings.Repeat("(AAA) Tj [(A) 1 (A)] TJ 1 w ", 5000))
	doc, err := pdf.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	read := func(asked int) (*lasting, error) {
		ctx := &lasting{t.Context(), asked}
		_, err := pageText(ctx, doc.Page(1))
		return ctx, err
	}
	all, err := read(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	total := 1<<30 - all.left
	if total < 15_000 {
		t.Fatalf("the context was asked %d times", total)
	}
	for asked := 0; asked < total; asked += total / 20 {
		if ctx, err := read(asked); !errors.Is(err, context.Canceled) || ctx.left < -2 {
			t.Errorf("after %d of %d: %v, and asked %d times more", asked, total, err, -ctx.left)
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

func FuzzPDF(f *testing.F) {
	f.Add(blankPDF(1))
	f.Add(buildPDF([]string{"BT /F1 10 Tf (x) Tj ET"}))
	f.Add([]byte("%PDF-1.4\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "a.pdf")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		info, _ := file.Stat()
		readPDF(context.Background(), file, info, path, "1") // must return
	})
}
