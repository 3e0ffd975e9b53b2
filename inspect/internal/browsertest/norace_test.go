//go:build !race

package browsertest

// longSteps is how many steps a long session has.
const longSteps = 5000
