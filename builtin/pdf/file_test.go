package pdf

import (
	"bytes"
	"compress/zlib"
	"encoding/ascii85"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/pdf/internal/pdftest"
)

func deflate(s string) string {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	z.Write([]byte(s))
	z.Close()
	return b.String()
}

const (
	catalogue = "<< /Type /Catalog /Pages 2 0 R >>"
	pageTree  = "<< /Type /Pages /Kids [3 0 R] /Count 1 /Resources << /Font << /F1 << /Type /Font /Encoding /WinAnsiEncoding >> >> >> >>"
	onePage   = "<< /Type /Page /Parent 2 0 R /Contents 4 0 R >>"
	hello     = "BT /F1 10 Tf (Hello) Tj ET"
)

// packed returns an object stream with the numbered objects.
func packed(entries string, numbers []int, objects ...string) string {
	var head, body strings.Builder
	for i, o := range objects {
		fmt.Fprintf(&head, "%d %d ", numbers[i], body.Len())
		body.WriteString(o + " ")
	}
	return pdftest.Stream(fmt.Sprintf("/Type /ObjStm /N %d /First %d /Filter /FlateDecode %s", len(objects), head.Len(), entries),
		deflate(head.String()+body.String()))
}

// withTable appends a cross-reference stream, with the next number, to objects. An empty object is in the
// object stream number in.
func withTable(entries string, in int, objects ...string) []byte {
	body, places := pdftest.Body(objects...)
	rows := []byte{0, 0, 0, 0, 0, 255}
	for _, at := range append(places[1:], len(body)) {
		kind := byte(1)
		if at == 0 {
			kind, at = 2, in
		}
		rows = append(binary.BigEndian.AppendUint32(append(rows, kind), uint32(at)), 0)
	}
	n := len(objects) + 1
	table := pdftest.Stream(fmt.Sprintf("/Type /XRef /Size %d /Root 1 0 R /W [1 4 1] %s", n+1, entries), string(rows))
	return fmt.Appendf(body, "%d 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF\n", n, table, len(body))
}

// compressedTable is withTable with compressed rows and a predictor.
func compressedTable(objects ...string) []byte {
	body, places := pdftest.Body(objects...)
	var rows, above []byte
	for i, at := range append(places, len(body)) {
		row := binary.BigEndian.AppendUint32([]byte{byte(min(i, 1))}, uint32(at))
		rows = append(rows, 2)
		for j := range row {
			up := byte(0)
			if above != nil {
				up = above[j]
			}
			rows = append(rows, row[j]-up)
		}
		above = row
	}
	n := len(objects) + 1
	table := pdftest.Stream(fmt.Sprintf("/Type /XRef /Size %d /Root 1 0 R /W [1 4 0] /Index [0 %d] /Filter [/FlateDecode] /DecodeParms [<< /Predictor 12 /Columns 5 >>]", n+1, n+1), deflate(string(rows)))
	return fmt.Appendf(body, "%d 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF\n", n, table, len(body))
}

// hybrid returns a file whose pages are free in the table, and listed in a stream for newer
// readers.
func hybrid() []byte {
	objects := []string{catalogue, "", "", pdftest.Stream("", hello), packed("", []int{2, 3}, pageTree, onePage)}
	body, places := pdftest.Body(objects...)
	rows := []byte{2, 0, 5, 2, 0, 5}
	at := len(body)
	body = fmt.Appendf(body, "6 0 obj\n%s\nendobj\n", pdftest.Stream("/Type /XRef /Size 7 /W [1 2 0] /Index [2 2]", string(rows)))
	table := len(body)
	body = append(body, "xref\n0 7\n0000000000 65535 f \n"...)
	for i, place := range append(places[1:], at) {
		use := "n"
		if i == 1 || i == 2 {
			use = "f"
		}
		body = fmt.Appendf(body, "%010d 00000 %s \n", place, use)
	}
	return fmt.Appendf(body, "trailer\n<< /Size 7 /Root 1 0 R /XRefStm %d >>\nstartxref\n%d\n%%%%EOF\n", at, table)
}

// updated returns a file whose contents were replaced by a later table.
func updated() []byte {
	old := pdftest.File(catalogue, pageTree, onePage, pdftest.Stream("", "BT /F1 10 Tf (Old) Tj ET"))
	prev := bytes.LastIndex(old, []byte("xref\n0"))
	at := len(old)
	old = fmt.Appendf(old, "4 0 obj\n%s\nendobj\n", pdftest.Stream("", hello))
	return fmt.Appendf(old, "xref\n4 1\n%010d 00000 n \ntrailer\n<< /Size 5 /Root 1 0 R /Prev %d >>\nstartxref\n%d\n%%%%EOF\n", at, prev, bytes.LastIndex(old, []byte("endobj\n"))+7)
}

