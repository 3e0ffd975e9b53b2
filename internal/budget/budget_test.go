package budget

import (
	"fmt"
	"testing"
)

var sink []byte

// recorder records the errors of a test.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Errorf(format string, args ...any) { r.failed += fmt.Sprintf(format, args...) }

func TestHold(t *testing.T) {
	ten := func() {
		for range 10 {
			sink = make([]byte, 1024)
		}
	}
	for _, row := range []struct {
		why  string
		want Cost
		fail bool
	}{
		{"as it is", Cost{1, 1024}, false},
		{"too many", Cost{0.1, 1024}, true},
		{"too many bytes", Cost{1, 256}, true},
		{"far too few", Cost{40, 40 << 10}, !race},
	} {
		r := &recorder{}
		Hold(r, row.want, 10, ten)
		if (r.failed != "") != row.fail {
			t.Errorf("%s: %q", row.why, r.failed)
		}
	}
	r := &recorder{}
	Hold(r, Cost{1, 10 << 10}, 1, ten)
	if r.failed == "" {
		t.Error("ten allocations instead of one are within the budget")
	}
	if n := Kept(100, func() []byte { return make([]byte, 4096) }); n < 4096 || n > 4300 {
		t.Errorf("a page takes %v bytes", n)
	}
}
