package strictjson

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		` { "a" : [ 1 , "b c" ] } `:    `{"a":[1,"b c"]}`,
		`{"a":"\u003cb\u003E \u0026"}`: `{"a":"<b> &"}`,
		`{"a":"\\u003c\\\u003c"}`:      `{"a":"\\u003c\\<"}`,
		`{"a":"\u00e9\n\u0022"}`:       `{"a":"\u00e9\n\u0022"}`,
		`{"a":"\u2028\u2029"}`:         "{\"a\":\"\u2028\u2029\"}",
		`{"a": `:                       `{"a": `,
	} {
		if got := string(Plain(json.RawMessage(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := map[string]string{rapid.String().Draw(t, "name"): rapid.StringOf(rapid.SampledFrom([]rune("<>&\\\"u03ceE26 \n\u2028é"))).Draw(t, "text")}
		data, err := json.MarshalIndent(v, "", rapid.SampledFrom([]string{"", " "}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		plain := Plain(data)
		again, err := json.Marshal(plain) // as a member of a larger value
		if err != nil || string(Plain(again)) != string(plain) {
			t.Fatalf("%s is %s once it was stored, %v", plain, Plain(again), err)
		}
		var back map[string]string
		if err := json.Unmarshal(plain, &back); err != nil || len(back) != 1 {
			t.Fatalf("%s: %v", plain, err)
		}
		for k := range v {
			if back[k] != v[k] {
				t.Fatalf("%q became %q", v, back)
			}
		}
	})
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		` {"b":1.50,"a":["\u003c"]} `: `{"a":["<"],"b":1.50}`,
		`{"a":1} {"a":2}`:             "",
		`{"a":1}}`:                    "",
		`{"a":`:                       "",
	} {
		if got := string(Canonical([]byte(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
