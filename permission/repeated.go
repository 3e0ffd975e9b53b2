package permission

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// checkRepeated returns an error if an object at any depth of data has two members with the same name: which member takes
// effect would depend on the parser. data must be valid JSON.
func checkRepeated(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	path, isRepeated := findRepeated(dec)
	if !isRepeated {
		return nil
	}
	line := 1 + bytes.Count(data[:dec.InputOffset()], []byte("\n"))
	return fmt.Errorf("line %d: %s is a duplicate key; merge the two", line, path[1:])
}

// findRepeated reads a value up to the first member whose name is repeated in its object, and returns the path to that
// member, which starts with a dot.
func findRepeated(dec *json.Decoder) (path string, isRepeated bool) {
	tok, err := dec.Token()
	if err != nil {
		return "", false
	}
	switch tok {
	case json.Delim('{'):
		seen := map[json.Token]bool{}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return "", false
			}
			if seen[name] {
				return fmt.Sprintf(".%s", name), true
			}
			seen[name] = true
			if path, isRepeated = findRepeated(dec); isRepeated {
				return fmt.Sprintf(".%s%s", name, path), true
			}
		}
		_, _ = dec.Token() // the closing bracket
	case json.Delim('['):
		for i := 0; dec.More(); i++ {
			if path, isRepeated = findRepeated(dec); isRepeated {
				return fmt.Sprintf("[%d]%s", i, path), true
			}
		}
		_, _ = dec.Token() // the closing bracket
	}
	return "", false
}
