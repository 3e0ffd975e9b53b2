package pdf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// withPages returns a file with a page for each content stream.
func withPages(contents ...string) []byte {
	objects := []string{"<< /Type /Catalog /Pages 2 0 R >>", "",
		"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"}
	kids := ""
	for _, c := range contents {
		kids += fmt.Sprintf("%d 0 R ", len(objects)+1)
		objects = append(objects,
			fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents [%d 0 R      ] >>", len(objects)+2),
			fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(c), c))
	}
	objects[1] = fmt.Sprintf("<< /Type /Pages /Kids [%s] /Count %d >>", kids, len(contents))
	var b, table bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	for i, o := range objects {
		fmt.Fprintf(&table, "%010d 00000 n \n", b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	end := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %[1]d /Root 1 0 R >>\nstartxref\n%[3]d\n%%%%EOF\n", len(objects)+1, &table, end)
	return b.Bytes()
}

// firstPage returns the text of the first page of a file, which it closes.
func firstPage(ctx context.Context, raw []byte) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, text, err := Reader{}.OpenPDF(ctx, raw)
	if err != nil {
		return "", err
	}
	return text(ctx, 1)
}

// TestRead reads files with the Read tool.
func TestRead(t *testing.T) {
	page := "BT /F1 10 Tf 72 700 Td (Hello, wo\\223rld\\001) Tj 0 -12 Td [(Second) -400 (line)] TJ 30 0 Td (part) Tj ET"
	good := withPages(page, page)
	for _, row := range []struct {
		name          string
		file          []byte
		pages         string
		outcome, text string
	}{
		{"text", good, "2", "success", "--- Page 2/2 ---\nHello, wo“rld\uFFFD\nSecond line part"},
		{"blank pages", withPages("", ""), "", "success", "--- Page 1/2 ---\n\n\n--- Page 2/2 ---\n"},
		{"too many pages", withPages(make([]string, 30)...), "", "error", "has 30 pages; say which"},
		{"not a PDF file", []byte("hello"), "", "error", "it is damaged, or not a PDF file; if the file is intact, try pdftotext"},
		{"half a file", good[:len(good)/3], "", "error", "pdftotext"},
		{"no pages", withPages(), "", "error", "it has no pages"},
		{"pages in a cycle", bytes.Replace(good, []byte("/Kids [4 0 R 6 0 R ]"), []byte("/Kids [2 0 R 2 0 R ]"), 1), "", "error", "pdftotext"},
	} {
		if got := read(t, row.file, row.pages); string(got.Outcome) != row.outcome || !strings.Contains(got.Text(), row.text) {
			t.Errorf("%s: %s %q, want %s %q", row.name, got.Outcome, got.Text(), row.outcome, row.text)
		}
	}
}

// read calls the Read tool with a file.
func read(t *testing.T, file []byte, pages string) *message.ToolResult {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "a.pdf")
	if err := os.WriteFile(name, file, 0o666); err != nil {
		t.Fatal(err)
	}
	read, err := builtin.Read(builtin.Config{Dirs: []string{dir}, PDF: Reader{}})
	if err != nil {
		t.Fatal(err)
	}
	args, err := json.Marshal(map[string]string{"file_path": name, "pages": pages})
	if err != nil {
		t.Fatal(err)
	}
	c := tool.Call{ID: "call_1", Name: "Read", Input: args}
	results := tool.NewCollector(c)
	for chunk, err := range tool.Run(t.Context(), read, c) {
		if err != nil {
			t.Fatal(err)
		}
		results.Add(chunk)
	}
	return results.Result()
}

// TestEncrypted checks files that another program, pdfcpu, has encrypted: one without a password is read, and one
// with a password is an error with the remedy.
func TestEncrypted(t *testing.T) {
	names, err := filepath.Glob("testdata/*.pdf")
	if err != nil || len(names) != 7 {
		t.Fatalf("%d files, %v", len(names), err)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := firstPage(t.Context(), raw)
		if strings.Contains(name, "password") {
			if err == nil || !strings.Contains(err.Error(), "qpdf --password=PASSWORD --decrypt") {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		} else if err != nil || got != "Hello" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestMemory checks that a file cannot take more memory than PDFium may have, and that its error is one line.
func TestMemory(t *testing.T) {
	huge := withPages(strings.Repeat(" ", 100<<20))
	for name, raw := range map[string][]byte{
		"contents": bytes.Replace(huge, []byte("5 0 R      ]"), []byte("5 0 R 5 0 R]"), 1), "file": make([]byte, 2*maxMemory),
	} {
		_, err := firstPage(t.Context(), raw)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "256 MiB") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTime checks that reading ends with the context of the file, and with that of the page, after which the file
// is closed.
func TestTime(t *testing.T) {
	raw := withPages(strings.Repeat("BT /F1 10 Tf (aaaaaaaaaaaaaaaaaaaaaa) Tj ET ", 200_000)) // takes minutes
	for _, ofFile := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		_, text, err := Reader{}.OpenPDF(ctx, raw)
		if err != nil {
			t.Fatal(err)
		}
		pageCtx := t.Context()
		if ofFile {
			time.AfterFunc(100*time.Millisecond, cancel)
		} else {
			c, cancelPage := context.WithTimeout(pageCtx, 100*time.Millisecond)
			defer cancelPage()
			pageCtx = c
		}
		before := time.Now()
		_, err = text(pageCtx, 1)
		if want := map[bool]error{true: context.Canceled, false: context.DeadlineExceeded}[ofFile]; !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if _, again := text(t.Context(), 1); !errors.Is(again, err) {
			t.Errorf("%v after %v", again, err)
		}
		if took := time.Since(before); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		cancel()
	}
}
