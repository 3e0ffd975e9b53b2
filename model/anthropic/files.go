package anthropic

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/kitbag-go/kitbag/message"
)

// imageTypes are the types of images that the API accepts.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// fileBlock returns the block of a file: by its kind if the API has one, and as a note otherwise.
func fileBlock(d *message.Data) (u sdk.BetaContentBlockParamUnion) {
	web := strings.HasPrefix(d.URL, "https://") || strings.HasPrefix(d.URL, "http://")
	encoded := base64.StdEncoding.EncodeToString(d.Bytes)
	doc := &sdk.BetaRequestDocumentBlockParam{}
	if d.Name != "" {
		doc.Title = sdk.String(d.Name)
	}
	switch {
	case strings.HasPrefix(d.MediaType, "image/") && web:
		u.OfImage = &sdk.BetaImageBlockParam{Source: sdk.BetaImageBlockParamSourceUnion{OfURL: &sdk.BetaURLImageSourceParam{URL: d.URL}}}
	case slices.Contains(imageTypes, d.MediaType) && encoded != "":
		u.OfImage = &sdk.BetaImageBlockParam{Source: sdk.BetaImageBlockParamSourceUnion{OfBase64: &sdk.BetaBase64ImageSourceParam{
			MediaType: sdk.BetaBase64ImageSourceMediaType(d.MediaType), Data: encoded}}}
	case d.MediaType == "application/pdf" && web:
		doc.Source.OfURL = &sdk.BetaURLPDFSourceParam{URL: d.URL}
		u.OfDocument = doc
	case d.MediaType == "application/pdf" && encoded != "":
		doc.Source.OfBase64 = &sdk.BetaBase64PDFSourceParam{Data: encoded}
		u.OfDocument = doc
	case isText(d) && textOf(string(d.Bytes)) != "":
		doc.Source.OfText = &sdk.BetaPlainTextSourceParam{Data: string(d.Bytes)}
		u.OfDocument = doc
	default:
		note := "(" + fileName(d) + ", which cannot be shown here"
		if d.URL != "" {
			note += ": " + d.URL
		}
		u.OfText = &sdk.BetaTextBlockParam{Text: note + ")"}
	}
	return u
}

// isText reports whether a file can be shown as text.
func isText(d *message.Data) bool {
	return (strings.HasPrefix(d.MediaType, "text/") || d.MediaType == "application/json") && utf8.Valid(d.Bytes)
}

// fileName returns what a file is called in text: its type and its name.
func fileName(d *message.Data) string {
	kind := cmp.Or(d.MediaType, "file")
	if d.Name == "" {
		return kind
	}
	return fmt.Sprintf("%s %q", kind, d.Name)
}
