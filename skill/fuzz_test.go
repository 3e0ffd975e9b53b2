package skill

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

func seeds(f *testing.F) {
	for _, name := range []string{"testdata/valid.txtar", "testdata/broken.txtar"} {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(string(file.Data))
		}
	}
	f.Add("\ufeff---\r\nname: x\r\n---\r\n")
	f.Add("---\na: &a [*a]\n---\n")
	f.Add("---\n" + strings.Repeat("&a a: *a\n", 30) + "---\n")
}

// FuzzParse checks Parse's contract for any bytes: a usable skill or a fatal diagnostic.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, content string) {
		s, diagnostics := Parse("SKILL.md", []byte(content))
		r := report{problems: diagnostics}
		if (s == nil) != r.failed() {
			t.Fatalf("skill %v with %v", s, diagnostics)
		}
		count := 1 + strings.Count(strings.ReplaceAll(content, "\r\n", "\n"), "\n") + strings.Count(content, "\r")
		for _, d := range diagnostics {
			if d.Line < 0 || d.Line > count || d.Rule == "" || d.Message == "" || strings.Contains(d.Message, "\n") {
				t.Fatalf("%+v in %d lines", d, count)
			}
		}
		if s == nil {
			return
		}
		if s.Name == "" || s.Description == "" || !utf8.ValidString(s.Name+s.Description+s.Body) || strings.Contains(s.Body, "\r") {
			t.Fatalf("%+v", s)
		}
	})
}

// FuzzDocument checks that the sections of any text are parts of it.
func FuzzDocument(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, body string) {
		doc := ParseDocument(body)
		at := 0
		for _, s := range doc.Sections {
			if s.start < at || s.Text != body[s.start:s.end] || s.Line != 1+strings.Count(body[:s.start], "\n") {
				t.Fatalf("%+v after %d", s, at)
			}
			at = s.introEnd
		}
		for _, l := range append(doc.Links, doc.refs...) {
			if l.Line < 1 || l.Line > 1+strings.Count(body, "\n") {
				t.Fatalf("%+v", l)
			}
		}
	})
}

// hostile are texts of about size bytes that slow markdown parsers down.
func hostile(size int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	return map[string]string{
		"brackets": fill("["), "closing brackets": fill("]"), "images": fill("!["), "links": fill("[a]("), "emphasis": fill("*a_ "),
		"stars": fill("*"), "ticks": fill("` `` "), "quotes": fill("> "), "tags": fill("<a "), "lists": fill("- "),
		"headings": fill("# a\n"), "same headings": fill("# a-1\n# a\n"), "references": fill("[a]: b\n"), "entities": fill("&amp"), "tables": fill("|a"), "rising ticks": ticks(size),
		"line like a fence": "a\n    ~~~" + fill("*a_ "), "ticks after a fence": "```" + fill("*a_ ") + "`", "links before a heading": fill("[a](b)\n\n") + "# a",
		"deep lists":   nested(size),
		"quoted lines": fill("> > > > > > > > > > > > > > > > a\n"), "numbers": fill("1. "), "list": fill("- ") + "a", "pluses": fill("+\t") + "a",
		"emphasis lines": fill("*a_ \n"), "definitions": fill("[a\n"), "quotes by line": fill(strings.Repeat("> ", 30) + "*a\n"),
		"fences": fill("``` *a_ \n"), "fence in quote": fill("> ``` *a_ "), "underscores": fill("_a "), "angle": fill("<"), "comment": fill("<!-- "), "cdata": fill("<![CDATA["), "setext": fill("a\n=\n"), "paren links": fill("[a](("), "nul": fill("\x00"),
		"escapes": fill("\\["), "mixed list": fill("- > 1. "), "item marks": fill("- *a_ [b](c) ![d](e) `f` &amp; <g>\n"),
	}
}

// TestLimitMarkup checks the bounds that the parser's time depends on: marks in a paragraph
// and depth of nesting. Offsets must not change.
func TestLimitMarkup(t *testing.T) {
	for name, text := range hostile(1 << 16) {
		got := limitMarkup(text)
		if len(got) != len(text) || strings.Count(got, "\n") != strings.Count(text, "\n") {
			t.Fatalf("%s: %d bytes, %d before", name, len(got), len(text))
		}
		seen := 0
		for line := range strings.Lines(got) {
			prefix, deep := containers(line)
			if deep >= 0 {
				t.Errorf("%s: a line is nested too deep: %.80q", name, line)
				break
			}
			if strings.TrimSpace(line[:prefix]) != "" || strings.TrimSpace(line) == "" {
				seen = 0
			}
			for _, c := range strings.TrimLeft(line[prefix:], "`") { // without the ticks of a fence
				if strings.ContainsRune(marks, c) {
					seen++
				}
			}
			if seen > maxMarks {
				t.Errorf("%s: a paragraph has %d marks", name, seen)
				break
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching("(([>+* -]|1\\.){0,6}[a-c`*_<!&\\[\\]#]{0,20}\n){0,30}").Draw(t, "text")
		if got := limitMarkup(text); got != text {
			t.Fatalf("%q becomes %q", text, got)
		}
	})
}

// BenchmarkHostile parses what would take minutes without limitMarkup.
func BenchmarkHostile(b *testing.B) {
	for name, text := range hostile(maxSkillFile) {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				ParseDocument(text)
			}
		})
	}
}

func ticks(size int) string {
	var b strings.Builder
	for n := 1; b.Len() < size; n++ {
		b.WriteString(strings.Repeat("`", n) + "a")
	}
	return b.String()
}

func nested(size int) string {
	var b strings.Builder
	for n := 0; b.Len() < size; n++ {
		b.WriteString(strings.Repeat(" ", 2*n) + "- a\n")
	}
	return b.String()
}
