package pdf

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/builtin/pdf/internal/pdftest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// readTool calls the Read tool with a file.
func readTool(t *testing.T, file []byte, pages string) *message.ToolResult {
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

// TestReadText checks that words are derived from the positions of characters.
func TestReadText(t *testing.T) {
	page := "BT /F1 10 Tf 72 700 Td (Hello, world) Tj 0 -12 Td [(Second) -400 (line)] TJ 0 -60 Td (Next) Tj 30 0 Td (part) Tj ET"
	got := readTool(t, pdftest.Pages(page, page), "2")
	if want := "--- Page 2/2 ---\nHello, world\nSecond line\n\nNext part"; got.Text() != want {
		t.Errorf("%q, want %q", got.Text(), want)
	}
}

func TestReadPages(t *testing.T) {
	for _, row := range []struct {
		blank                int
		pages, outcome, text string
	}{
		{2, "", "success", "--- Page 1/2 ---\n\n\n--- Page 2/2 ---\n"},
		{30, "", "error", "has 30 pages; say which"},
		{30, "11-99", "success", "--- Page 30/30 ---"},
		{30, "31", "error", "no pages"},
	} {
		got := readTool(t, pdftest.Pages(make([]string, row.blank)...), row.pages)
		if string(got.Outcome) != row.outcome || !strings.Contains(got.Text(), row.text) {
			t.Errorf("pages %q of %d: %s %q, want %s %q", row.pages, row.blank, got.Outcome, got.Text(), row.outcome, row.text)
		}
	}
}

// TestReadMalformed checks that an invalid PDF is an error with a remedy, and never ends the program.
func TestReadMalformed(t *testing.T) {
	good := string(pdftest.Pages("", ""))
	loop := strings.Replace(good, "/Kids [4 0 R 6 0 R]", "/Kids [2 0 R 2 0 R]", 1)
	prev := strings.Replace(good, "/Root 1 0 R", fmt.Sprintf("/Root 1 0 R /Prev %d", strings.Index(good, "xref\n0")), 1)
	for name, text := range map[string]string{
		"empty": "", "text": "hello", "cut": good[:len(good)/2], "cycle of pages": loop, "cycle of tables": prev,
		"garbage": strings.ReplaceAll(good, "obj", "jbo"), "no root": strings.Replace(good, "/Root 1 0 R", "", 1),
	} {
		got := readTool(t, []byte(text), "")
		if got.Outcome != "error" || !strings.Contains(got.Text(), "pdftotext") {
			t.Errorf("%s: %s %q", name, got.Outcome, got.Text())
		}
	}
}
