// Package lazy defers the initialisation of package variables that take time to make, so
// that they do not slow down the start of programs that never use them.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that returns the regular expression. Its first call compiles
// the pattern and panics if it is invalid.
func Regexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
