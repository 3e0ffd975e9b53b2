package pdf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/pdf/internal/pdftest"
	"github.com/kitbag-go/kitbag/internal/countdown"
)

// bomb returns zeros compressed three times.
func bomb(size int) string {
	return deflate(deflate(deflate(string(make([]byte, size)))))
}

const threeFlates = "/Filter [/FlateDecode /FlateDecode /FlateDecode]"

// table returns a file of only a table and a trailer.
func table(rows, trailer string) []byte {
	return fmt.Appendf(nil, "%%PDF-1.4\nxref\n%s\ntrailer\n<< %s >>\nstartxref\n9\n%%%%EOF\n", rows, trailer)
}

// tableStream returns a file of only a cross-reference stream.
func tableStream(entries, rows string) []byte {
	return fmt.Appendf(nil, "%%PDF-1.5\n1 0 obj\n%s\nendobj\nstartxref\n9\n%%%%EOF\n", pdftest.Stream("/Type /XRef /Root 1 0 R "+entries, rows))
}

// withContents returns a file with one page, and objects from number 4.
func withContents(objects ...string) []byte {
	return pdftest.File(append([]string{catalogue, pageTree, onePage}, objects...)...)
}

// repeated returns a file with n objects from number 4 on; each returns them.
func repeated(tree string, n int, each func(num int) string) []byte {
	objects := []string{catalogue, tree, onePage}
	for i := range n {
		objects = append(objects, each(i+4))
	}
	return pdftest.File(objects...)
}

// refs returns references to n objects from the first on.
func refs(first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d 0 R ", first+i)
	}
	return b.String()
}

// sameText returns a file whose page tree has n objects, all of them at the same bytes of an object stream.
func sameText(n, size int) []byte {
	var head strings.Builder
	for i := range n {
		fmt.Fprintf(&head, "%d 0 ", i+10)
	}
	stream := pdftest.Stream(fmt.Sprintf("/Type /ObjStm /N %d /First %d", n, head.Len()), head.String()+"("+strings.Repeat("x", size)+")")
	raw, _ := pdftest.Body(catalogue, "<< /Kids ["+refs(10, n)+"] >>", onePage, stream)
	return append(raw, "trailer << /Root 1 0 R >>"...)
}

// A cost is a budget, in KiB and in thousands.
type cost budget

// little is a sixteenth of the usual budget, for files that use up a budget.
var little = budget{maxDecoded / 16, maxParsed / 16, maxObjects / 16, maxEntries / 16}

