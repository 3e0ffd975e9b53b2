package openai

import (
	"time"

	"github.com/kitbag-go/kitbag/model/httperror"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

const (
	usageTime = 5 * time.Second        // how long to wait for the usage after the last text or call of an answer
	drainTime = 100 * time.Millisecond // how long to wait for the rest of the body after a complete answer
)

// An exchange sends one request and receives the answer.
type exchange struct {
	provider.Exchange
	complete bool // the answer is complete: the connection can be reused
}

// send sends a request and waits for the header of the answer. A status other than 2xx is an error.
func (x *exchange) send(m *Model, p *protocol, b body) error {
	resp, err := m.do(x.Ctx, p, b)
	if err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return httperror.Of(resp)
	}
	x.Begun(resp)
	return nil
}

// drain reads what follows a complete answer, such as [DONE] and the end of the chunked encoding, so that the
// connection can be reused. It reads at most 4 KiB: if more follows, a new connection is cheaper.
func (x *exchange) drain(l *lines) {
	if x.complete && !x.EOF {
		l.Reset(x.Within(drainTime))
		_, _ = l.Discard(4 << 10)
	}
}
