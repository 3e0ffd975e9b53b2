package mcpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A filter checks the messages of one HTTP response. mcp-go reads only what the filter passes on, so that the
// two cannot interpret a message differently.
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
		_ = f.fail(fmt.Errorf("it answers a request with the id %s, which was not sent here", clip(string(head.ID), 40)))
		return nil, nil
	}
	if f.logs {
		data = withRawLogData(data)
	}
	return data, nil
}

// fail records why an answer cannot be used; the first reason is kept.
func (f *filter) fail(why error) error {
	if f.x == nil {
		return nil
	}
	f.x.refused.CompareAndSwap(nil, &why)
	return why
}

// all reads the body of a response that is one message.
func (f *filter) all(body io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, int64(f.max)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > f.max {
		return nil, f.fail(errTooLarge)
	}
	if !json.Valid(data) {
		return nil, f.fail(errors.New("it is not valid JSON"))
	}
	data, err = f.message(data)
	if data == nil && err == nil {
		err = errors.New("the response has no answer")
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

// event reads up to the empty line that ends an event, or to the end of the stream. It splits lines as mcp-go does.
func (b *eventBody) event() ([]byte, error) {
	var out, data []byte
	size, some := 0, false
	for {
		line, err := b.line(&size)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		value, isData := bytes.CutPrefix(line, []byte("data:"))
		switch {
		case err != nil: // an incomplete line is dropped
		case isData:
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data, some = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
			continue
		case len(line) > 0:
			out = append(append(out, line...), '\n')
			continue
		}
		if some {
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