// layouts are files of one page with the text Hello.
func layouts() map[string][]byte {
	a85 := make([]byte, ascii85.MaxEncodedLen(len(hello)))
	a85 = append(a85[:ascii85.Encode(a85, []byte(hello))], "~>"...)
	objects := func(contents string) []string { return []string{catalogue, pageTree, onePage, contents} }
	plain := pdftest.File(objects(pdftest.Stream("", hello))...)
	replaced := func(old, new string) []byte { return bytes.ReplaceAll(plain, []byte(old), []byte(new)) }
	inStream := []string{catalogue, "", "", pdftest.Stream("", hello), packed("", []int{2, 3}, pageTree, onePage)}
	indirect := strings.Replace(pdftest.Stream("", hello), fmt.Sprint("/Length ", len(hello)), "/Length 5 0 R", 1)
	rough := bytes.Index(plain, []byte("startxref"))
	file := func(filters, data string) []byte { return pdftest.File(objects(pdftest.Stream(filters, data))...) }
	return map[string][]byte{
		"a table":                             plain,
		"a cross-reference stream":            withTable("", 0, objects(pdftest.Stream("", hello))...),
		"a compressed cross-reference stream": compressedTable(objects(pdftest.Stream("", hello))...),
		"an object stream":                    withTable("", 5, inStream...),
		"a hybrid":                            hybrid(),
		"an update":                           updated(),
		"version 2.0":                         replaced("%PDF-1.7", "%PDF-2.0"),
		"something before the head":           append([]byte(strings.Repeat("x", 1000)), plain...),
		"something after the end":             append(bytes.Clone(plain), strings.Repeat("\n", 900)...),
		"a wrong startxref":                   replaced("startxref\n", "startxref\n1"),
		"another generation":                  replaced("00000 n", "00001 n"),
		"wrong offsets":                       replaced("%PDF-1.7\n", "%PDF-1.7\n%more\n"),
		"no table, an object stream":          withoutTail(withTable("", 5, inStream...)),
		"no startxref":                        append(bytes.Clone(plain[:rough]), "\n"...),
		"a length that is wrong":              replaced("/Length 2", "/Length 9"),
		"an indirect length":                  pdftest.File(append(objects(indirect), fmt.Sprint(len(hello)))...),
		"a page twice":                        replaced("/Kids [3 0 R]", "/Kids [3 0 R 3 0 R]"),
		"Prev 0":                              replaced("/Root", "/Prev 0 /Root"),
		"a name with codes":                   replaced("/Contents", "/Con#74ents"),
		"FlateDecode":                         file("/Filter /FlateDecode", deflate(hello)),
		"no checksum":                         file("/Filter /FlateDecode", deflate(hello)[:len(deflate(hello))-4]),
		"ASCIIHexDecode":                      file("/Filter /ASCIIHexDecode", hex.EncodeToString([]byte(hello))+">"),
		"ASCII85Decode":                       file("/Filter [/ASCII85Decode]", string(a85)),
		"RunLengthDecode":                     file("/Filter /RunLengthDecode", string(rune(len(hello)-2))+hello[:len(hello)-1]+"\xffT\x80"),
		"LZWDecode":                           file("/Filter /LZWDecode", lzw(hello, 1)),
		"LZWDecode, late":                     file("/Filter /LZWDecode /DecodeParms << /EarlyChange 0 >>", lzw(hello, 0)),
		"a chain":                             file("/Filter [/ASCIIHexDecode /FlateDecode]", hex.EncodeToString([]byte(deflate(hello)))),
	}
}

func withoutTail(raw []byte) []byte { return raw[:bytes.LastIndex(raw, []byte("startxref"))] }

// lzw returns LZW codes of s, after enough others that codes become longer.
func lzw(s string, early int) string {
	var out []byte
	bits, have := uint32(0), 0
	put := func(code, width int) {
		bits, have = bits<<width|uint32(code), have+width
		for have >= 8 {
			out, have = append(out, byte(bits>>(have-8))), have-8
		}
	}
	put(lzwClear, 9)
	width, next := 9, lzwEnd+1
	for i, c := range []byte(strings.Repeat(" ", 1000) + s) {
		if put(int(c), width); i > 0 {
			if next++; next+early >= 1<<width {
				width++
			}
		}
	}
	put(lzwEnd, width)
	put(0, 7)
	return string(out)
}

// TestLayouts checks that each layout, and each known damage, gives the same page.
func TestLayouts(t *testing.T) {
	for name, raw := range layouts() {
		if got, err := firstPage(t.Context(), raw); err != nil || got != "Hello" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestDamagedMap checks that a damaged character map does not affect a valid encoding.
func TestDamagedMap(t *testing.T) {
	raw := pdftest.File(catalogue, "<< /Kids [3 0 R] >>", strings.Replace(onePage, "/Parent 2 0 R", "/Resources << /Font << /F1 5 0 R >> >>", 1),
		pdftest.Stream("", hello), "<< /Encoding /WinAnsiEncoding /ToUnicode 6 0 R >>", pdftest.Stream("/Filter /FlateDecode", "damage"))
	if got, err := firstPage(t.Context(), raw); err != nil || got != "Hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestPredictors checks predictors against values computed by hand.
func TestPredictors(t *testing.T) {
	for _, row := range []struct {
		predictor, columns, colors int
		data, want                 []byte
	}{
		{15, 4, 1, []byte{0, 1, 2, 3, 4, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 3, 1, 1, 1, 1, 4, 1, 1, 1, 1, 4, 9},
			[]byte{1, 2, 3, 4, 1, 2, 3, 4, 2, 3, 4, 5, 2, 3, 4, 5, 3, 4, 5, 6, 12}},
		{10, 2, 2, []byte{1, 1, 2, 3, 4, 4, 1, 1, 1, 1}, []byte{1, 2, 4, 6, 2, 3, 5, 7}},
		{2, 2, 2, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, []byte{1, 2, 4, 6, 5, 6, 12, 14, 9}},
		{1, 2, 2, []byte{1, 2, 3}, []byte{1, 2, 3}},
	} {
		number := func(n int) object { return object{kind: kindNumber, num: float64(n)} }
		parm := object{kind: kindDict, body: &body{dict: map[string]object{
			"Predictor": number(row.predictor), "Columns": number(row.columns), "Colors": number(row.colors)}}}
		got, err := (&File{}).unpredict(t.Context(), parm, row.data)
		if err != nil || !bytes.Equal(got, row.want) {
			t.Errorf("%d, %d, %d: %v, %v, want %v", row.predictor, row.columns, row.colors, got, err, row.want)
		}
	}
}
