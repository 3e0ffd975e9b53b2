package tool

import (
	"reflect"
	"testing"
)

type benchIn struct {
	Customer string   `json:"customer" jsonschema_description:"the customer's number"`
	Item     string   `json:"item"`
	Count    int      `json:"count" jsonschema:"minimum=1"`
	Price    float64  `json:"price,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	Express  bool     `json:"express,omitempty"`
	Address  struct {
		Street string `json:"street"`
		City   string `json:"city"`
	} `json:"address"`
}

// BenchmarkFirstNew makes what a type costs when it is first seen, to be read
// against BenchmarkNewParts.
func BenchmarkFirstNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		schema, err := reflectSchema(reflect.TypeFor[benchIn](), false)
		if err != nil {
			b.Fatal(err)
		}
		if v := newValidator(schema); v.err != nil {
			b.Fatal(v.err)
		}
	}
}
