package anthropic

import (
	"encoding/base64"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// imageTypes are the types of images that the API accepts.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// fileBlock returns a file's block, or a note if the API has no block for its type.
func fileBlock(d *message.Data) (u sdk.BetaContentBlockParamUnion) {
	isWebURL := strings.HasPrefix(d.URL, "https://") || strings.HasPrefix(d.URL, "http://")
	encoded := base64.StdEncoding.EncodeToString(d.Bytes)
	doc := &sdk.BetaRequestDocumentBlockParam{}
	if d.Name != "" {
		doc.Title = sdk.String(d.Name)
	}
	switch {
	case slices.Contains(imageTypes, d.MediaType) && isWebURL:
		u.OfImage = &sdk.BetaImageBlockParam{Source: sdk.BetaImageBlockParamSourceUnion{OfURL: &sdk.BetaURLImageSourceParam{URL: d.URL}}}
	case slices.Contains(imageTypes, d.MediaType) && encoded != "":
		u.OfImage = &sdk.BetaImageBlockParam{Source: sdk.BetaImageBlockParamSourceUnion{OfBase64: &sdk.BetaBase64ImageSourceParam{
			MediaType: sdk.BetaBase64ImageSourceMediaType(d.MediaType), Data: encoded}}}
	case d.MediaType == "application/pdf" && isWebURL:
		doc.Source.OfURL = &sdk.BetaURLPDFSourceParam{URL: d.URL}
		u.OfDocument = doc
	case d.MediaType == "application/pdf" && encoded != "":
		doc.Source.OfBase64 = &sdk.BetaBase64PDFSourceParam{Data: encoded}
		u.OfDocument = doc
	case provider.IsText(d) && textOf(string(d.Bytes)) != "":
		doc.Source.OfText = &sdk.BetaPlainTextSourceParam{Data: string(d.Bytes)}
		u.OfDocument = doc
	default:
		u.OfText = &sdk.BetaTextBlockParam{Text: provider.FileNote(d)}
	}
	return u
}
