package shell

// A slab hands out pieces of one array, so that what needs many short slices
// allocates once. A piece that outgrows its room moves out of the array and
// harms no other.
type slab[T any] struct {
	array []T
	used  int
}

// maxKept is how many values an array may have that is used again.
const maxKept = 512

// reset takes all pieces back: nobody may use one any longer. A large array is
// not kept for the small commands that follow.
func (s *slab[T]) reset() {
	if s.used = 0; len(s.array) > maxKept {
		s.array = nil
	}
}

// take returns an empty slice with room for n values.
func (s *slab[T]) take(n int) []T {
	if n > len(s.array)-s.used {
		s.array, s.used = make([]T, max(n, 2*len(s.array), 8)), 0
	}
	s.used += n
	return s.array[s.used-n : s.used-n : s.used]
}

// one returns a value that is to be set: it may be what it was before.
func (s *slab[T]) one() *T { return &s.take(1)[:1][0] }
