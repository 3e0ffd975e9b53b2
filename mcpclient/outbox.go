package mcpclient

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// writeTimeout is how long a server may leave a message unread. After that it is as
// good as dead.
const writeTimeout = time.Minute

// maxWaiting is how many messages may wait to be written. A server that floods us
// with requests and does not read the answers would else collect goroutines for as
// long as the time-out lasts.
const maxWaiting = 1000

// An outbox writes the messages to a server that reads lines, one at a time. When one
// cannot be written the connection is lost: a cut message spoils the stream.
type outbox struct {
	io.WriteCloser
	lost func(error) // ends the connection, and with it a Write under way

	turn    sync.Mutex
	waiting atomic.Int64 // messages that are being written or want to be
}

// Write writes one message.
func (o *outbox) Write(msg []byte) (int, error) {
	defer o.waiting.Add(-1)
	if o.waiting.Add(1) > maxWaiting {
		err := fmt.Errorf("the server does not read its input: %d messages wait to be written", maxWaiting)
		o.lost(err)
		return 0, &unreached{err}
	}
	o.turn.Lock()
	defer o.turn.Unlock()
	late := time.AfterFunc(writeTimeout, func() {
		o.lost(fmt.Errorf("the server does not read its input: a message has waited for %v", writeTimeout))
	})
	defer late.Stop()
	n, err := o.WriteCloser.Write(msg)
	if err != nil {
		o.lost(err)
	}
	return n, err
}
