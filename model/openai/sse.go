package openai

import (
	"bytes"
	"errors"
	"time"

	"github.com/kitbag-go/kitbag/model/httperror"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// usageTime is how long to wait for the usage after the last text or call of an answer.
const usageTime = 5 * time.Second

// errStopped ends reading when the consumer has stopped. It is not returned to callers.
var errStopped = errors.New("the consumer of the answer stopped")

// A parser turns the parts of an answer into chunks.
type parser interface {
	handleData(event string, payload []byte) error // a data line, and the name of its event
	handleBlankLine() error                        // a blank line
	handleUnstreamed(data []byte) error            // an answer that is not a stream
	finishing() bool                               // the model has finished; only the usage and [DONE] may follow
	ended() bool                                   // the end of the answer was received
	finish() error                                 // called after the end
}

// read reads an answer to its end; a yields the chunks.
func read(x *provider.Exchange, a parser) error {
	l := provider.NewLines(x)
	defer l.Release()
	defer x.Drain(l)
	whole, err := provider.ReadUnstreamed(l.Reader)
	switch {
	case err != nil:
		return err
	case whole != nil:
		err = a.handleUnstreamed(whole)
	default:
		err = stream(l, x, a)
	}
	if err != nil {
		return err
	}
	x.Complete = true // also if the consumer stops at one of the last chunks
	return a.finish()
}

// stream reads server-sent events (HTML Standard, section 9.2) until [DONE] or the end of the stream. Each data line that
// is JSON is an event, since some servers send no blank lines between events. Of the other fields only the name of the
// event is used.
func stream(l *provider.Lines, x *provider.Exchange, a parser) error {
	event := ""
	for !a.ended() {
		line, err := l.Next()
		if err != nil {
			return provider.StreamEnd(err, a.finishing())
		}
		switch {
		case len(line) == 0:
			event = ""
			if err := a.handleBlankLine(); err != nil {
				return err
			}
		case line[0] == ':': // a comment, to keep the connection open
		case bytes.HasPrefix(line, []byte("data:")):
			if err := a.handleData(event, bytes.TrimSpace(line[len("data:"):])); err != nil {
				return err
			}
		case bytes.HasPrefix(line, []byte("event:")):
			event = string(bytes.TrimSpace(line[len("event:"):]))
		case line[0] == '{': // an error without a field name
			if err := a.handleData("error", line); err != nil {
				return err
			}
		}
		if a.finishing() {
			x.EndIdle = usageTime
		}
	}
	return nil
}

func (a *answer) finishing() bool { return a.reason != "" }

func (a *answer) ended() bool { return a.done }

func (a *answer) handleBlankLine() error {
	if len(a.pending) > 0 {
		return httperror.BadAnswer("a part of the stream is not valid JSON", a.pending)
	}
	return nil
}
