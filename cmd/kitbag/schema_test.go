package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGenerateLine checks that the help has the line that package tool/docs has. internal/modules/generate.sh runs it.
func TestGenerateLine(t *testing.T) {
	docs, err := os.ReadFile("../../tool/docs/docs.go")
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(string(docs), "//\t//go:generate ")
	line, _, _ = strings.Cut(line, "\n")
	if got := kitbag(t.Context(), "schema", "gen", "--help"); !ok || !strings.Contains(got.out, "//go:generate "+line+"\n") {
		t.Errorf("tool/docs has the line %q, the help is\n%s", line, got.out)
	}
}

func TestSchemaGen(t *testing.T) {
	dir := workspace(t)
	source := "package tools\n\n// Order is what a customer wants.\ntype Order struct {\n\t// Dish is from the menu, one of today's.\n\tDish string `json:\"dish\"`\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "tools.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may overwrite its own file
		if got := kitbag(t.Context(), "schema", "gen"); got.code != exitDone {
			t.Fatalf("%+v", got)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, schemaFile))
	if err != nil || !strings.Contains(string(data), "one of today's") || !strings.Contains(string(data), "package tools") {
		t.Errorf("%v\n%s", err, data)
	}
	if got := kitbag(t.Context(), "schema", "gen", "--out", "-"); got.out != string(data) {
		t.Errorf("printed\n%s\nwritten\n%s", got.out, data)
	}
	if got := kitbag(t.Context(), "schema", "gen", "--out", "tools.go"); got.code != exitUsage || !strings.Contains(got.stderr, "tools.go") {
		t.Errorf("over a file of the user's: %+v", got)
	}
	if got := kitbag(t.Context(), "schema", "gen", "nowhere"); got.code != exitError || !strings.Contains(got.stderr, "nowhere") {
		t.Errorf("no such directory: %+v", got)
	}
}
