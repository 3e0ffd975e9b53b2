package strictjson

import "encoding/json"

// Merge returns an object with the members of a and b; of those with the same name, b's. If one of them is empty it
// returns the other; if one is not an object it returns b. It changes neither.
func Merge(a, b json.RawMessage) json.RawMessage {
	if len(a) == 0 || len(b) == 0 {
		return append(a[:len(a):len(a)], b...)
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(a, &m) != nil || json.Unmarshal(b, &m) != nil {
		return b
	}
	out, _ := json.Marshal(m) // cannot fail: the members are valid JSON
	return out
}
