package wire

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"sync"
)

// A Line is a message, or the error that ended the input.
type Line struct {
	Data    []byte
	TooLong bool   // Data is only the beginning of the message
	Tail    []byte // the end of a message that is too long
	Err     error
}

// keptOfTooLong is how many bytes are kept of either end of a line that is too long, to find its id.
const keptOfTooLong = 4 << 10

// ReadLines reads lines of at most limit bytes, and the beginning and the end of longer lines.
func ReadLines(ctx context.Context, in io.Reader, limit int, lines chan<- Line) {
	r := bufio.NewReader(in)
	for {
		var l Line
		for {
			part, err := r.ReadSlice('\n')
			if l.TooLong {
				l.Tail = append(l.Tail, part...)
				l.Tail = l.Tail[max(0, len(l.Tail)-keptOfTooLong):]
			} else if l.Data = append(l.Data, part...); len(l.Data) > limit {
				l.Tail = bytes.Clone(l.Data[max(0, len(l.Data)-keptOfTooLong):])
				l.Data, l.TooLong = bytes.Clone(l.Data[:min(keptOfTooLong, limit)]), true
			}
			if err == bufio.ErrBufferFull {
				continue
			}
			if len(l.Data) == 0 && !l.TooLong {
				l.Err = err
			}
			break
		}
		select {
		case lines <- l:
		case <-ctx.Done():
			return
		}
		if l.Err != nil {
			return
		}
	}
}

// Lines sends messages over stdio, one per line.
type Lines struct {
	w      io.Writer
	failed chan struct{}

	mu  sync.Mutex
	err error
}

// NewLines returns a Responder that writes to w.
func NewLines(w io.Writer) *Lines { return &Lines{w: w, failed: make(chan struct{})} }

// Streams implements [Responder].
func (l *Lines) Streams() bool { return true }

// Send implements [Responder]. The message must not have line breaks.
func (l *Lines) Send(message []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if _, err := l.w.Write(append(message, '\n')); err != nil {
		l.err = err
		close(l.failed)
	}
	return l.err
}

// Failed returns a channel that is closed after a failed write, and then Err returns its error.
func (l *Lines) Failed() <-chan struct{} { return l.failed }

// Err returns the error of the failed write.
func (l *Lines) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
