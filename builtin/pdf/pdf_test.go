package pdf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/pdf/internal/pdftest"
	"github.com/kitbag-go/kitbag/internal/countdown"
)

func firstPage(ctx context.Context, raw []byte) (string, error) {
	f, err := Open(ctx, raw)
	if err != nil {
		return "", err
	}
	return f.Text(ctx, 1)
}

// TestPDFCharacters checks the text of codes with the encodings of fonts.
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
		{"/Encoding /MacRomanEncoding", "", "(\\212\\245\\340) Tj", "ä•‡"},
		{"/Encoding /StandardEncoding", "", "(`a'\\256\\341\\373) Tj", "‘a’ﬁÆß"},
		{"/Encoding << /BaseEncoding /MacRomanEncoding /Differences [97 /T_h /f_f_i.alt /uni00E9 /u1F600 /Delta /nonesuch] >>", "", "(abcdef\\212) Tj", "Thffié😀∆fä"},
		{"/Encoding << /Differences [97 /g12] >>", "1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfchar <61> <0042> endbfchar", "(ab) Tj", "Bb"},
		{"/Encoding /UniGB-UCS2-H", "", "<4F60597D> Tj", "你好"},
		{"", "1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfchar <41> <001B> endbfchar", "(A) Tj", "\uFFFD"},
		{"/Encoding /WinAnsiEncoding", "", "<616> Tj", "a`"},
		{"/Encoding /WinAnsiEncoding", "", "/P <</MCID 0 /K [[1]]>> BDC (a) Tj EMC BI /W 1 ID (((\x00EI< EI (b) Tj", "ab"},
		{"/Encoding /WinAnsiEncoding", "", "(a) Tj % (no\n /F#31 10 Tf (b) Tj", "ab"},
	} {
		got, err := firstPage(t.Context(), pdftest.Font(row.font, row.charMap, "BT /F1 10 Tf "+row.content+" ET"))
		if err != nil || got != row.want {
			t.Errorf("%s %s %s: %q, %v, want %q", row.font, row.charMap, row.content, got, err, row.want)
		}
	}
}

// TestPDFAttacks checks that a page made to cost time or memory takes time linear in its bytes, or is an error.
func TestPDFAttacks(t *testing.T) {
	const plain = "/Encoding /WinAnsiEncoding"
	const spaces = "1 begincodespacerange <0000> <FFFF> endcodespacerange "
	many := strings.Repeat
	var chars, names strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&chars, "1 beginbfchar <%08X> <0041> endbfchar\n", i)
		fmt.Fprintf(&names, "/N%d 1 Tf ", i)
	}
	long := "(" + many("x", maxString) + ") Tj "
	for _, row := range []struct{ name, font, charMap, content, outcome, text string }{
		{"a string without end", plain, "", "(a) Tj <41", "success", "a"},
		{"a literal without end", plain, "", "(a) Tj (b\\", "success", "a"},
		{"a list without end", plain, "", "(a) Tj " + many("[", 100_000), "success", "a"},
		{"dictionaries without end", "", "", many("<</A ", 100_000), "success", ""},
		{"a long list", plain, "", "[" + many("1 ", 200_000) + "] TJ (a) Tj", "success", "a"},
		{"many operands", plain, "", many("1 ", 200_000) + "w (a) Tj", "success", "a"},
		{"many dictionaries to look in", "", "", many("1 dict begin ", 100_000) + many("a ", 500_000), "success", ""},
		{"many fonts", "", "", names.String(), "error", "fonts"},
		{"a map that claims to be long", "", spaces + "9223372036854775807 beginbfchar endbfchar 1 beginbfchar <0041> <0042> endbfchar", "<0041> Tj", "success", "B"},
		{"a long map, much text", "", "1 begincodespacerange <00000000> <FFFFFFFF> endcodespacerange " + chars.String(), many("<"+many("00004E1F", 5000)+"> Tj ", 20), "success", "AAA"},
		{"ranges in each other", "", spaces + many("1 beginbfrange <0000> <FFFF> <0041> endbfrange ", 20_000), many("<"+many("FFFF", 5000)+"> Tj ", 20), "success", ""},
		{"a code that is a book", "", spaces + "1 beginbfchar <0041> <" + many("0041", 100_000) + "> endbfchar", many("<"+many("0041", 10_000)+"> Tj ", 100), "error", "8 MiB"},
		{"a long encoding", "/Encoding << /Differences [" + many("/x ", 200_000) + "] >>", "", many(long, 10), "error", "entries"},
		{"a long string", "", "", "(x" + long[1:], "error", "string"},
		{"a long page", "", "", many(" ", maxStream+1), "error", "bytes"},
	} {
		got, err := firstPage(t.Context(), pdftest.Font(row.font, row.charMap, "BT /F1 10 Tf "+row.content))
		outcome := "success"
		if err != nil {
			outcome, got = "error", err.Error()
		}
		if outcome != row.outcome || !strings.Contains(got, row.text) {
			t.Errorf("%s: %s %.300q, want %s %q", row.name, outcome, got, row.outcome, row.text)
		}
	}
}

// TestPDFCancel checks that reading a page ends with its context at any point.
func TestPDFCancel(t *testing.T) {
	data := pdftest.Font("", "1 begincodespacerange <00> <FF> endcodespacerange "+strings.Repeat("1 beginbfchar <41> <0041> endbfchar ", 1000),
		"BT /F1 10 Tf "+strings.Repeat("(AAA) Tj [(A) 1 (A)] TJ 1 w ", 5000))
	read := func(asked int) (*countdown.Context, error) {
		ctx := &countdown.Context{Context: t.Context(), Left: asked}
		_, err := firstPage(ctx, data)
		return ctx, err
	}
	all, err := read(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	total := 1<<30 - all.Left
	if total < 15_000 {
		t.Fatalf("the context was polled %d times", total)
	}
	for asked := 0; asked < total; asked += total / 20 {
		if ctx, err := read(asked); !errors.Is(err, context.Canceled) || ctx.Left < -2 {
			t.Errorf("after %d of %d: %v, and %d more polls", asked, total, err, -ctx.Left)
		}
	}
}
