package strictjson

import (
	"bytes"
	"encoding/json"
)

// addedEscapes are the escapes that encoding/json adds.
var addedEscapes = map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&", `\u2028`: "\u2028", `\u2029`: "\u2029"}

// Plain returns JSON without space between its values, and without escapes of <, >, &, U+2028 and U+2029. Encoding it as
// a json.RawMessage, which removes such space and adds such escapes, and calling Plain again returns the same bytes.
// Data that is not JSON is returned unchanged.
func Plain(data json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(data, " \t\r\n\\") {
		return data
	}
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return data
	}
	rest := b.Bytes()
	out := make([]byte, 0, len(rest))
	for {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			return append(out, rest...)
		}
		n := 2 // bytes of the escape
		if rest[i+1] == 'u' {
			n = 6
		}
		out = append(out, rest[:i]...)
		if text, ok := addedEscapes[string(bytes.ToLower(rest[i:i+n]))]; ok {
			out = append(out, text...)
		} else {
			out = append(out, rest[i:i+n]...)
		}
		rest = rest[i+n:]
	}
}
