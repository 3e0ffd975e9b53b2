// Package pdftest makes PDF files for tests.
package pdftest

import (
	"bytes"
	"fmt"
	"strings"
)

// Pages returns a document with a page for each content stream.
func Pages(contents ...string) []byte {
	objects := []string{"<< /Type /Catalog /Pages 2 0 R >>", ""}
	objects = append(objects, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /FirstChar 32 /LastChar 126 /Widths ["+strings.Repeat("500 ", 95)+"] >>")
	var kids []string
	for _, c := range contents {
		n := len(objects)
		kids = append(kids, fmt.Sprintf("%d 0 R", n+1))
		objects = append(objects,
			fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>", n+2),
			Stream("", c))
	}
	objects[1] = fmt.Sprintf("<< /Type /Pages /Kids [%s] /Count %d >>", strings.Join(kids, " "), len(contents))
	return File(objects...)
}

// Font returns a document with one page and one font; charMap is the font's character map.
func Font(font, charMap, content string) []byte {
	return File(
		"<< /Type /Catalog /Pages 2 0 R >>",
		"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
		"<< /Type /Page /Parent 2 0 R /Resources << /Font << /F1 4 0 R >> >> /Contents 6 0 R >>",
		"<< /Type /Font /Subtype /Type0 "+font+" /ToUnicode 5 0 R >>",
		Stream("", charMap), Stream("", content))
}

// Stream returns a stream with some entries in its dictionary.
func Stream(entries, data string) string {
	return fmt.Sprintf("<< %s /Length %d >>\nstream\n%s\nendstream", entries, len(data), data)
}

// File returns a document of objects numbered from 1; the first is the catalogue.
func File(objects ...string) []byte {
	body, places := Body(objects...)
	var b bytes.Buffer
	b.Write(body)
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, at := range places[1:] {
		fmt.Fprintf(&b, "%010d 00000 n \n", at)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, len(body))
	return b.Bytes()
}

// Body returns the header and the objects, and the offset of each object by its number. It skips empty objects.
func Body(objects ...string) (body []byte, places []int) {
	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	places = []int{0}
	for i, o := range objects {
		places = append(places, b.Len())
		if o == "" {
			places[i+1] = 0
			continue
		}
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	return b.Bytes(), places
}
