package mcpgateway

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/tool"
)

// How long the words of an upstream server may be, in bytes. The longest
// description of a tool in eleven real servers has 1,729.
const (
	maxDescription  = 8 << 10
	maxInstructions = 8 << 10
	maxWords        = 4 << 10 // of a description within a schema
	maxLine         = 300     // of a title, or of what is said of a group
	maxGroupName    = 64
)

// clean returns text that shows all that it says, see [visible.Text]: what is hidden
// could hold instructions. What is longer than limit bytes is cut off.
func clean(s string, limit int) string {
	s = visible.Text(strings.ToValidUTF8(s, ""))
	if len(s) <= limit {
		return s
	}
	const more = "… [cut]"
	n := limit - len(more)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + more
}

// cleanInfo returns a description of a tool with clean words.
func cleanInfo(info tool.Info) tool.Info {
	info.Title = strings.ReplaceAll(clean(info.Title, maxLine), "\n", " ")
	info.Description = clean(info.Description, maxDescription)
	info.Input, info.Output = cleanSchema(info.Input), cleanSchema(info.Output)
	info.Annotations = cleanSchema(info.Annotations)
	return info
}

// cleanSchema returns a JSON Schema, or other JSON, with clean titles and
// descriptions. Nothing else changes, down to the order and the digits: names and
// values have to stay what the server takes.
func cleanSchema(schema json.RawMessage) json.RawMessage {
	var out []byte // a copy with changes, from the first on
	kept := 0      // how much of schema is in out
	words := false // the last key was a description's
	for i := 0; i < len(schema); i++ {
		if schema[i] != '"' {
			words = words && (schema[i] == ':' || schema[i] <= ' ')
			continue
		}
		end := endOfString(schema, i)
		literal := schema[i:end]
		switch {
		case followedByColon(schema, end):
			words = isWords(literal)
		case words:
			words = false
			if better := cleanLiteral(literal); better != nil {
				out = append(append(out, schema[kept:i]...), better...)
				kept = end
			}
		}
		i = end - 1
	}
	if out == nil {
		return schema
	}
	return append(out, schema[kept:]...)
}

// isWords reports whether a key is one whose value people or models read. A key may
// be written with escapes, which every reader of JSON takes out again.
func isWords(literal []byte) bool {
	key := string(literal[1 : len(literal)-1])
	if strings.Contains(key, `\`) && json.Unmarshal(literal, &key) != nil {
		return false
	}
	return key == "description" || key == "title" || key == "$comment"
}

// endOfString returns the offset behind the string that starts at i of valid JSON.
func endOfString(data []byte, i int) int {
	for i++; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(data))
}

func followedByColon(data []byte, i int) bool {
	for i < len(data) && data[i] <= ' ' {
		i++
	}
	return i < len(data) && data[i] == ':'
}

// cleanLiteral returns a JSON string with clean text, or nil if it is clean.
func cleanLiteral(literal []byte) []byte {
	var s string
	if json.Unmarshal(literal, &s) != nil {
		return nil
	}
	better := clean(s, maxWords)
	if better == s {
		return nil
	}
	out, err := json.Marshal(better)
	if err != nil {
		return nil
	}
	return out
}
