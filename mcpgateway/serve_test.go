package mcpgateway

import (
	"reflect"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// TestServeOptions checks that each field of the server's configuration can be set, except those that the
// gateway sets itself.
func TestServeOptions(t *testing.T) {
	server := reflect.TypeFor[mcpserver.Config]()
	for i := range server.NumField() {
		name := server.Field(i).Name
		if !server.Field(i).IsExported() || name == "Toolkit" {
			continue
		}
		var opts ServeOptions
		field := reflect.ValueOf(&opts).Elem().FieldByName(name)
		if !field.IsValid() {
			t.Errorf("ServeOptions has no field %s", name)
			continue
		}
		switch v := field; v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Int:
			v.SetInt(1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Func:
			v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		case reflect.Struct:
			v.Field(0).SetInt(1)
		}
		if got := reflect.ValueOf(opts.config()).FieldByName(name); field.IsZero() || got.IsZero() {
			t.Errorf("ServeOptions.%s is not passed on", name)
		}
	}
}
