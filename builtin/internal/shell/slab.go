package shell

// A slab allocates short slices from one array. A slice that exceeds its capacity moves out of the array and
// does not affect others.
type slab[T any] struct {
	array []T
	used  int
}

// maxKept is the length of the longest array that is reused.
const maxKept = 512

// reset frees all slices, which must not be used any longer. A large array is dropped, because most commands
// are small.
func (s *slab[T]) reset() {
	if s.used = 0; len(s.array) > maxKept {
		s.array = nil
	}
}

// take returns an empty slice with capacity for n values.
func (s *slab[T]) take(n int) []T {
	if n > len(s.array)-s.used {
		s.array, s.used = make([]T, max(n, 2*len(s.array), 8)), 0
	}
	s.used += n
	return s.array[s.used-n : s.used-n : s.used]
}

// one returns a pointer to a value, which may be an old one: the caller must set it.
func (s *slab[T]) one() *T { return &s.take(1)[:1][0] }
