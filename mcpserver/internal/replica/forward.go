package replica

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Header is the name of the header with the pass of a forwarded request. A pass proves that a replica has admitted
// the request; it is valid for one other replica, once.
const Header = "Kitbag-Forwarded"

const (
	passPurpose = "forward" // see Keys.Seal
	passTTL     = 30 * time.Second
	dialTimeout = time.Second
)

type pass struct {
	To      string `json:"to"` // the id of the other replica
	Nonce   string `json:"nonce"`
	Expires int64  `json:"expires"` // Unix seconds
}

// A Forwarder forwards requests from its replica to others, and checks requests that were forwarded to its replica.
type Forwarder struct {
	id        string
	keys      *Keys
	transport *http.Transport
	write     time.Duration // how long a client may leave a message unread
	used      Memory        // nonces of checked passes
}

// NewForwarder returns the Forwarder of the replica with the id.
func NewForwarder(id string, keys *Keys, write time.Duration) *Forwarder {
	return &Forwarder{id: id, keys: keys, write: write, transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute, DisableCompression: true,
		ExpectContinueTimeout: passTTL, // after it the body is sent unasked, and the pass is refused
	}}
}

// Close closes idle connections.
func (f *Forwarder) Close() { f.transport.CloseIdleConnections() }

// Check returns an error unless the request's pass is from a replica, for this replica, and was not used before.
func (f *Forwarder) Check(r *http.Request) error {
	sealed := r.Header.Values(Header)
	var p pass
	if err := f.keys.Open(r.Context(), passPurpose, sealed[0], &p); err != nil {
		return err
	}
	switch {
	case len(sealed) > 1 || time.Now().After(time.Unix(p.Expires, 0)):
		return errors.New("the pass is too old, or one of several")
	case p.To != f.id: // the pass is for an earlier process with this replica's URL
		return ErrNotHere
	}
	if isNew, _ := f.used.Swap(r.Context(), p.Nonce, nil, []byte("used"), 2*passTTL); !isNew {
		return errors.New("the pass was used before")
	}
	return nil
}

// Reasons why a request was not forwarded. After any other error it may have been handled.
var (
	ErrNotHere = errors.New("the other replica does not have the session or call of the request")
	ErrRefused = errors.New("no process listens at the other replica's address")
	ErrNotSent = errors.New("the other replica cannot be reached, or has closed the connection before it read the request")
)

// A body is the body of a request that expects "100 Continue": it is sent only after the other replica has begun to handle
// the request. So a request whose body was not sent can be repeated, for example if the other replica has just closed the
// connection.
type body struct {
	io.ReadCloser
	decided atomic.Bool // set when the body is first read, or when Forward gives up, whichever comes first
	sending bool        // the body was read first
}

func (b *body) Read(p []byte) (int, error) {
	if b.sending || b.decided.CompareAndSwap(false, true) {
		b.sending = true
		return b.ReadCloser.Read(p)
	}
	return 0, ErrNotSent
}

// Forward forwards a request to the replica with the id and the URL, and the replica's answer to the client. The request
// keeps its headers and its query, but not its path. If its body was read before, GetBody must return it again. If Forward
// returns an error, the client has got no answer. If the replica dies or ctx ends in the middle of a stream, the stream ends
// with the event lost, unless that is empty.
func (f *Forwarder) Forward(ctx context.Context, w http.ResponseWriter, r *http.Request, id, address, lost string) (failed error) {
	target, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	sealed, err := f.keys.Seal(r.Context(), passPurpose, pass{id, rand.Text(), time.Now().Add(passTTL).Unix()})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	content := &body{ReadCloser: r.Body}
	if r.GetBody != nil {
		if content.ReadCloser, err = r.GetBody(); err != nil {
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		}
	}
	proxy := &httputil.ReverseProxy{
		Transport: f.transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			query := p.In.URL.RawQuery
			p.Out.URL, p.Out.Host = new(url.URL), target.Host
			*p.Out.URL = *target
			p.Out.URL.RawQuery = query
			p.Out.Header.Set(Header, sealed)
			p.Out.Header.Set("Expect", "100-continue")
		},
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode == http.StatusMisdirectedRequest {
				return ErrNotHere
			}
			if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
				res.Body = &stream{ReadCloser: res.Body, ctx: r.Context(), lost: lost}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	r = r.Clone(ctx)
	r.Body, r.GetBody = content, func() (io.ReadCloser, error) { return content, nil } // for another attempt of the transport
	r.Header.Del("Connection")                                                         // a client could name headers in it that ReverseProxy then removes
	proxy.ServeHTTP(&writer{w, f.write, r.ProtoMajor >= 2}, r)
	if dial, ok := errors.AsType[*net.OpError](failed); ok && dial.Op == "dial" {
		if errors.Is(failed, syscall.ECONNREFUSED) {
			return ErrRefused
		}
		return ErrNotSent
	}
	if failed != nil && failed != ErrNotHere && content.decided.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: %w", ErrNotSent, failed)
	}
	return failed
}

// A stream is the response stream of another replica. If the replica dies after a complete event, the stream ends
// with the event lost.
type stream struct {
	io.ReadCloser
	ctx  context.Context // of the client's request
	lost string
	tail []byte // the last two bytes that were read
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if n > 0 {
		s.tail = append(s.tail, p[max(0, n-2):n]...)
		s.tail = s.tail[max(0, len(s.tail)-2):]
		return n, nil
	}
	inEvent := len(s.tail) > 0 && !bytes.Equal(s.tail, []byte("\n\n"))
	if err == nil || err == io.EOF || s.ctx.Err() != nil || inEvent {
		return 0, err
	}
	s.ReadCloser = struct {
		io.Reader
		io.Closer
	}{strings.NewReader(s.lost), s.ReadCloser}
	s.lost, s.tail = "", nil
	return s.ReadCloser.Read(p)
}

// A writer disconnects a client that does not read, as [wire.Events] does.
type writer struct {
	http.ResponseWriter
	limit time.Duration
	http2 bool
}

// WriteHeader does not send the client the other replica's "100 Continue": this replica has the whole request already.
func (w *writer) WriteHeader(status int) {
	if status != http.StatusContinue {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.limit))
	return w.ResponseWriter.Write(p)
}

// FlushError is called after each Write.
func (w *writer) FlushError() error {
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.SetWriteDeadline(time.Now().Add(w.limit))
	err := rc.Flush()
	if w.http2 { // over HTTP/2 an expired deadline resets the stream even if nothing is being written
		_ = rc.SetWriteDeadline(time.Time{})
	}
	return err
}
