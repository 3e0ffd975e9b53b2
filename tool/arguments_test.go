package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/tool"
)

// TestOddSchemas has schemas that servers send: a tool with an odd but valid one can be called, and an invalid
// one is an error.
func TestOddSchemas(t *testing.T) {
	for _, row := range []struct {
		name, schema string
		good, bad    string // arguments; "" for none
	}{
		{"no schema", ``, `{"a":1}`, `[]`},
		{"true", `true`, `{"a":1}`, `3`},
		{"false", `false`, ``, `{}`},
		{"unknown dialect", `{"$schema":"https://example.org/my-dialect","type":"object","required":["a"]}`, `{"a":1}`, `{}`},
		{"draft 7", `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/definitions/n"}}}`, `{"a":1}`, `{"a":{}}`},
		{"draft 7 without $schema", `{"properties":{"a":{"type":"array","items":[{"type":"integer"},{"type":"boolean"}]}}}`, `{"a":[1,true]}`, `{"a":[true,1]}`},
		{"draft 4 without $schema", `{"properties":{"a":{"type":"integer","minimum":1,"exclusiveMinimum":true}}}`, `{"a":2}`, `{"a":1}`},
		{"a regular expression of JavaScript", `{"properties":{"a":{"type":"string","pattern":"^(?!x).*$"},"b":{"type":"string","pattern":"^y"}}}`, `{"a":"x","b":"y"}`, `{"b":"x"}`},
		{"pattern properties of JavaScript", `{"patternProperties":{"^(?!x)":{"type":"integer"}},"additionalProperties":false}`, `{"x":1}`, ``},
		{"a property called pattern", `{"properties":{"pattern":{"type":"string"},"properties":{"type":"integer"}},"required":["pattern"]}`, `{"pattern":"(?!"}`, `{}`},
		{"an id", `{"$id":"https://example.org/a","$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n"}}}`, `{"a":1}`, `{"a":[]}`},
		{"an anchor", `{"$defs":{"n":{"$anchor":"title","type":"integer"}},"title":"x","properties":{"a":{"$ref":"#title"}}}`, `{"a":1}`, `{"a":[]}`},
		{"recursion", `{"properties":{"kids":{"type":"array","items":{"$ref":"#"}}},"additionalProperties":false}`, `{"kids":[{"kids":[]}]}`, `{"kids":[{"x":1}]}`},
		{"anyOf", `{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`, `{"a":null}`, `{"a":"x"}`},
		{"nullable type", `{"properties":{"a":{"type":["integer","null"]}}}`, `{"a":null}`, `{"a":"x"}`},
		{"const and format", `{"properties":{"a":{"const":1},"d":{"format":"date"}}}`, `{"a":1,"d":"2026-01-31"}`, `{"a":2,"d":"soon"}`},
		{"unknown format and keyword", `{"properties":{"a":{"type":"string","format":"color","x-ui":"big"}}}`, `{"a":"red"}`, ``},

		{"a loop of references", `{"properties":{"a":{"$ref":"#/properties/b"},"b":{"$ref":"#/properties/a"}}}`, `{}`, `{"a":1}`},
		{"a reference to itself", `{"$ref":"#"}`, ``, `{}`},
		{"a reference to nothing", `{"properties":{"a":{"$ref":"#/$defs/none"}}}`, ``, `{"a":1}`},
		{"not JSON", `{"type":`, ``, `{}`},
		{"a list", `[]`, ``, `{}`},
		{"a type that does not exist", `{"type":"objekt"}`, ``, `{}`},
		{"a number with a huge exponent", `{"properties":{"a":{"minimum":1e999999999}}}`, ``, `{"a":1}`},
		{"exponentially many alternatives", alternatives(40), ``, `{"a":1}`},
		{"too deep", strings.Repeat(`{"not":`, 5000) + `{}` + strings.Repeat(`}`, 5000), ``, `{}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			tl := bare{row.schema}
			if row.good != "" {
				if args, err := tool.Arguments(tl, json.RawMessage(row.good)); err != nil || string(args.JSON) != row.good {
					t.Errorf("%s: %s, %v", row.good, args.JSON, err)
				}
				if err := tl.Info().Check(); err != nil {
					t.Errorf("Check: %v", err)
				}
			}
			if row.bad != "" {
				_, err := tool.Arguments(tl, json.RawMessage(row.bad))
				if _, ok := errors.AsType[*tool.ArgumentError](err); !ok {
					t.Errorf("%s: error %v of type %T", row.bad, err, err)
				}
			}
		})
	}
}

// TestBoundsAreExact has bounds that become 3 or 0 as a float64, and numbers that break them.
func TestBoundsAreExact(t *testing.T) {
	for bound, number := range map[string]string{
		`"minimum":3.00000000000000000001`: "3",
		`"maximum":2.99999999999999999999`: "3",
		`"minimum":1e-400`:                 "0",
	} {
		tl := bare{`{"type":"object","properties":{"n":{"type":"number",` + bound + `}}}`}
		if args, err := tool.Arguments(tl, json.RawMessage(`{"n":`+number+`}`)); err == nil {
			t.Errorf("%s: %s is accepted", bound, args.JSON)
		}
	}
}

// alternatives returns a schema in which each definition has the next one twice.
func alternatives(n int) string {
	s := `{"properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`
	for i := range n {
		s += fmt.Sprintf(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	return s + fmt.Sprintf(`"d%d":{"type":"string"}}}`, n)
}

// TestSchemasLoadNothing tries to make the validator read a file and an
// address.
func TestSchemasLoadNothing(t *testing.T) {
	asked := false
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer srv.Close()
	secret := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"type":"object"} hunter2`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{srv.URL + "/s.json", "file://" + secret, secret, "../secret.json", "s.json"} {
		for _, schema := range []string{`{"$ref":%q}`, `{"$schema":%q}`, `{"properties":{"a":{"$ref":%q}}}`, `{"$id":%q,"properties":{"a":{"$ref":"other.json"}}}`, `{"$dynamicRef":%q}`} {
			tl := bare{fmt.Sprintf(schema, ref)}
			_, err := tool.Arguments(tl, json.RawMessage(`{"a":1}`))
			if strings.Contains(schema, "$schema") == (err != nil) {
				t.Errorf("%s: %v", tl.schema, err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the file was read: %v", err)
			}
			if check := tl.Info().Check(); (check == nil) != (err == nil) {
				t.Errorf("%s: Check says %v", tl.schema, check)
			}
		}
	}
	if asked {
		t.Error("the address was loaded")
	}
}

// TestViolations checks the wording, which decides whether a model's next
// call is correct.
func TestViolations(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"path":{"type":"string","description":"the file to read","minLength":1},
		"lines":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":9},"side":{"enum":["left","right"]}},"required":["n"],"additionalProperties":false},"maxItems":2},
		"mode":{"anyOf":[{"type":"integer"},{"type":"null"}]},
		"shape":{"oneOf":[{"type":"object","properties":{"r":{"type":"number"}},"required":["r"],"additionalProperties":false},{"type":"string"}]},
		"when":{"type":"string","format":"date-time"},
		"id":{"type":"string","pattern":"^[a-z]+$"},
		"ratio":{"type":"number","exclusiveMinimum":0,"multipleOf":0.25},
		"a.b":{"type":"integer"},
		"ids":{"type":"object","propertyNames":{"pattern":"^[0-9]+$"}},
		"data":{"type":"string","contentEncoding":"base64"}},
		"required":["path"],"additionalProperties":false}`
	for _, row := range []struct{ in, want, example string }{
		{`{}`, `- path: missing (string; the file to read)`, `{"path": "…"}`},
		{`{"path":[]}`, `- path: got an array [], want a string`, `{"path": "…"}`},
		{`{"path":""}`, `- path: got a string "", want at least 1 character`, `{"path": "…"}`},
		{`{"path":"a","lines":[{"n":0,"side":"up"},{"m":1},{"n":1}]}`,
			"- lines: got an array [{\"n\":0,\"side\":\"up\"},{\"m\":1},{\"n\":1}], want at most 2 items, not 3\n" +
				"- lines[0].n: got 0, want at least 1\n- lines[0].side: got a string \"up\", want one of \"left\", \"right\"\n" +
				"- lines[1].m: no such field; did you mean \"n\"?\n- lines[1].n: missing (integer)",
			`{"path": "a", "lines": [{"n":1}]}`},
		{`{"path":"a","mode":"x"}`, `- mode: got a string "x", want an integer or null`, `{"path": "a", "mode": 1}`},
		{`{"path":"a","shape":{"r":"wide"}}`, `- shape.r: got a string "wide", want a number`, `{"path": "a", "shape": {"r":1}}`},
		{`{"path":"a","shape":[1,2],"when":"noon"}`,
			"- shape: got an array [1,2], want an object or a string\n- when: got a string \"noon\", want the format date-time, such as 2026-01-31T09:30:00Z",
			`{"path": "a", "shape": {"r":1}, "when": "2026-01-31T09:30:00Z"}`},
		{`{"path":"a","id":"A1"}`, `- id: got a string "A1", want text that matches the pattern ^[a-z]+$`, `{"path": "…"}`},
		{`{"path":"a","ratio":0}`, `- ratio: got 0, want more than 0`, `{"path": "a", "ratio": 0.25}`},
		{`{"path":"a","ratio":0.3}`, `- ratio: got 0.3, want a multiple of 0.25`, `{"path": "a", "ratio": 0.25}`},
		{`{"path":"a","a.b":"x"}`, `- ["a.b"]: got a string "x", want an integer`, `{"path": "a", "a.b": 1}`},
		{`{"path":"a","data":"?"}`, `- data: got a string "?", want text encoded as base64`, `{"path": "a", "data": "AAAA"}`},
		{`{"path":"a","ids":{"1":1,"x":1}}`, `- the field name "x" is not allowed; it must match the pattern ^[0-9]+$`, `{"path": "…"}`},
		{`{"Path":"a"}`, "- Path: no such field; did you mean \"path\"?\n- path: missing (string; the file to read)", `{"path": "a"}`},
		{`{"path":"a","file_path":"a"}`, `- file_path: no such field; did you mean "path"?`, `{"path": "a"}`},
		{`{"path":"a","zzz":1,"mode":2}`, `- zzz: no such field; the fields are path, lines, mode, shape, when, id, ratio, a.b, ids, data`, `{"path": "a", "mode": 2}`},
		{`{"path":"` + strings.Repeat("x", 500) + `","id":0.5e1}`, `- id: got a string "0.5e1", want text that matches the pattern ^[a-z]+$`, `{"path": "…"}`},
	} {
		_, err := tool.Arguments(bare{schema}, json.RawMessage(row.in))
		full := "The arguments of bare do not fit its schema:\n" + row.want + "\nA valid example: " + row.example
		if err == nil || err.Error() != full {
			t.Errorf("%s\ngot  %v\nwant %s", row.in, err, full)
		}
	}
	const open = `{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object"},"n":{"type":"integer"}},"required":["name","arguments"]}`
	for _, row := range []struct{ in, want, example string }{
		{`{"tool":"files__remove","input":{"path":"a"}}`,
			"- arguments: missing (object)\n- input: no such field; did you mean \"arguments\"?\n- name: missing (string)\n- tool: no such field; did you mean \"name\"?",
			`{"arguments": {}, "name": "…"}`},
		{`{"Name":"a","arguments":{}}`, "- Name: no such field; did you mean \"name\"?\n- name: missing (string)", `{"arguments": {}, "name": "a"}`},
		{`{"tool":"a","server":"b","arguments":{}}`,
			"- name: missing (string)\n- server: no such field; the fields are name, arguments, n\n- tool: no such field",
			`{"arguments": {}, "name": "…"}`},
		{`{"name":"a","arguments":{},"n":"x","more":1}`, `- n: got a string "x", want an integer`, `{"name": "a", "arguments": {}, "n": 1, "more": 1}`},
	} {
		_, err := tool.Arguments(bare{open}, json.RawMessage(row.in))
		full := "The arguments of bare do not fit its schema:\n" + row.want + "\nA valid example: " + row.example
		if err == nil || err.Error() != full {
			t.Errorf("%s\ngot  %v\nwant %s", row.in, err, full)
		}
	}
	for _, endless := range []string{`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/x"}}}`, `{"type":"object","$ref":"#"}`} {
		if _, err := tool.Arguments(bare{endless}, json.RawMessage(`{"a":1}`)); err == nil || !strings.Contains(err.Error(), "the tool's schema refers to itself without an end") {
			t.Errorf("%s: %v", endless, err)
		}
	}
	many := `{"path":"a"`
	for i := range 40 {
		many += fmt.Sprintf(`,"q%d":1`, i)
	}
	_, err := tool.Arguments(bare{schema}, json.RawMessage(many+"}"))
	if err == nil || !strings.Contains(err.Error(), "- and 30 more\n") {
		t.Errorf("forty violations: %v", err)
	}
}

// TestRepairIsReported: every repair is reported.
func TestRepairIsReported(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}},"unit":{"enum":["c","f"]},"x":{"type":"string"}}}`
	args, err := tool.Arguments(bare{schema}, json.RawMessage(`{'n': '3', "tags": "a", "unit": "C", "x": null,}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(args.JSON), `{"n":3,"tags":["a"],"unit":"c"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := "other quotes; trailing comma; n: a string taken as an integer; tags: a single value taken as a list; unit: \"C\" taken as \"c\"; x: null dropped"
	if got := strings.Join(args.Repaired, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestInvalidUTF8IsReplaced(t *testing.T) {
	for _, schema := range []string{`{"type":"object"}`, `{"type":"object","properties":{"a":{"type":"string"}}}`} {
		args, err := tool.Arguments(bare{schema}, json.RawMessage("{\"a\":\"x\xff\"}"))
		if err != nil || string(args.JSON) != "{\"a\":\"x\ufffd\"}" || len(args.Repaired) != 1 {
			t.Errorf("got %q %q %v", args.JSON, args.Repaired, err)
		}
	}
}

// TestCacheIsBounded uses more schemas than the cache keeps, concurrently.
func TestCacheIsBounded(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			for i := range 700 {
				schema := fmt.Sprintf(`{"type":"object","properties":{"p%d":{"type":"integer"}},"additionalProperties":false}`, i*(g+1))
				args := fmt.Sprintf(`{"p%d":1}`, i*(g+1))
				if _, err := tool.Arguments(bare{schema}, json.RawMessage(args)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// pause and decoded have a field of each type that is decoded specially.
type (
	pause struct {
		Wait time.Duration `json:"wait"`
	}
	decoded struct {
		N     int64                    `json:"n"`
		F     float64                  `json:"f,omitempty"`
		Waits []time.Duration          `json:"waits,omitempty"`
		ByKey map[string]pause         `json:"by_key,omitempty"`
		Ptr   *pause                   `json:"ptr,omitempty"`
		Bytes []byte                   `json:"bytes,omitempty"`
		Raw   json.RawMessage          `json:"raw,omitempty"`
		When  time.Time                `json:"when,omitzero"`
		Limit int                      `json:"limit,omitempty" jsonschema:"default=10"`
		Unit  string                   `json:"unit,omitempty" jsonschema:"default=c,enum=c,enum=f"`
		Quote int                      `json:"quote,omitempty,string"`
		Any   map[string]map[int]pause `json:"any,omitempty"`
	}
)

// TestDecoding checks the value that the function gets.
func TestDecoding(t *testing.T) {
	for _, row := range []struct {
		in   string
		want decoded
	}{
		{`{"n":3}`, decoded{N: 3, Limit: 10, Unit: "c"}},
		{`{"n":3.0,"limit":1e1,"f":3.0}`, decoded{N: 3, F: 3, Limit: 10, Unit: "c"}},
		{`{"n":9223372036854775807,"limit":0,"unit":"f"}`, decoded{N: math.MaxInt64, Unit: "f"}},
		{`{"n":1,"waits":["1m30s","0"],"ptr":{"wait":"2h"},"by_key":{"k":{"wait":"5ms"}},"any":{"a":{"7":{"wait":"1s"}}}}`, decoded{
			N: 1, Limit: 10, Unit: "c", Waits: []time.Duration{90 * time.Second, 0}, Ptr: &pause{2 * time.Hour},
			ByKey: map[string]pause{"k": {5 * time.Millisecond}}, Any: map[string]map[int]pause{"a": {7: {time.Second}}}}},
		{`{"n":1,"bytes":"aGk=","raw":{"wait":"1s"},"when":"2026-01-31T09:30:00Z","quote":"5"}`, decoded{
			N: 1, Limit: 10, Unit: "c", Bytes: []byte("hi"), Raw: json.RawMessage(`{"wait":"1s"}`), Quote: 5, When: time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)}},
	} {
		var got decoded
		probe := tool.Must(tool.New("probe", "Probes.", func(_ context.Context, in decoded) (string, error) {
			got = in
			return "", nil
		}))
		res, err := call(t.Context(), probe, row.in)
		if err != nil || res.Outcome != "success" {
			t.Errorf("%s: %v %v", row.in, res, err)
		}
		if g, w := fmt.Sprintf("%+v %+v", got, got.Ptr), fmt.Sprintf("%+v %+v", row.want, row.want.Ptr); zeroPtr(g) != zeroPtr(w) {
			t.Errorf("%s\ngot  %s\nwant %s", row.in, g, w)
		}
	}
}

// TestDecodingRefuses has arguments that no Go value can hold: the function does not run, and the error
// names the field.
func TestDecodingRefuses(t *testing.T) {
	for bad, want := range map[string]string{
		`{"n":1,"waits":["soon"]}`:                 `waits[0]: got a string "soon", want a duration with its units, such as "1m30s" or "500ms"`,
		`{"n":1,"waits":[3600]}`:                   `waits[0]: got the number 3600, want a duration with its units, such as "1m30s" or "500ms"`,
		`{"n":1,"waits":[-1.5e3]}`:                 "waits[0]: got the number -1.5e3, want a duration",
		`{"n":1,"ptr":{"wait":""}}`:                `ptr.wait: got a string "", want a duration`,
		`{"n":1,"waits":["9999999999h"]}`:          "duration",
		`{"n":9223372036854775808}`:                "int64",
		`{"n":1,"quote":"x"}`:                      "quote",
		`{"n":1,"bytes":"?"}`:                      "base64",
		`{"n":1,"when":"noon"}`:                    "date-time",
		`{"n":1,"by_key":{"k":{"wait":"1 hour"}}}`: "by_key.k.wait",
	} {
		probe := tool.Must(tool.New("probe", "Probes.", func(context.Context, decoded) (string, error) {
			t.Errorf("%s reached the function", bad)
			return "", nil
		}))
		res, err := call(t.Context(), probe, bad)
		if err != nil || res.Outcome != "error" || !strings.Contains(res.Text(), want) {
			t.Errorf("%s: %v %v", bad, res, err)
		}
	}
}

// zeroPtr replaces the address of the pointer field in a printed struct.
func zeroPtr(s string) string {
	if i := strings.Index(s, "Ptr:0x"); i >= 0 {
		rest := s[i+4:]
		return s[:i] + rest[strings.IndexByte(rest, ' '):]
	}
	return s
}

var _ tool.Tool = bare{}
var _ iter.Seq2[tool.Chunk, error] = bare{}.Call(context.Background(), tool.Call{})
