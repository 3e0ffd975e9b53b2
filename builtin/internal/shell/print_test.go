package shell

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/internal/casetest"
)

// rowsOf reads a file of testdata with a JSON value on each line.
func rowsOf[T any](t testing.TB, name string) (rows []T) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var row T
		d := json.NewDecoder(bytes.NewReader(scan.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&row); err != nil {
			t.Fatalf("%s: %v", scan.Text(), err)
		}
		rows = append(rows, row)
	}
	return rows
}

func TestPrint(t *testing.T) {
	for _, row := range rowsOf[struct{ Source, Print, Refused string }](t, "print.jsonl") {
		got, err := Print(row.Source)
		switch {
		case row.Refused == "" && (err != nil || got != row.Print):
			t.Errorf("%q is printed as\n%q, not\n%q: %v", row.Source, got, row.Print, err)
		case row.Refused != "" && (err == nil || !strings.Contains(err.Error(), row.Refused)):
			t.Errorf("%q is printed as %q, not refused for %q: %v", row.Source, got, row.Refused, err)
		}
		printsItself(t, row.Source)
	}
}

// printsItself fails the test unless the print of src is its own print, and means the same as src to the
// parser. It reports whether src can be printed.
func printsItself(t testing.TB, src string) bool {
	t.Helper()
	text, err := Print(src)
	if err != nil {
		return false
	}
	if again, err := Print(text); err != nil || again != text {
		t.Errorf("%q is printed as\n%q, and that as\n%q: %v", src, text, again, err)
	}
	was, now := shapeOf(t, src), shapeOf(t, text)
	if was != now {
		t.Errorf("%q is printed as\n%q, which is another tree:\n%s\n%s", src, text, was, now)
	}
	// A text that is read without the parser has a print like all others.
	var w walker
	w.trees.reset()
	if stmts := w.trees.read(src); stmts != nil {
		slow, err := w.print(src, stmts)
		if err != nil {
			t.Errorf("%q is its own print, and has none: %v", src, err)
		} else if got := shapeOf(t, string(slow)); got != was {
			t.Errorf("%q is its own print, and not like %q", src, slow)
		}
	}
	return true
}

func TestPrintCorpus(t *testing.T) {
	var list []string
	for _, name := range []string{"everyday.txt", "harmful.txt", "asked.txt", "alarming.txt", "ordinary.txt"} {
		list = append(list, lines(t, name)...)
	}
	for _, name := range []string{"bash_benign.jsonl", "bash_adversarial.jsonl"} {
		for _, c := range casetest.Rows[commandCase](t, name) {
			list = append(list, c.Command)
		}
	}
	printed := 0
	for _, src := range list {
		if printsItself(t, src) {
			printed++
		} else if _, err := Print(src); strings.Contains(err.Error(), "no plain form") {
			t.Errorf("%q: %v", src, err)
		}
	}
	if printed*100 < len(list)*95 {
		t.Errorf("%d of %d have a print", printed, len(list))
	}
}

// FuzzPrint looks for texts whose print is not its own print or means something else.
func FuzzPrint(f *testing.F) {
	for _, row := range rowsOf[struct{ Source, Print, Refused string }](f, "print.jsonl") {
		f.Add(row.Source)
	}
	g := newGrammar(3)
	for range 200 {
		f.Add(g.next())
	}
	f.Fuzz(func(t *testing.T, src string) {
		if _, err := Print(src); err != nil && strings.Contains(err.Error(), "no plain form") {
			t.Errorf("%q: %v", src, err)
		}
		printsItself(t, src)
	})
}

// shapeOf returns what a text means to the parser, without the parts that a print may change: the kinds of
// quotes, comments, blanks and the indentation of here-documents.
func shapeOf(t testing.TB, src string) string {
	t.Helper()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(src), "")
	if err != nil {
		t.Fatalf("%q: %v", src, err)
	}
	var b strings.Builder
	shape(&b, reflect.ValueOf(file.Stmts))
	return b.String()
}

// skipped are fields that have no meaning to bash, or that a print does not preserve.
var skipped = map[string]bool{"Comments": true, "Last": true, "CondLast": true, "ThenLast": true, "DoLast": true, "Short": true,
	"Backquotes": true, "Braces": true, "RsrvWord": true, "Parens": true, "Dollar": true, "Bracket": true}

