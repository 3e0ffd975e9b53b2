//go:build race

package browsertest

// longSteps is how many steps a long session has. The race detector is too slow for more.
const longSteps = 500
