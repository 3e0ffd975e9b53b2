package mcpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A filter checks the messages of one HTTP response.
type filter struct {
	maxBytes int       // of a message
	hasLog   bool      // Options.Log is set
	exchange *exchange // of the response; nil for a stream that belongs to no request
}

// message returns the message to pass on, or nil to drop it. An error ends the exchange.
func (f *filter) message(data []byte) ([]byte, error) {
	data = validUTF8(data)
	head, err := checkMessage(data)
	if err != nil && f.exchange == nil { // if the message answers a request, make the request fail
		return errorAnswer(ownID(data), codeMalformed, err.Error()), nil
	}
	if err != nil {
		return nil, f.fail(err)
	}
	var id any
	_ = json.Unmarshal(head.ID, &id) // id stays nil if the message has none
	if f.exchange != nil && !head.Method && id != nil && id != f.exchange.id {
		_ = f.fail(fmt.Errorf("it has the id %s, not the id of the request", clip(string(head.ID), 40)))
		return nil, nil // the right answer may follow
	}
	if f.hasLog {
		data = withRawLogData(data)
	}
	return data, nil
}

// fail records why an answer cannot be used, unless an earlier reason is recorded, and returns the reason.
func (f *filter) fail(reason error) error {
	if f.exchange != nil {
		f.exchange.refused.CompareAndSwap(nil, &reason)
	}
	return reason
}

// readBody reads the body of a response.
func (f *filter) readBody(body io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, int64(f.maxBytes)+1))
	if err == nil && len(data) > f.maxBytes {
		err = f.fail(errTooLarge)
	}
	return data, err
}

// readMessage reads the body of a response that is one message, and checks the message.
func (f *filter) readMessage(body io.Reader) ([]byte, error) {
	data, err := f.readBody(body)
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, f.fail(errors.New("it is not valid JSON"))
	}
	data, err = f.message(data)
	if data == nil && err == nil {
		err = errNoAnswer
	}
	return data, err
}

// An eventBody is a stream of server-sent events whose messages pass through a filter.
type eventBody struct {
	io.ReadCloser
	lines  *bufio.Reader
	filter filter
	unread []byte // filtered, but not yet read by the caller
	err    error  // returned after unread
}

func newEventBody(body io.ReadCloser, f filter) *eventBody {
	return &eventBody{ReadCloser: body, lines: bufio.NewReaderSize(body, 32<<10), filter: f}
}

func (b *eventBody) Read(p []byte) (int, error) {
	for len(b.unread) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.unread, b.err = b.filterEvent()
	}
	n := copy(p, b.unread)
	b.unread = b.unread[n:]
	return n, nil
}

// filterEvent returns the next event with its message filtered, or an error at the end of the stream.
func (b *eventBody) filterEvent() ([]byte, error) {
	out, data, err := b.nextEvent()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if data != nil {
		msg, err := b.filter.message(data)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(msg) {
			out = append(append(append(out, "data: "...), bytes.TrimRight(line, "\n")...), '\n')
		}
	}
	if err == nil {
		out = append(out, '\n')
	}
	return out, err
}

// nextEvent reads an event, up to its empty line or the end of the stream, and returns its data (nil for none) apart
// from its other lines. It splits lines as mcp-go does.
func (b *eventBody) nextEvent() (otherLines, data []byte, err error) {
	size := 0
	for {
		line, err := b.readLine(&size)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		value, isData := bytes.CutPrefix(line, []byte("data:"))
		switch {
		case err != nil: // an incomplete line is dropped
		case isData:
			if len(data) > 0 {
				data = append(data, '\n')
			} else if data == nil {
				data = []byte{}
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
			continue
		case len(line) > 0:
			otherLines = append(append(otherLines, line...), '\n')
			continue
		}
		return otherLines, data, err
	}
}

// readLine reads a line of an event, and adds its length to size, the bytes of the event that were read.
func (b *eventBody) readLine(size *int) ([]byte, error) {
	var line []byte
	for {
		part, err := b.lines.ReadSlice('\n')
		if *size += len(part); *size > b.filter.maxBytes {
			return nil, b.filter.fail(errTooLarge)
		}
		if line == nil && err == nil {
			return part, nil // the whole line, not copied
		}
		if line = append(line, part...); !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
