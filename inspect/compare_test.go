package inspect

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestAlign puts rows that say the same side by side; no row is lost, and their order stays.
func TestAlign(t *testing.T) {
	texts := func(list []row) (out string) {
		for _, r := range list {
			out += r.Kind[:1] + r.Text + " "
		}
		return out
	}
	rows := func(s string) (out []row) {
		for part := range strings.FieldsSeq(s) {
			kind := kindModel
			if part[0] == 't' {
				kind = kindTool
			}
			out = append(out, row{Kind: kind, Text: part[1:]})
		}
		return out
	}
	for _, c := range []struct{ a, b, want string }{
		{"m1 t2 m3", "m1 t2 m3", "== == =="},
		{"m1 t2 m3", "m1 m3", "== a =="},
		{"m1 t2 m3", "m1 t4 m3", "== ab =="},
		{"m1", "m1 t2 t3", "== b b"},
		{"", "t1", "b"},
	} {
		got := []string{}
		for _, p := range align(rows(c.a), rows(c.b)) {
			s := ""
			if p.A != nil {
				s += "a"
			}
			if p.B != nil {
				s += "b"
			}
			if p.Same {
				s = "=="
			}
			got = append(got, s)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%q and %q: %s, want %s", c.a, c.b, s, c.want)
		}
	}
	lists := []string{""}
	for i := 0; len(lists) < 150; i++ { // all short ones
		for _, next := range []string{"m1 ", "m2 ", "t1 "} {
			lists = append(lists, lists[i]+next)
		}
	}
	for _, one := range lists {
		for _, other := range lists {
			a, b := rows(one), rows(other)
			var left, right []row
			for _, p := range align(a, b) {
				if p.A != nil {
					left = append(left, *p.A)
				}
				if p.B != nil {
					right = append(right, *p.B)
				}
			}
			if texts(left) != texts(a) || texts(right) != texts(b) {
				t.Fatalf("%s and %s became %s and %s", texts(a), texts(b), texts(left), texts(right))
			}
		}
	}
}

func TestInputText(t *testing.T) {
	for input, want := range map[string]string{
		`{"command":"a \u0026\u0026 b \u003e c"}`: `{"command":"a && b > c"}`,
		`{"command":"echo \\u0026"}`:              `{"command":"echo \\u0026"}`,
	} {
		if got := inputText(json.RawMessage(input)); got != want {
			t.Errorf("%s: %s", input, got)
		}
	}
}

// TestPreview marks a text that goes on.
func TestPreview(t *testing.T) {
	for text, want := range map[string]string{
		"a  b\n c":                                "a b c",
		"a" + strings.Repeat(" ", 1000) + "b":     "a …",
		strings.Repeat(" ", 4*maxPreview-1) + "é": "…",
		strings.Repeat("x", maxPreview+1):         strings.Repeat("x", maxPreview) + "…",
	} {
		if got := preview(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
