package provider

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestLines checks that the lines do not depend on how the text is split into reads.
func TestLines(t *testing.T) {
	text := "a\n\r\nbb\r\n" + strings.Repeat("x", 3*ReadSize) + "\nlast"
	want := []string{"a", "", "bb", strings.Repeat("x", 3*ReadSize), "last"}
	for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
		l := NewLines(r)
		for i := 0; ; i++ {
			line, err := l.Next()
			if err == io.EOF {
				if i != len(want) {
					t.Errorf("%d lines", i)
				}
				break
			}
			if err != nil || i >= len(want) || string(line) != want[i] {
				t.Fatalf("line %d: %.20q, %v", i, line, err)
			}
		}
		l.Release()
	}
}

// endless is a stream without a newline.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestLineLimit: a line that never ends fails at the limit.
func TestLineLimit(t *testing.T) {
	l := &Lines{Reader: bufio.NewReader(endless{}), limit: 100 * ReadSize}
	if _, err := l.Next(); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
}
