package mcpgateway

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// anyone is an authenticator.
type anyone struct{}

func (anyone) Authenticate(*http.Request) (mcpserver.Identity, error) {
	return mcpserver.Identity{Name: "x"}, nil
}

// TestServeOptions checks that each field of the server's configuration can be set, except those that the
// gateway sets itself.
func TestServeOptions(t *testing.T) {
	server := reflect.TypeFor[mcpserver.Config]()
	for i := range server.NumField() {
		name := server.Field(i).Name
		if !server.Field(i).IsExported() || name == "Toolkit" || name == "Listed" {
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
		case reflect.Int, reflect.Int64:
			v.SetInt(1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Func:
			v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		case reflect.Struct:
			v.Field(0).SetInt(1)
		case reflect.Interface:
			v.Set(reflect.ValueOf(anyone{}))
		}
		if got := reflect.ValueOf(opts.config()).FieldByName(name); field.IsZero() || got.IsZero() {
			t.Errorf("ServeOptions.%s is not passed on", name)
		}
	}
}
