//go:build race

package browser

// longSteps is how many steps a long session has. The race detector is too slow for more.
const longSteps = 500
