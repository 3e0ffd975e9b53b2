package openaitest

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestValidate checks the rows of testdata/requests.jsonl. "error" is a part of
// the message, empty for a valid request.
func TestValidate(t *testing.T) {
	f, err := os.Open("testdata/requests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := 0
	for sc := bufio.NewScanner(f); sc.Scan(); rows++ {
		var row struct {
			Why     string
			Error   string
			Allow   []string
			Request json.RawMessage
		}
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			t.Fatalf("row %d: %v", rows+1, err)
		}
		err := Validate(row.Request, row.Allow...)
		switch {
		case row.Error == "" && err != nil:
			t.Errorf("%s: rejected: %v", row.Why, err)
		case row.Error != "" && (err == nil || !strings.Contains(err.Error(), row.Error)):
			t.Errorf("%s: got %v, want an error with %q", row.Why, err, row.Error)
		}
	}
	if rows < 30 {
		t.Errorf("only %d rows", rows)
	}
}
