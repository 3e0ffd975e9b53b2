package anthropictest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestValidate checks the requests in testdata/requests.jsonl. Want is a part of the error; empty
// if the API accepts the request.
func TestValidate(t *testing.T) {
	f, err := os.Open("testdata/requests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := 0
	for lines := bufio.NewScanner(f); lines.Scan(); rows++ {
		var row struct {
			Why, Want string
			Betas     []string
			Body      json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		err := Validate(row.Body, row.Betas...)
		if (err == nil) != (row.Want == "") || !strings.Contains(fmt.Sprint(err), row.Want) {
			t.Errorf("%s: %v, want %q", row.Why, err, row.Want)
		}
	}
	if rows < 60 {
		t.Errorf("%d rows", rows)
	}
	for _, body := range []string{"", "[]", "null"} {
		if Validate([]byte(body)) == nil {
			t.Errorf("%q was accepted", body)
		}
	}
}
