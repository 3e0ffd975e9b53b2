package redact

import "encoding/json"

// stringEnd returns the end of the JSON string that begins at i: behind its first
// unescaped quote, or the end of data if it has none.
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

// jsonString returns a JSON string unchanged, and without secrets. It
// searches the decoded text, since an escape sequence can hide any letter.
func (r *Redactor) jsonString(raw []byte) (was, now string) {
	was = string(raw)
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return was, `""` // not valid JSON, so its text cannot be searched
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
