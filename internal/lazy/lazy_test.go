package lazy

import "testing"

func TestRegexp(t *testing.T) {
	digits := Regexp(`^\d+$`)
	if !digits().MatchString("12") || digits().MatchString("a") {
		t.Error("wrong pattern")
	}
	if first := digits(); first != digits() {
		t.Error("it was compiled twice")
	}
	broken := Regexp(`(`) // does not panic before it is used
	defer func() {
		if recover() == nil {
			t.Error("an invalid pattern does not panic")
		}
	}()
	broken()
}
