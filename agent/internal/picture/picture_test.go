package picture_test

import (
	"bytes"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/internal/picture"
)

func encoded(t testing.TB) map[string][]byte {
	t.Helper()
	img := image.NewPaletted(image.Rect(0, 0, 2, 3), color.Palette{color.Black, color.White})
	var p, j, g bytes.Buffer
	if err := png.Encode(&p, img); err != nil {
		t.Fatal(err)
	}
	if err := jpeg.Encode(&j, img, nil); err != nil {
		t.Fatal(err)
	}
	if err := gif.Encode(&g, img, nil); err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"png": p.Bytes(), "jpeg": j.Bytes(), "gif": g.Bytes(),
		"lossy": riff("VP8 ", "\x30\x01\x00\x9d\x01\x2a\x02\x00\x03\x00"), "lossless": riff("VP8L", "\x2f\x01\x80\x00\x00\x00\x00\x00\x00\x00"),
		"extended": riff("VP8X", "\x00\x00\x00\x00\x01\x00\x00\x02\x00\x00")}
}

// riff is a WebP with one chunk.
func riff(kind, data string) []byte {
	return []byte("RIFF\x16\x00\x00\x00WEBP" + kind + "\x0a\x00\x00\x00" + data)
}

func TestCheck(t *testing.T) {
	img := encoded(t)
	flat := bytes.Clone(img["lossy"])
	flat[26] = 0
	for _, row := range []struct {
		why, mediaType string
		data           []byte
		want, err      string
	}{
		{"a PNG", "image/png", img["png"], "image/png", ""},
		{"a JPEG", "image/jpeg", img["jpeg"], "image/jpeg", ""},
		{"a JPEG by its short name", "image/JPG", img["jpeg"], "image/jpeg", ""},
		{"a GIF", "image/gif", img["gif"], "image/gif", ""},
		{"a lossy WebP", "image/webp", img["lossy"], "image/webp", ""},
		{"a lossless WebP", "image/webp", img["lossless"], "image/webp", ""},
		{"an extended WebP", "image/webp", img["extended"], "image/webp", ""},
		{"a JPEG that is called a PNG", "image/png", img["jpeg"], "image/jpeg", ""},
		{"another format", "image/svg+xml", []byte("<svg/>"), "image/svg+xml", ""},
		{"no picture", "application/pdf", nil, "application/pdf", ""},
		{"nothing", "image/png", nil, "", "empty"},
		{"a signature alone", "image/png", img["png"][:8], "", "cut off"},
		{"half a GIF", "image/gif", img["gif"][:8], "", "cut off"},
		{"half a header", "image/jpeg", img["jpeg"][:30], "", "cut off"},
		{"a WebP's signature", "image/webp", img["lossy"][:16], "", "is not an image"},
		{"text", "image/png", []byte("hello"), "", "is not an image"},
		{"a damaged header", "image/png", append(append(bytes.Clone(img["png"][:16]), 9, 9, 9, 9), img["png"][20:]...), "", "checksum"},
		{"no width", "image/webp", flat, "", "0 by 3 pixels"},
	} {
		got, err := picture.Check(row.mediaType, row.data)
		if got != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: %q, %v", row.why, got, err)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, data := range encoded(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		mediaType, err := picture.Check("image/png", data)
		if (err == nil) != (mediaType != "") {
			t.Errorf("%q, %v", mediaType, err)
		}
	})
}
