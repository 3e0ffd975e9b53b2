package strictjson

import "encoding/json"

// Merge returns the members of two JSON objects, those of b winning. If one is empty it is the other; if
// either is not an object it is b. Neither is changed.
func Merge(a, b json.RawMessage) json.RawMessage {
	if len(a) == 0 || len(b) == 0 {
		return append(a[:len(a):len(a)], b...)
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(a, &m) != nil || json.Unmarshal(b, &m) != nil {
		return b
	}
	out, _ := json.Marshal(m) // of members that were JSON
	return out
}
