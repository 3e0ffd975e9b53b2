package docgen_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/docgen"
	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/docgen/sample"
	"github.com/kitbag-go/kitbag/tool/tooltest"
)

// TestGenerate compares the generated file of the sample package, which is compiled into this
// test. KITBAG_UPDATE=1 rewrites it.
func TestGenerate(t *testing.T) {
	const golden = "sample/kitbag_docs.go"
	var got bytes.Buffer
	if err := docgen.Generate("sample", &got); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("KITBAG_UPDATE") != "" {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s is not what Generate writes; run the test with KITBAG_UPDATE=1\n%s", golden, got.Bytes())
	}
}

// TestDescriptionsReachTheSchema uses the generated file like a program.
func TestDescriptionsReachTheSchema(t *testing.T) {
	if sample.Err != nil {
		t.Fatal(sample.Err)
	}
	info := sample.Tools[0].Info()
	if info.Name != "weather" || info.Description != "Tells what the weather will be. It may be wrong." {
		t.Errorf("%s: %q", info.Name, info.Description)
	}
	const want = `{"properties":{"city":{"type":"string","description":"The city, in English.\n\nNot the country."},` +
		`"From":{"type":"integer","description":"days from now"},"Until":{"type":"integer","description":"days from now"},` +
		`"unit":{"type":"string","enum":["celsius","fahrenheit"]},"depth":{"type":"integer","enum":[1,2]},"size":{"type":"integer"},` +
		`"page":{"properties":{"number":{"type":"integer","description":"Number counts from one, with \"quotes\", commas and several lines."},` +
		`"of":{"type":"string","enum":["celsius","fahrenheit"],"description":"what is on it"}},"additionalProperties":false,"type":"object","required":["number","of"],"description":"A Page is of any type."},` +
		`"tagged":{"type":"string","description":"the tag goes before"}},"additionalProperties":false,"type":"object","required":["city","From","Until","page","tagged"]}`
	if got := string(info.Input); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	tooltest.Run(t, sample.Tools[0], tooltest.Options{Calls: 100})
}

func TestGenerateRefuses(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no Go files":         {"a.txt": ""},
		"two packages":        {"a.go": "package a", "b.go": "package b"},
		"nothing to describe": {"a.go": "package a\n\ntype A struct{ X int }\n"},
		"expected":            {"a.go": "package a\n\nfunc ("},
		"has no Go files":     {"a_test.go": "package a", "b.go": docgen.Marker + "\n\npackage a"},
	} {
		dir := t.TempDir()
		for f, src := range files {
			if err := os.WriteFile(filepath.Join(dir, f), []byte(src), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := docgen.Generate(dir, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v, want %q", files, err, name)
		}
	}
}
