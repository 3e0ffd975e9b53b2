package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// imageTypes are the types of images that the API accepts.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// fileBlock returns a file's block, or a note if the API has no block for its type.
func fileBlock(d *message.Data) json.RawMessage {
	var source wireSource
	isImage := slices.Contains(imageTypes, d.MediaType)
	isVisual := isImage || d.MediaType == "application/pdf"
	switch {
	case isVisual && isWeb(d.URL):
		source = wireSource{URL: d.URL, Type: "url"}
	case isVisual && len(d.Bytes) > 0:
		data := base64.StdEncoding.EncodeToString(d.Bytes)
		source = wireSource{Data: data, MediaType: d.MediaType, Type: "base64"}
	case provider.IsText(d) && textOf(string(d.Bytes)) != "":
		source = wireSource{Data: string(d.Bytes), MediaType: "text/plain", Type: "text"}
	default:
		return textBlock(provider.FileNote(d))
	}
	if isImage {
		return marshal(wireFile{Source: source, Type: "image"})
	}
	return marshal(wireFile{Source: source, Title: d.Name, Type: "document"})
}

func isWeb(url string) bool {
	return strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://")
}
