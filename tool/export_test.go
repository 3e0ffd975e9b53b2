package tool

import "reflect"

// FirstUse does what the first tool and the first call of a type cost: its
// schema and the validator.
func FirstUse(t reflect.Type) error {
	schema, err := reflectSchema(t, false)
	if err != nil {
		return err
	}
	return newValidator(schema).usable()
}
