package tool

import (
	"encoding/json"
	"reflect"
	"testing"
)

type flatIn struct {
	Name  string  `json:"name"`
	Count int     `json:"count"`
	Small int8    `json:"small"`
	Ratio float64 `json:"ratio"`
	Sure  bool    `json:"sure"`
}

var flatInputs = []string{
	`{}`, ` { "name" : "x" , "count" : -3 , "sure" : true } `, `{"ratio":1e3,"small":127}`, `{"ratio":0.5,"sure":false}`,
	`{"name":"é","count":0}`,
}

// notFlat is left to encoding/json: what is not simple, and what is wrong.
var notFlat = []string{
	`{"name":"a\n"}`, `{"name":null}`, `{"Name":"x"}`, `{"other":1}`, `{"count":1.0}`, `{"count":1e2}`, `{"small":300}`,
	`{"count":99999999999999999999}`, `{"sure":1}`, `{"name":3}`, `{"ratio":"1"}`, `[]`, `{"count":{}}`, "{\"name\":\"\xff\"}",
	`{"count":01}`, `{"count":+1}`, `{"ratio":0x1p4}`, `{"ratio":Inf}`, `{"sure":truer}`, `{"name":"x"}{}`, `{"name":"x",}`,
}

// TestFlat holds what is read without encoding/json, and what is not, by input and by type.
func TestFlat(t *testing.T) {
	f := newFlat(reflect.TypeFor[flatIn]())
	for _, raw := range flatInputs {
		var v flatIn
		if !f.decode([]byte(raw), reflect.ValueOf(&v).Elem()) {
			t.Errorf("%s was left to encoding/json", raw)
		}
		checkFlat(t, []byte(raw))
	}
	for _, raw := range notFlat {
		var v flatIn
		if f.decode([]byte(raw), reflect.ValueOf(&v).Elem()) {
			t.Errorf("%s was read as %+v", raw, v)
		}
	}
	for _, v := range []any{
		struct{ A []int }{}, struct{ A json.Number }{}, struct {
			A int `json:",string"`
		}{}, struct{ flatIn }{}, json.RawMessage(nil),
	} {
		if newFlat(reflect.TypeOf(v)) != nil {
			t.Errorf("%T is taken to be flat", v)
		}
	}
}

// checkFlat fails if JSON that is read means something else to encoding/json.
func checkFlat(t *testing.T, raw []byte) {
	got, want := flatIn{Name: "old", Count: 7}, flatIn{Name: "old", Count: 7}
	if !newFlat(reflect.TypeFor[flatIn]()).decode(raw, reflect.ValueOf(&got).Elem()) {
		return
	}
	if !json.Valid(raw) { // arguments are
		return
	}
	if err := json.Unmarshal(raw, &want); err != nil || got != want {
		t.Errorf("%s: got %+v, encoding/json %+v, %v", raw, got, want, err)
	}
}

// FuzzFlat compares with encoding/json whatever is read.
func FuzzFlat(f *testing.F) {
	for _, raw := range append(flatInputs, notFlat...) {
		f.Add([]byte(raw))
	}
	f.Fuzz(checkFlat)
}
