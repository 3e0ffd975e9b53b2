package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

type params struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      struct {
		Token string `json:"progressToken"`
	} `json:"_meta"`
	Inputs map[string]struct {
		Method string `json:"method"`
	} `json:"inputRequests"`
	Parts []struct {
		Text *string `json:"text"`
	} `json:"parts"`
}

func TestMessage(t *testing.T) {
	many := strings.Builder{}
	for i := range 30 {
		fmt.Fprintf(&many, `"k%d":%d,`, i, i)
	}
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"a":{"a":1},"b":[{"a":1},{"a":1}],"A":1}}}`: "",
		`{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`:                                                                         `"method" occurs twice`,
		`{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}`:                                                                         `"Method" must be written "method"`,
		`{"jsonrpc":"2.0","id":1,"METHOD":"b"}`:                                                                                      `"METHOD" must be written "method"`,
		`{"jsonrpc":"2.0","id":1,"paramſ":{}}`:                                                                                       `"paramſ" must be written "params"`,
		`{"id":1,"\u006dethod":"a","method":"b"}`:                                                                                    `"method" occurs twice`,
		`{"id":1,"error":{"code":1,"Message":"b"}}`:                                                                                  `"Message" must be written "message"`,
		`{"id":1,"error":{"code":1,"data":{"Message":1}}}`:                                                                           "",
		`{"id":1,"params":{"arguments":{"a":[{"x":{"k":1, "k" :2}}]}}}`:                                                              `"k" occurs twice`,
		`{"id":1,"params":{"Error":{"Code":1}}}`:                                                                                     "",
		`{"id":1,"params":{` + many.String() + `"k7":1}}`:                                                                            `"k7" occurs twice`,
		`{"id":1,"params":{` + many.String() + `"z":1,"y":2,"y":1}}`:                                                                 `"y" occurs twice`,
		`{"id":1,"params":{` + many.String() + `"z":{"k1":1}}}`:                                                                      "",
		"{\"id\":1,\"params\":{\"\xff\":1,\"\xfe\":2}}":                                                                              "occurs twice",
		`{"id":1,"params":{"a":"\"b\":","c":"{\"d\":1,\"d\":1}"}}`:                                                                   "",
		`[{"method":"a"},{"method":"b"}]`:                                                                                            "",
		`{"id":1,"Method":{}`:                                                                                                        `"Method" must be written "method"`,
		`{"jsonrpc":"2.0","id":1,"method":"a","result":{}}`:                                                                          "not two",
		`{"jsonrpc":"2.0","id":1,"error":{"code":1},"method":"a"}`:                                                                   "not two",
		`{"jsonrpc":"2.0","id":1,"result":{"method":"b"},"error":{"code":1}}`:                                                        "not two",
		`{"jsonrpc":"2.0","id":1,"result":{"error":1},"error": null}`:                                                                "",
		`[{"result":1},{"error":2}]`:                                                                                                 "",
		`}}{{"a"`:                                                                                                                    "",
		``:                                                                                                                           "",
		`"a`:                                                                                                                         "",
		`{"a\`:                                                                                                                       "",
	} {
		if _, err := Message([]byte(text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestHead checks the members of messages. Some clients write null for a member that is absent.
func TestHead(t *testing.T) {
	for text, want := range map[string]string{
		`{"id":1,"method":"a"}`:                                     "1 true",
		`{"method":"a" , "id" : "b" }`:                              `"b" true`,
		`{"method":"a"}`:                                            " true",
		`{"id":1,"method":null,"result":{"method":"a","id":2}}`:     "1 false",
		`{"id":{"id":[1]},"method": null,"result":null,"error":{}}`: `{"id":[1]} false`,
	} {
		head, err := Message([]byte(text))
		if got := fmt.Sprintf("%s %v", head.ID, head.Method); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestUnmarshal(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"a","arguments":{"Name":1,"_Meta":2},"extra":{"Name":1}}`: "",
		`{"argumentſ":{}}`:                `"argumentſ" must be written "arguments"`,
		`{"Name":"a"}`:                    `"Name" must be written "name"`,
		`{"_meta":{"ProgressToken":"1"}}`: `"ProgressToken" must be written "progressToken"`,
		`{"inputRequests":{"Method":{"method":"a"},"b":{"METHOD":"a"}}}`:   `"METHOD" must be written "method"`,
		`{"parts":[{"text":"a"},null,{"Text":"a"}]}`:                       `"Text" must be written "text"`,
		`{"parts":[{"text":"a"},{},{"x":[1,{"Text":2}]}] , "name" : null}`: "",
		`[]`:             "cannot unmarshal",
		`{"name"`:        "unexpected end",
		`{"name":1}`:     "cannot unmarshal",
		`{"parts":[,`:    "invalid character",
		`{"parts":{}}`:   "cannot unmarshal",
		` {"name":"x"} `: "",
	} {
		var p params
		if err := Unmarshal([]byte(text), &p); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// twice finds duplicate members in a slow way.
func twice(d *json.Decoder) (bool, error) {
	tok, err := d.Token()
	if err != nil {
		return false, err
	}
	open, ok := tok.(json.Delim)
	if !ok {
		return false, nil
	}
	seen, found := map[string]bool{}, false
	for d.More() {
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return false, err
			}
			found = found || seen[name.(string)]
			seen[name.(string)] = true
		}
		within, err := twice(d)
		if err != nil {
			return false, err
		}
		found = found || within
	}
	_, err = d.Token()
	return found, err
}

