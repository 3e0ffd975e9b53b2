// Package lazy is for package variables that take time to make: a program that
// imports a package and does not come to use them must not wait for it to start.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that returns the regular expression, which is compiled
// by the first call. A pattern that cannot be compiled panics there.
func Regexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
