package mcpgateway

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/tool"
)

// The limits for the texts of an upstream server, in bytes. The longest description of a tool in eleven real
// servers has 1,729 bytes.
const (
	maxDescription  = 8 << 10
	maxInstructions = 8 << 10
	maxText         = 4 << 10 // of a description within a schema, or of an error
	maxLine         = 300     // of a title, a name, or a group's description
)

// clean returns a text of at most limit bytes without invisible characters, which could hide instructions; see
// [visible.Text].
func clean(s string, limit int) string {
	s = visible.Text(strings.ToValidUTF8(s, ""))
	if len(s) <= limit {
		return s
	}
	const mark = "… [cut]"
	n := limit - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// cleanInfo returns the definition of a tool with clean texts.
func cleanInfo(info tool.Info) tool.Info {
	info.Title = strings.ReplaceAll(clean(info.Title, maxLine), "\n", " ")
	info.Description = clean(info.Description, maxDescription)
	info.Input, info.Output = cleanJSON(info.Input), cleanJSON(info.Output)
	info.Annotations = cleanJSON(info.Annotations)
	return info
}

// cleanJSON returns JSON, such as a JSON Schema, with clean titles and descriptions. Names and values are
// not changed, because the server compares them.
func cleanJSON(data json.RawMessage) json.RawMessage {
	return visible.JSON(data, func(key, text string) string {
		if visible.IsWords(key) {
			return clean(text, maxText)
		}
		return text
	})
}
