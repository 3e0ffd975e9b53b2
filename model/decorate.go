package model

// As returns the first model that implements C in the chain that starts at m
// and goes on through Unwrap() Model methods, like [tool.As]. Use it for
// [Named] and [Windowed], so that a decorator hides neither.
func As[C any](m Model) (C, bool) {
	for range 100 { // as for tools: a model that unwraps to itself has an end
		if c, ok := m.(C); ok {
			return c, true
		}
		u, ok := m.(interface{ Unwrap() Model })
		if !ok {
			break
		}
		m = u.Unwrap()
	}
	var none C
	return none, false
}
