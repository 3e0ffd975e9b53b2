package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// TestPDF reads a file of package pdf, with and without the tag pdfium.
func TestPDF(t *testing.T) {
	data, err := os.ReadFile("../../builtin/pdf/testdata/rc4-128.pdf")
	if err != nil {
		t.Fatal(err)
	}
	dir := workspace(t)
	if err := os.WriteFile(filepath.Join(dir, "a.pdf"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "Hello"
	if pdfReader == nil {
		want = "-tags pdfium"
	}
	s := serve(t, openaitest.Calls(call("Read", `{"file_path":"a.pdf"}`)), openaitest.Text("done"))
	kitbag(t.Context(), "run", "read it")
	messages := s.Requests()[1].Messages
	if got := messages[len(messages)-1].Text(); !strings.Contains(got, want) {
		t.Errorf("Read returns %q, want %q", got, want)
	}
}
