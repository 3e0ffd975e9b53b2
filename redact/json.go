package redact

import "encoding/json"

// jsonString returns a JSON string as text, and without secrets. It
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
