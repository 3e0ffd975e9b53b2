// Package picture checks the beginning of images. A model's server refuses every request of a conversation that contains a
// damaged image.
package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // the formats that models accept
	_ "image/jpeg"
	_ "image/png"
	"io"
	"strings"
)

// Check returns the media type of an image according to its contents, since servers refuse a JPEG that is
// declared as a PNG. It fails if the beginning of a PNG, JPEG, GIF or WebP is damaged or missing. Any other
// type, such as SVG, is returned unchecked.
func Check(mediaType string, data []byte) (string, error) {
	switch strings.ToLower(mediaType) {
	case "image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp":
	default:
		return mediaType, nil
	}
	format := "webp"
	width, height, err := webpSize(data)
	if err != nil { // not a WebP
		var cfg image.Config
		cfg, format, err = image.DecodeConfig(bytes.NewReader(data))
		width, height = cfg.Width, cfg.Height
	}
	switch {
	case len(data) == 0:
		return "", errors.New("it is empty")
	case err != nil && strings.HasSuffix(err.Error(), io.EOF.Error()): // or "unexpected EOF"; image/gif wraps neither error
		return "", errors.New("it is cut off")
	case errors.Is(err, image.ErrFormat):
		return "", errors.New("its content is not an image")
	case err != nil:
		return "", err
	case width <= 0 || height <= 0:
		return "", fmt.Errorf("it is %d by %d pixels large", width, height)
	}
	return "image/" + format, nil
}

// webpSize returns the size of a WebP, https://developers.google.com/speed/webp/docs/riff_container.
func webpSize(data []byte) (width, height int, err error) {
	if len(data) < 30 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
		return 0, 0, errors.New("not a WebP")
	}
	le := binary.LittleEndian
	switch string(data[12:16]) {
	case "VP8 ": // RFC 6386, section 9.1
		return int(le.Uint16(data[26:]) & 0x3fff), int(le.Uint16(data[28:]) & 0x3fff), nil
	case "VP8L":
		bits := le.Uint32(data[21:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, nil
	case "VP8X":
		return int(le.Uint32(data[24:])&0xffffff) + 1, int(le.Uint32(data[26:])>>8) + 1, nil
	}
	return 0, 0, errors.New("not a WebP")
}
