// Package seed has tests of properties draw the same values each time, so that
// a change that breaks none does not fail by chance, and a failure can be repeated.
// A test imports it for that alone. What is not drawn like this is looked for with
// `make explore`, and by hand with
//
//	go test ./agent -rapid.seed=0 -rapid.checks=50000
package seed

import (
	"flag"

	_ "pgregory.net/rapid" // whose flags must be there
)

func init() {
	if err := flag.Set("rapid.seed", "1"); err != nil { // what the command line says wins
		panic(err)
	}
}
