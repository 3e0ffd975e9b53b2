package redact

import "encoding/json"

// stringEnd returns where the JSON string that begins at i ends: at the first quote
// that no backslash stands before, or with data if there is none.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// jsonString returns a JSON string as it was and as it is without secrets. They
// are looked for in what it stands for: an escape sequence can hide any letter.
func (r *Redactor) jsonString(raw []byte) (was, now string) {
	was = string(raw)
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return was, `""` // not JSON: nobody knows what it stands for
	}
	clean := r.Text(text)
	if clean == text {
		return was, was
	}
	data, err := json.Marshal(clean)
	if err != nil {
		return was, `""`
	}
	return was, string(data)
}
