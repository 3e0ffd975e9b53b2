package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// rows reads a file of JSON lines.
func rows[T any](t *testing.T, file string) (out []T) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var row T
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, row)
	}
	return out
}

// fits reports whether err contains want, or is nil if want is empty.
func fits(err error, want string) bool {
	if want == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), want)
}

func TestCheck(t *testing.T) {
	for _, row := range rows[struct {
		Why, Error, Site string
		Q                Elicitation
		Warn             []string
	}](t, "questions.jsonl") {
		if err := row.Q.Check(); !fits(err, row.Error) {
			t.Errorf("%s: error %v, want %q", row.Why, err, row.Error)
		}
		if row.Error != "" {
			continue
		}
		warnings := row.Q.Warnings()
		if len(warnings) != len(row.Warn) || row.Q.Site() != row.Site {
			t.Errorf("%s: site %q, warnings %q; want %q, %q", row.Why, row.Q.Site(), warnings, row.Site, row.Warn)
			continue
		}
		for i, w := range row.Warn {
			if !strings.Contains(warnings[i], w) {
				t.Errorf("%s: warning %q, want %q", row.Why, warnings[i], w)
			}
		}
	}
}

func TestAccept(t *testing.T) {
	for _, row := range rows[struct {
		Why, Error    string
		Schema        json.RawMessage
		Content, Want map[string]any
	}](t, "answers.jsonl") {
		q := Elicitation{Schema: row.Schema}
		if err := q.Check(); err != nil {
			t.Fatalf("%s: %v", row.Why, err)
		}
		got, err := q.Accept(row.Content)
		if !fits(err, row.Error) || err == nil && (got.Action != ActionAccept || !reflect.DeepEqual(got.Content, row.Want)) {
			t.Errorf("%s: %+v, error %v; want %v, %q", row.Why, got, err, row.Want, row.Error)
		}
		if err != nil && got.Content != nil {
			t.Errorf("%s: a refused answer has content: %v", row.Why, got.Content)
		}
	}
	page := Elicitation{URL: "https://example.com/"}
	if a, err := page.Accept(nil); err != nil || a.Action != ActionAccept || a.Content != nil {
		t.Errorf("page: %+v, %v", a, err)
	}
	if _, err := page.Accept(map[string]any{"password": "x"}); err == nil {
		t.Error("the content of a page must not be sent to the server")
	}
}

// TestLimits has questions that are too large.
func TestLimits(t *testing.T) {
	many := map[string]any{}
	for i := range maxFields + 1 {
		many[fmt.Sprint("f", i)] = map[string]string{"type": "string"}
	}
	fields, err := json.Marshal(map[string]any{"type": "object", "properties": many})
	if err != nil {
		t.Fatal(err)
	}
	long := json.RawMessage(`{"type":"object","title":"` + strings.Repeat("x", maxSchema) + `"}`)
	for _, row := range []struct {
		q    Elicitation
		want string
	}{
		{Elicitation{Schema: fields}, "65 fields"},
		{Elicitation{Schema: long}, "65536 are allowed"},
		{Elicitation{URL: "https://example.com/" + strings.Repeat("x", maxURL)}, "2048 are allowed"},
	} {
		if err := row.q.Check(); !fits(err, row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}

// FuzzQuestion checks that an accepted answer has only the fields of the question, and is accepted again.
func FuzzQuestion(f *testing.F) {
	for _, row := range []struct{ schema, content string }{
		{`{"type":"object","properties":{"a":{"type":"string","minLength":2}},"required":["a"]}`, `{"a":"xy"}`},
		{`{"type":"object","properties":{"n":{"type":"integer","default":3,"maximum":2}}}`, `{}`},
		{`{"type":"object","properties":{"c":{"type":"array","items":{"anyOf":[{"const":"x"}]}}},"additionalProperties":false}`, `{"c":["x"]}`},
		{`{"type":"object","properties":{"p":{"type":"string","pattern":"(a+)+$","title":7}}}`, `{"p":"aaaa!"}`},
		{`{"type":"object","properties":null,"$ref":"file:///etc/passwd","allOf":[{"$ref":"#"}]}`, `{"x":1}`},
	} {
		f.Add(row.schema, row.content)
	}
	f.Fuzz(func(t *testing.T, schema, content string) {
		q := Elicitation{Message: content, Schema: json.RawMessage(schema)}.Clean()
		var filled map[string]any
		if q.Check() != nil || json.Unmarshal([]byte(content), &filled) != nil {
			return
		}
		_ = q.Warnings()
		a, err := q.Accept(filled)
		if err != nil {
			return
		}
		var s struct{ Properties map[string]json.RawMessage }
		if err := json.Unmarshal(q.Schema, &s); err != nil {
			t.Fatal(err)
		}
		for name := range a.Content {
			if s.Properties[name] == nil {
				t.Errorf("%q was not asked for by %s", name, schema)
			}
		}
		if again, err := q.Accept(a.Content); err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("an accepted answer is refused: %v", err)
		}
	})
}

func TestClean(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{"two\nlines\tand a tab", "two\nlines\tand a tab"},
		{"\x1b[2Jclear", "[2Jclear"},
		{"a\rb\x00c\u009bd", "abcd"},
		{"left\u202eright\u2066\u200b", "leftright"},
		{"bad\xff utf", "bad utf"},
		{"one\u2028two\u2029three", "one two three"},
	} {
		if got := (Elicitation{Message: row.in}).Clean().Message; got != row.want {
			t.Errorf("%q: %q, want %q", row.in, got, row.want)
		}
	}
	huge := Elicitation{Message: strings.Repeat("é", 1<<20)}.Clean().Message
	if len(huge) > maxMessage+20 || !strings.HasSuffix(huge, "[cut]") || !utf8.ValidString(huge) {
		t.Errorf("%d bytes, ending in %q", len(huge), huge[len(huge)-10:])
	}
}
