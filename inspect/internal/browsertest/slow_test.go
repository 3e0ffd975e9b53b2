//go:build !race

package browsertest

// slow is by how much the tests may take longer.
const slow = 1
