package model

// As returns the first model that implements C in the chain of models that starts at m
// and continues with Unwrap() Model methods, like [tool.As]. Use it for interfaces such as
// [Named] and [Windowed], so that a decorator does not hide them.
func As[C any](m Model) (C, bool) {
	for range 100 { // a limit, as a model may unwrap to itself
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