// TestFileAttacks checks that a file made to cost memory or time costs no more than its bytes justify, or is an
// error. The counted cost is compared with what Go has allocated.
func TestFileAttacks(t *testing.T) {
	many := strings.Repeat
	swap := func(raw []byte, old, new string) []byte { return bytes.ReplaceAll(raw, []byte(old), []byte(new)) }
	small := cost{1, 8, 1, 1}
	zeros := bomb(20 << 20)
	chain := func(n int) []byte {
		return repeated(strings.Replace(pageTree, "3 0 R", "4 0 R", 1), n, func(num int) string { return fmt.Sprintf("%d 0 R", num+1) })
	}
	levels := repeated(strings.Replace(pageTree, "3 0 R", "4 0 R", 1), 200, func(num int) string { return fmt.Sprintf("<< /Kids [%d 0 R] >>", num+1) })
	for _, row := range []struct {
		name  string
		raw   []byte
		want  string // part of the text, or of the error after "error: "
		limit cost
	}{
		{"a table that begins at a large number", table("3000000000 1\n0000000000 65535 f ", "/Root 1 0 R"), "error: it has no pages", small},
		{"the greatest number of an object", table("8388607 1\n0000000000 65535 f ", "/Root 1 0 R"), "error: it has no pages", small},
		{"a table that claims to be long", table("0 8388607\n0000000000 65535 f ", "/Root 1 0 R"), "error: it has no pages", small},
		{"a stream that claims to be long", tableStream("/W [1 2 1] /Size 999999999999", "abcd"), "error: it has no pages", small},
		{"a section that claims to be long", tableStream("/W [1 2 1] /Index [0 8388607 5 99999999]", "abcd"), "error: it has no pages", small},
		{"rows without bytes", tableStream("/W [0 0 0] /Size 8388607", "abcd"), "error: it has no pages", small},
		{"rows without a place", tableStream("/W [1 0 1] /Size 8388607", many("a", 1000)), "error: it has no pages", small},
		{"rows that are long", tableStream("/W [1 99999999999 1] /Size 1", "abcd"), "error: it has no pages", small},
		{"negative rows", tableStream("/W [5 -4 1] /Size 100", "abcd"), "error: it has no pages", small},
		{"tables in a cycle", table("0 1\n0000000000 65535 f ", "/Root 1 0 R /Prev 9"), "error: in a cycle", small},
		{"a table that depends on its own objects", tableStream("/W [1 2 1] /Size 2 /Filter 1 0 R", "abcd"), "error: it has no pages", small},
		{"an object stream in itself", withTable("", 2, catalogue, "", onePage), "error: it is in an object stream", small},
		{"two object streams in each other", swap(withTable("", 3, catalogue, "", "", packed("", []int{2}, pageTree)), "\x02\x00\x00\x00\x03\x00\x01", "\x02\x00\x00\x00\x03\x00\x02"), "error: it is in an object stream", small},
		{"an object stream whose length is in it", withTable("", 5, catalogue, "", "", pdftest.Stream("", hello),
			"<< /Type /ObjStm /N 2 /First 8 /Length 2 0 R >>\nstream\n2 0 3 2 7 8 endstream"), "error: it has no pages", small},
		{"an object stream of many", withTable("", 3, catalogue, "", pdftest.Stream("/N 99999999999 /First 4", "2 0 <<>>")), "error: it has no pages", small},
		{"an object stream whose First is too large", withTable("", 3, catalogue, "", pdftest.Stream("/N 1 /First 99999999999", "2 0 <<>>")), "error: First is not within", small},
		{"arrays in arrays", withContents(many("[", 2_000_000)), "", cost{0, 2000, 1, 1}},
		{"arrays in arrays of a trailer", table("0 0", "/A "+many("[", 2_000_000)), "error: no cross-reference table", cost{0, 8000, 5, 1}},
		{"dictionaries in a cross-reference stream", tableStream(many("/A <<", 400_000), ""), "error: no cross-reference table", cost{0, 8000, 5, 1}},
		{"a page tree in a cycle", pdftest.File(catalogue, "<< /Kids [3 0 R] >>", "<< /Kids [2 0 R] >>"), "error: object 2 twice", small},
		{"a duplicate node", pdftest.File(catalogue, "<< /Kids [3 0 R 3 0 R] >>", "<< /Kids [4 0 R] >>", onePage), "error: object 3 twice", small},
		{"a tree of many levels", levels, "error: levels", cost{1, 64, 4, 4}},
		{"many nodes", pdftest.File(catalogue, "<< /Kids ["+many("<<>>", 60_000)+"] >>"), "error: nodes", cost{0, 1000, 130, 1}},
		{"a tree that claims to be large", swap(withContents(pdftest.Stream("", hello)), "/Count 1", "/Count 1000000000"), "Hello", small},
		{"a length that is itself", withContents("<< /Length 4 0 R >>\nstream\n" + hello + "\nendstream"), "Hello", small},
		{"lengths in a cycle", withContents("<< /Length 5 0 R >>\nstream\n"+hello+"\nendstream", "6 0 R", "5 0 R"), "Hello", small},
		{"very many references", chain(200_000), "error: a chain of more than", cost{0, 12_000, 1, 401}},
		{"a compressed bomb as page content", withContents(pdftest.Stream(threeFlates, zeros)), "error: bytes", cost{maxStream>>10 + 256, 8, 1, 1}},
		{"a compressed bomb as object stream", withTable("", 3, catalogue, "", pdftest.Stream("/N 1 /First 4 "+threeFlates, zeros)), "error: bytes", cost{maxTable>>10 + 256, 8, 1, 1}},
		{"a compressed bomb as table", tableStream("/W [1 2 1] /Size 8388607 "+threeFlates, zeros), "error: bytes", cost{maxTable>>10 + 256, 8, 1, 1}},
		{"a table of many rows", tableStream("/W [0 1 0] /Size 8388607 /Filter /FlateDecode", deflate(string(make([]byte, 1<<20)))), "error: reading it takes", cost{1100, 8, 1, 140}},
		{"a page drawn by one stream many times", swap(withContents(pdftest.Stream("/Filter /FlateDecode", deflate(many(" ", 4<<20)))), "4 0 R", "["+many("4 0 R ", 10_000)+"]"), "error: bytes", cost{maxStream>>10 + 256, 100, 21, 1}},
		{"a row that is wide", withContents(pdftest.Stream("/Filter /FlateDecode /DecodeParms << /Predictor 12 /Columns 16777216 /Colors 32 /BitsPerComponent 16 >>", deflate(hello))), "", small},
		{"many filters", withContents(pdftest.Stream("/Filter ["+many("/AHx ", 1000)+"]", "41>")), "error: filters", cost{1, 16, 2, 1}},
		{"a megabyte of the word stream", append(withContents(hello), many("stream\n", 150_000)...), "", cost{0, 8000, 1, 1}},
		{"a megabyte of the word trailer", append(withContents(hello)[:100], many("trailer\n", 150_000)...), "error: no cross-reference table", cost{0, 8000, 200, 1}},
		{"a megabyte of trailers without an end", append(withContents(hello)[:100], many("trailer(", 150_000)...), "error: reading it takes", cost{0, maxParsed >> 14, 500, 1}},
		{"a megabyte of objects", append([]byte("%PDF-1.4\n"), many("1 0 obj\n", 150_000)...), "error: no cross-reference table", cost{0, 4000, 1, 151}},
		{"a megabyte of strings", withContents("[" + many("()", 500_000) + "]"), "", cost{0, 1000, 501, 1}},
		{"more objects than are read", withContents("[" + many("0 ", 300_000) + "]"), "error: reading it takes", cost{0, 800, 140, 1}},
		{"streams without an end", repeated(pageTree, 2000, func(num int) string {
			if num == 4 {
				return "[" + refs(5, 1999) + "]"
			}
			return "<< /Length 1 /Filter /AHx >>\nstream\n" + many("x", 500)
		}), "error: reading it takes", cost{maxDecoded >> 14, maxParsed >> 14, 50, 4}},
		{"much that is decoded to nothing", swap(withContents(pdftest.Stream("/Filter /AHx", many(" ", 1<<20))), "4 0 R", "["+many("4 0 R ", 10_000)+"]"),
			"error: reading it takes", cost{maxDecoded >> 14, 2000, 21, 1}},
		{"an object that is read by many numbers", sameText(1000, 1<<20), "error: reading it takes", cost{2000, maxParsed >> 14, 4, 4}},
		{"an encrypted file", table("0 0", "/Root 1 0 R /Encrypt << /Filter /Standard >>"), "error: qpdf --decrypt", small},
	} {
		budgetBefore := budget{maxDecoded, maxParsed, maxObjects, maxEntries}
		if strings.HasPrefix(row.want, "error: reading it takes") {
			budgetBefore = little
		}
		f := &File{left: budgetBefore}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := f.open(t.Context(), row.raw)
		got := ""
		if err == nil {
			got, err = f.Text(t.Context(), 1)
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		runtime.ReadMemStats(&after)
		want, isError := strings.CutPrefix(row.want, "error: ")
		if isError != (err != nil) || !strings.Contains(got, want) {
			t.Errorf("%s: %.300q, want %q", row.name, got, row.want)
		}
		used := cost{(budgetBefore.decoded - f.left.decoded) >> 10, (budgetBefore.parsed - f.left.parsed) >> 10, (budgetBefore.objects - f.left.objects) / 1000, (budgetBefore.entries - f.left.entries) / 1000}
		if used.decoded > row.limit.decoded || used.parsed > row.limit.parsed || used.objects > row.limit.objects || used.entries > row.limit.entries {
			t.Errorf("%s: it cost %+v, want at most %+v", row.name, used, row.limit)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<30 {
			t.Errorf("%s: %d MiB allocated", row.name, n>>20)
		}
	}
}

// TestOpenCancel checks that reading a file ends with its context at any point.
func TestOpenCancel(t *testing.T) {
	for name, raw := range map[string][]byte{
		"a table":    repeated(pageTree, 20_000, func(int) string { return "0" }),
		"a stream":   tableStream("/W [0 1 0] /Size 8388607 /Filter /FlateDecode", deflate(string(make([]byte, 1<<19)))),
		"objects":    withContents("[" + strings.Repeat("0 ", 400_000) + "]"),
		"the search": append([]byte("%PDF-1.4\n"), strings.Repeat("1 0 obj\n", 50_000)...),
		"a bomb":     withContents(pdftest.Stream(threeFlates, bomb(2<<20))),
	} {
		read := func(asked int) (*countdown.Context, error) {
			ctx := &countdown.Context{Context: t.Context(), Left: asked}
			_, err := firstPage(ctx, raw)
			return ctx, err
		}
		budgetBefore, _ := read(1 << 30)
		total := 1<<30 - budgetBefore.Left
		if total < 100 {
			t.Errorf("%s: the context was polled %d times", name, total)
		}
		for asked := 0; asked < total; asked += max(1, total/10) {
			if ctx, err := read(asked); !errors.Is(err, context.Canceled) || ctx.Left < -2 {
				t.Errorf("%s: after %d of %d: %v, and %d more polls", name, asked, total, err, -ctx.Left)
			}
		}
	}
}

func FuzzPDF(f *testing.F) {
	good := layouts()
	for _, name := range slices.Sorted(maps.Keys(good)) {
		f.Add(good[name])
	}
	for _, name := range []string{"rc4-40", "aes-128", "aes-256-r5", "aes-256-r6"} {
		f.Add(encrypted(f, name))
	}
	f.Add(pdftest.Pages(""))
	f.Add([]byte("%PDF-1.4\n"))
	f.Add(table("3000000000 1\n0000000000 65535 f ", "/Root 1 0 R"))
	f.Add(withTable("", 2, catalogue, "", onePage))
	f.Add(pdftest.Font("", "1 begincodespacerange <0000> <FFFF> endcodespacerange 1 beginbfrange <0010> <0012> [<0058> <0059>] endbfrange", "BT /F1 10 Tf <00100011> Tj ET"))
	f.Add(pdftest.Font("/Encoding << /Differences [65 /alpha /uni0041] >>", "", "BT /F1 10 Tf (AB) Tj ET"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc := &File{left: little}
		if err := doc.open(t.Context(), data); err == nil {
			doc.Text(t.Context(), 1)
		}
		if l := doc.left; min(l.decoded, l.parsed, l.objects, l.entries) < 0 {
			t.Errorf("more than was allowed: %+v", l)
		}
	})
}
