package builtin

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// A clip is a writer that keeps the head and the tail of what is written, as valid UTF-8 with LF line ends, in
// bounded memory. Writes never block. Text of up to head+tail characters is kept whole. Of binary data only the
// size is kept.
type clip struct {
	head, tail int           // limits, in characters
	fresh      chan struct{} // has an element if take would return something

	mu      sync.Mutex
	pending string // part of the head that take has not returned yet
	end     []byte // the last part of what follows the head
	inHead  int    // characters in the head
	after   int    // characters after the head
	partial []byte // an incomplete rune or line end at the end of the last write
	binary  int    // bytes of binary data
	unnoted int    // bytes of binary data that no note counts yet
}

func newClip(head, tail int) *clip {
	return &clip{head: head, tail: tail, fresh: make(chan struct{}, 1)}
}

// Write implements [io.Writer].
func (c *clip) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data := append(c.partial, p...)
	if isBinary(data) {
		c.partial = nil
		c.binary += len(data)
		c.unnoted += len(data)
		return len(p), nil
	}
	c.noteBinary()
	n := completeLen(data)
	c.partial = append([]byte(nil), data[n:]...)
	c.add(cleanText(data[:n]))
	return len(p), nil
}

// noteBinary adds a note in place of binary data.
func (c *clip) noteBinary() {
	if c.unnoted > 0 {
		c.add(fmt.Sprintf("[%d bytes of binary data, not shown; redirect them to a file]\n", c.unnoted))
		c.unnoted = 0
	}
}

// isBinary reports whether more than a tenth of data, and more than a few bytes, are control characters or invalid.
// The tenth allows text in an encoding similar to UTF-8, and lists separated by zero bytes.
func isBinary(data []byte) bool {
	bad := 0
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			bad++
		case r < ' ' && !strings.ContainsRune("\t\n\r\b\f\a\x1b", r):
			bad++
		}
		i += size
	}
	return bad > 8 && bad*10 > len(data)
}

func (c *clip) add(text string) {
	i := 0
	for ; c.inHead < c.head && i < len(text); c.inHead++ {
		_, size := utf8.DecodeRuneInString(text[i:])
		i += size
	}
	if i > 0 {
		c.pending += text[:i]
		select {
		case c.fresh <- struct{}{}:
		default:
		}
	}
	c.after += utf8.RuneCountInString(text[i:])
	c.end = append(c.end, text[i:]...)
	// Cut only after enough growth, so that each byte is moved only a few times.
	if keep := c.tail * utf8.UTFMax; len(c.end) > 4*keep {
		c.end = append(c.end[:0], c.end[len(c.end)-keep:]...)
	}
}

// take returns the new part of the head.
func (c *clip) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.pending
	c.pending = ""
	return text
}

// rest ends the writing. It returns what take has not returned, and how many characters before the tail are missing.
func (c *clip) rest() (tail string, omitted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(cleanText(c.partial))
	c.partial = nil
	c.noteBinary()
	start := len(c.end)
	for n := 0; start > 0 && n < c.tail; n++ {
		_, size := utf8.DecodeLastRune(c.end[:start])
		start -= size
	}
	return c.pending + string(c.end[start:]), max(0, c.after-c.tail)
}

func (c *clip) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inHead == 0 && c.unnoted == 0
}

// completeLen returns the length of data without an incomplete rune or line end.
func completeLen(data []byte) int {
	n := len(data)
	if n > 0 && data[n-1] == '\r' {
		return n - 1
	}
	for i := 1; i < utf8.UTFMax && i <= n; i++ {
		if utf8.RuneStart(data[n-i]) {
			if !utf8.FullRune(data[n-i:]) {
				return n - i
			}
			break
		}
	}
	return n
}

// cleanText decodes the output of a program. Each invalid byte becomes one replacement character, wherever the
// data was cut.
func cleanText(data []byte) string {
	text := string(data)
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	return strings.ReplaceAll(text, "\r\n", "\n")
}
