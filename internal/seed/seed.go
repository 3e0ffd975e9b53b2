// Package seed makes property tests draw the same values each time, so that they do not fail by chance and
// failures can be repeated. Tests import it for this effect only. To draw other values use `make explore`, or
//
//	go test ./agent -rapid.seed=0 -rapid.checks=50000
package seed

import (
	"flag"

	_ "pgregory.net/rapid" // defines the flag
)

func init() {
	if err := flag.Set("rapid.seed", "1"); err != nil { // the command line overrides it
		panic(err)
	}
}
