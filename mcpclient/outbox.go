package mcpclient

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// writeTimeout is how long a server may leave a message unread before the connection is lost.
const writeTimeout = time.Minute

// maxWaiting is how many messages may wait to be written, so that a server that sends requests without reading
// the answers cannot accumulate goroutines.
const maxWaiting = 1000

// An outbox writes the messages to a server that reads lines, one at a time. A message that cannot be written
// completely breaks the stream, and so ends the connection.
type outbox struct {
	io.WriteCloser
	fail func(error) // ends the connection, and with it a Write in progress

	mu      sync.Mutex   // held while a message is written
	waiting atomic.Int64 // calls of Write in progress
}

// Write writes one message. It waits for the messages before, and while the server does not read.
func (o *outbox) Write(msg []byte) (int, error) {
	defer o.waiting.Add(-1)
	if o.waiting.Add(1) > maxWaiting {
		err := fmt.Errorf("the server does not read its input: %d messages are waiting", maxWaiting)
		o.fail(err)
		return 0, &unreachedError{err}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	timeout := time.AfterFunc(writeTimeout, func() {
		o.fail(fmt.Errorf("the server does not read its input: a message was not read for %v", writeTimeout))
	})
	defer timeout.Stop()
	n, err := o.WriteCloser.Write(msg)
	if err != nil {
		o.fail(err)
	}
	return n, err
}
