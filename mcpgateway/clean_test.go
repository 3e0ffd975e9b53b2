package mcpgateway

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for _, row := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 10, ""},
		{"plain\n\ttext – ü 漢字", 100, "plain\n\ttext – ü 漢字"},
		{"\x1b[31mred\x1b[0m", 100, "[31mred[0m"},
		{"a\u202eb\u2066c\u200d\ufeffd", 100, "abcd"},
		{"tag\U000e0049\U000e0067end", 100, "tagend"},
		{"bad\xff\xfeutf", 100, "badutf"},
		{"line\u2028break\r\n", 100, "line break\n"},
		{"blank\u3164\uffa0letters", 100, "blankletters"},
		{"éééééééééé", 15, "ééé… [cut]"},
	} {
		if got := clean(row.in, row.limit); got != row.want || len(got) > row.limit {
			t.Errorf("%q: %q, want %q", row.in, got, row.want)
		}
	}
}

// FuzzClean checks that a cleaned text has no invisible characters, and that cleaning it again does not change it.
func FuzzClean(f *testing.F) {
	f.Add("a\u202eb\x1b[2J\U000e0041", 20)
	f.Add("ééééééé", 12)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 16 || limit > 1<<16 {
			return
		}
		got := clean(s, limit)
		if !utf8.ValidString(got) || len(got) > limit {
			t.Fatalf("%q: %q of %d bytes", s, got, len(got))
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point) {
				t.Fatalf("%q: %q has %U", s, got, r)
			}
		}
		if again := clean(got, limit); again != got {
			t.Fatalf("%q: %q, and then %q", s, got, again)
		}
	})
}

// FuzzCleanJSON checks that JSON stays valid and that only titles and descriptions change.
func FuzzCleanJSON(f *testing.F) {
	f.Add([]byte(`{"type":"object","description":"a\u202eb","properties":{"description":{"description":"\u001b","enum":["\u200b"]}}}`))
	f.Add([]byte(`{"title" : "\"\\\u200b" , "a":["description","\u200b"]}`))
	f.Add([]byte(`{"\u0064escription":"a\u200bb","titl\u0065":"\u202e"}`))
	f.Add([]byte(`{"description":{"x":"\u200b"},"$comment":"\u200b","title":7}`))
	for _, file := range []string{"notion.json", "server-github.json"} {
		data, err := os.ReadFile(filepath.Join("../testdata/mcp_tools", file))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		got := cleanJSON(data)
		if !json.Valid(got) {
			t.Fatalf("%s became %s", data, got)
		}
		if again := cleanJSON(got); !bytes.Equal(again, got) {
			t.Fatalf("%s, and then %s", got, again)
		}
		if a, b := blank(t, data), blank(t, got); !reflect.DeepEqual(a, b) {
			t.Fatalf("%v became %v", a, b)
		}
	})
}

// blank decodes JSON and replaces the texts that cleanJSON may change by empty ones.
func blank(t *testing.T, data []byte) any {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for k, item := range v {
				if _, text := item.(string); text && (k == "description" || k == "title" || k == "$comment") {
					v[k] = ""
				}
				walk(item)
			}
		}
	}
	walk(v)
	return v
}
