package tool

import "reflect"

// FirstUse does what the first tool and the first call of a type cost: its
// schema and the validator.
func FirstUse(t reflect.Type) error {
	schema, err := reflectSchema(t, false)
	if err != nil {
		return err
	}
	return newValidator(schema).err
}

// MisnamedCapabilities returns the capabilities whose method is not found by the name in the table.
func MisnamedCapabilities() (out []reflect.Type) {
	for _, c := range capabilities {
		if m, ok := c.method(c.iface); !ok || m.Name != c.iface.Method(0).Name {
			out = append(out, c.iface)
		}
	}
	return out
}
