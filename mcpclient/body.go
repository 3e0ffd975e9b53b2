package mcpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A filter checks the messages of one HTTP response. mcp-go gets only the messages that it returns.
type filter struct {
	max  int
	logs bool      // Options.Log is set
	x    *exchange // the request of this response; nil for a stream that belongs to no request
}

// message returns the message to pass on, or nil to drop it. It drops an answer to another request than the one
// that was sent. An error ends the exchange.
func (f *filter) message(data []byte) ([]byte, error) {
	data = validUTF8(data)
	head, err := checkMessage(data)
	if err != nil && f.x == nil {
		return errorAnswer(ownID(data), codeMalformed, err.Error()), nil
	}
	if err != nil {
		return nil, f.fail(err)
	}
	var id any
	_ = json.Unmarshal(head.ID, &id) // a message without one is not an answer
	if f.x != nil && !head.Method && id != nil && id != f.x.id {
		_ = f.fail(fmt.Errorf("it has the id %s, not the id of the request", clip(string(head.ID), 40)))
		return nil, nil
	}
	if f.logs {
		data = withRawLogData(data)
	}
	return data, nil
}

// fail records why an answer cannot be used; the first reason is kept.
func (f *filter) fail(reason error) error {
	if f.x == nil {
		return nil
	}
	f.x.refused.CompareAndSwap(nil, &reason)
	return reason
}

// readBody reads the body of a response.
func (f *filter) readBody(body io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, int64(f.max)+1))
	if err == nil && len(data) > f.max {
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
	lines *bufio.Reader
	f     filter
	rest  []byte // not yet read by the caller
	err   error  // returned after rest
}

func newEventBody(body io.ReadCloser, f filter) *eventBody {
	return &eventBody{ReadCloser: body, lines: bufio.NewReaderSize(body, 32<<10), f: f}
}

func (b *eventBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.rest, b.err = b.event()
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// event returns the next event with its message checked, or an error at the end of the stream.
func (b *eventBody) event() ([]byte, error) {
	out, data, err := b.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if data != nil {
		msg, bad := b.f.message(data)
		if bad != nil {
			return nil, bad
		}
		for part := range bytes.Lines(msg) {
			out = append(append(append(out, "data: "...), bytes.TrimRight(part, "\n")...), '\n')
		}
	}
	if err == nil {
		out = append(out, '\n')
	}
	return out, err
}

// next reads an event, up to its empty line or the end of the stream. It returns the data, which is nil if the event has
// none, and the other lines. It splits lines as mcp-go does.
func (b *eventBody) next() (others, data []byte, err error) {
	size := 0
	for {
		line, err := b.line(&size)
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
			others = append(append(others, line...), '\n')
			continue
		}
		return others, data, err
	}
}

// line reads a line of an event; size is how many bytes of the event were read already.
func (b *eventBody) line(size *int) ([]byte, error) {
	var line []byte
	for {
		part, err := b.lines.ReadSlice('\n')
		if *size += len(part); *size > b.f.max {
			_ = b.f.fail(errTooLarge)
			return nil, errTooLarge
		}
		if line == nil && err == nil {
			return part, nil
		}
		if line = append(line, part...); !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
