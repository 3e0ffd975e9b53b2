package builtin

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// A clip is a writer that keeps the head and the tail of what is written, as valid UTF-8 with LF line ends, in
// bounded memory. Writes never block. Text of up to maxHead+maxTail characters is kept whole. Of binary data only
// the size is kept.
type clip struct {
	maxHead, maxTail int           // in characters
	hasPending       chan struct{} // receives an element when pending grows

	mu            sync.Mutex
	pending       string // the part of the head that takePending has not returned yet
	tail          []byte // of what follows the head, at least the last maxTail characters
	headChars     int    // characters in the head
	afterHead     int    // characters that were written after the head
	partial       []byte // an incomplete rune or line end at the end of the last write
	binaryBytes   int    // bytes of binary data
	unnotedBinary int    // bytes of binary data that no note counts yet
}

func newClip(maxHead, maxTail int) *clip {
	return &clip{maxHead: maxHead, maxTail: maxTail, hasPending: make(chan struct{}, 1)}
}

// Write implements [io.Writer].
func (c *clip) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data := append(c.partial, p...)
	if isBinary(data) {
		c.partial = nil
		c.binaryBytes += len(data)
		c.unnotedBinary += len(data)
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
	if c.unnotedBinary > 0 {
		c.add(fmt.Sprintf("[%d bytes of binary data, not shown; redirect them to a file]\n", c.unnotedBinary))
		c.unnotedBinary = 0
	}
}

// isBinary reports whether more than a tenth of data, and more than eight bytes, are control characters or invalid.
// Text in an encoding such as Latin-1, and lists separated by zero bytes, usually have fewer.
func isBinary(data []byte) bool {
	bad := 0
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 || r < ' ' && !strings.ContainsRune("\t\n\r\b\f\a\x1b", r) {
			bad++
		}
		i += size
	}
	return bad > 8 && bad*10 > len(data)
}

// add appends text to the head until the head is full, and the rest of text to the tail.
func (c *clip) add(text string) {
	i := 0
	for ; c.headChars < c.maxHead && i < len(text); c.headChars++ {
		_, size := utf8.DecodeRuneInString(text[i:])
		i += size
	}
	if i > 0 {
		c.pending += text[:i]
		select {
		case c.hasPending <- struct{}{}:
		default:
		}
	}
	c.afterHead += utf8.RuneCountInString(text[i:])
	c.tail = append(c.tail, text[i:]...)
	// Cut only after enough growth, so that each byte is moved only a few times.
	if keep := c.maxTail * utf8.UTFMax; len(c.tail) > 4*keep {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-keep:]...)
	}
}

// takePending returns the part of the head that was added since the last call.
func (c *clip) takePending() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.pending
	c.pending = ""
	return text
}

// finish is called after the last Write. It returns what takePending has not returned, with the tail, how many
// characters between the head and the tail are omitted, and how many bytes of binary data.
func (c *clip) finish() (rest string, omittedChars, binaryBytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(cleanText(c.partial))
	c.partial = nil
	c.noteBinary()
	start := len(c.tail)
	for n := 0; start > 0 && n < c.maxTail; n++ {
		_, size := utf8.DecodeLastRune(c.tail[:start])
		start -= size
	}
	return c.pending + string(c.tail[start:]), max(0, c.afterHead-c.maxTail), c.binaryBytes
}

// empty reports whether nothing was written. Call finish first.
func (c *clip) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headChars+c.afterHead == 0
}

// completeLen returns the length of data without an incomplete rune or line end at its end.
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

// cleanText decodes the output of a program. Each invalid byte becomes one replacement character, so the result does
// not depend on where writes divide the data.
func cleanText(data []byte) string {
	text := string(data)
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	return strings.ReplaceAll(text, "\r\n", "\n")
}
