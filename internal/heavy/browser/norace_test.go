//go:build !race

package browser

// longSteps is how many steps a long session has.
const longSteps = 5000
