//go:build !race

package budget

const race = false