// FuzzStrict compares both checks with slower ones on valid JSON, and checks that invalid
// JSON is not accepted.
func FuzzStrict(f *testing.F) {
	for _, seed := range []string{`{"a":1,"a":2}`, `{"name":"x","Name":"y"}`, `[{"a":[{"b":1}]},{"a":{"a":1}}]`, `{"parts":[{"text":"a"}],"inputRequests":{"x":{"method":"y"}}}`,
		`{"a\u0062":1,"ab":2}`, `{"parts":[{"tEXT":"a"}]}`, `{"error":{"code":1,"Code":2}}`, "{\"\xff\":1,\"\xfe\":1}", `{"_meta":{"progreſſToken":1}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := Members(data)
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		want, broken := twice(d)
		if _, more := d.Token(); broken != nil || more != io.EOF || !json.Valid(data) {
			_, _ = Message(data)
			var p params
			if Unmarshal(data, &p) == nil {
				t.Fatalf("%q was accepted", data)
			}
			return
		}
		if want != (err != nil) {
			t.Fatalf("%q: %v, want %t", data, err, want)
		}
		var strict, loose params
		if Unmarshal(data, &strict) != nil {
			return
		}
		if err := json.Unmarshal(data, &loose); err != nil || !reflect.DeepEqual(strict, loose) {
			t.Fatalf("%q: %+v, want %+v %v", data, strict, loose, err)
		}
		var top map[string]json.RawMessage
		if json.Unmarshal(data, &top) == nil {
			for name := range top {
				for _, known := range []string{"name", "arguments", "_meta", "inputRequests", "parts"} {
					if name != known && strings.EqualFold(name, known) {
						t.Fatalf("%q: %q was accepted as %q", data, name, known)
					}
				}
			}
		}
	})
}

// BenchmarkUsual reads a usual message, as a server does, with the checks and without.
func BenchmarkUsual(b *testing.B) {
	msg := []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"files__read_text_file","arguments":{"path":"/home/me/project/README.md","head":100,"text":"` +
		strings.Repeat("x", 200) + `"},"_meta":{"progressToken":"p17"}}}`)
	type envelope struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params"`
	}
	for name, fns := range map[string][2]func([]byte, any) error{"loose": {json.Unmarshal, json.Unmarshal},
		"strict": {func(data []byte, v any) error {
			if _, err := Message(data); err != nil {
				return err
			}
			return json.Unmarshal(data, v)
		}, Unmarshal}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var m envelope
				var p params
				if fns[0](msg, &m) != nil || fns[1](m.Params, &p) != nil {
					b.Fatal("it is refused")
				}
			}
		})
	}
}
