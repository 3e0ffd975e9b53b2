//go:build race

package browsertest

// slow is by how much the tests may take longer with the race detector.
const slow = 5