func shape(b *strings.Builder, v reflect.Value) {
	switch x := v.Interface().(type) {
	case syntax.Pos:
		return
	case *syntax.WordIter:
		fmt.Fprint(b, "in:", x != nil && x.InPos.IsValid())
	case *syntax.Word:
		if x != nil {
			b.WriteString("<")
			wordShape(b, x.Parts, "")
			b.WriteString(">")
		}
		return
	case *syntax.Redirect:
		if x.Op == syntax.DplOut && !namesDescriptor(x.Word) {
			file := *x
			file.Op = syntax.RdrAll
			shape(b, reflect.ValueOf(file))
			return
		}
		if x.Op == syntax.Hdoc || x.Op == syntax.DashHdoc {
			hdocShape(b, x)
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			shape(b, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			b.WriteString("[")
			shape(b, v.Index(i))
			b.WriteString("]")
		}
	case reflect.Struct:
		b.WriteString(v.Type().Name() + "{")
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !skipped[f.Name] {
				b.WriteString(f.Name + ":")
				shape(b, v.Field(i))
			}
		}
		b.WriteString("}")
	default:
		fmt.Fprint(b, v.Interface(), " ")
	}
}

// wordShape writes the parts of a word. Each quoted character that could mean something else has a backslash,
// whatever quotes it has in the source.
func wordShape(b *strings.Builder, parts []syntax.WordPart, quote string) {
	if len(parts) == 0 {
		b.WriteString("(empty)")
	}
	text := func(s string) {
		for _, c := range []byte(s) {
			if !isWordByte(c) && c < 0x80 && !leadingDash(b, c) {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		if s == "" {
			b.WriteString("(empty)")
		}
	}
	for _, part := range parts {
		switch x := part.(type) {
		case *syntax.Lit:
			litShape(b, x.Value, quote)
		case *syntax.SglQuoted:
			s := x.Value
			if x.Dollar {
				s, _ = ansiC(s)
			}
			text(s)
		case *syntax.DblQuoted:
			wordShape(b, x.Parts, `"`)
		default:
			b.WriteString(quote)
			shape(b, reflect.ValueOf(part))
			b.WriteString(quote)
		}
	}
}

// leadingDash reports whether c is a dash that begins a word. A print quotes that of an operand of [[, which bash
// reads alike.
func leadingDash(b *strings.Builder, c byte) bool {
	return c == '-' && strings.HasSuffix(b.String(), "<")
}

func litShape(b *strings.Builder, s, quote string) {
	for i := 0; i < len(s); i++ {
		c, quoted := s[i], quote != ""
		if c == '\\' && i+1 < len(s) && (quote == "" || strings.IndexByte("$`\\", s[i+1]) >= 0 || s[i+1] == '"' && quote == `"`) {
			i++
			c, quoted = s[i], true
		}
		if c == '$' || strings.IndexByte("<>()&|;", c) >= 0 || c == '{' && quote == "" {
			quoted = true // a print may escape it
		}
		if quoted && !isWordByte(c) && c < 0x80 && !leadingDash(b, c) {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
}

func hdocShape(b *strings.Builder, r *syntax.Redirect) {
	b.WriteString("document:")
	if r.N != nil {
		b.WriteString(r.N.Value)
	}
	if r.Hdoc == nil {
		return
	}
	var body strings.Builder
	for _, part := range r.Hdoc.Parts {
		lit, ok := part.(*syntax.Lit)
		switch {
		case !ok:
			body.WriteString("\x00")
			shape(&body, reflect.ValueOf(part))
		case quotedDelimiter(r.Word):
			body.WriteString(lit.Value)
		default:
			body.WriteString(unescapeDocument(lit.Value))
		}
	}
	text := body.String()
	if r.Op == syntax.DashHdoc {
		text = strings.TrimLeft(strings.ReplaceAll(text, "\n\t", "\n"), "\t")
		for strings.Contains(text, "\n\t") {
			text = strings.ReplaceAll(text, "\n\t", "\n")
		}
	}
	b.WriteString(text)
}
