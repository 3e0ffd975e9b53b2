// Package slab hands out values from larger pieces of memory, so that many small ones
// cost few allocations. Whoever keeps one keeps its neighbours alive with it: it is for values
// that come together and are mostly forgotten together, as the pieces of one answer are.
package slab

// The sizes of a piece, in values. Each is twice the last, so that what is short does not pay
// for what is long.
const (
	least = 4
	most  = 64
)

// Take returns a zero T that nobody else has: the next of the piece, or the first of a new one
// when it is used up. The zero slice is ready.
func Take[T any](piece *[]T) *T {
	n := len(*piece)
	if n == cap(*piece) {
		*piece = make([]T, 0, min(max(least, 2*n), most))
		n = 0
	}
	*piece = (*piece)[:n+1]
	return &(*piece)[n]
}
