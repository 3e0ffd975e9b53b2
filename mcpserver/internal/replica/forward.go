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
	unreadFor time.Duration // how long a client may leave a message unread
	used      Memory        // nonces of checked passes
}

// NewForwarder returns the Forwarder of the replica with the id. unreadFor is how long a client may leave a message unread.
func NewForwarder(id string, keys *Keys, unreadFor time.Duration) *Forwarder {
	return &Forwarder{id: id, keys: keys, unreadFor: unreadFor, transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute, DisableCompression: true,
		ExpectContinueTimeout: passTTL, // then the body is sent without "100 Continue", but the pass has expired
	}}
}

// Close closes idle connections.
func (f *Forwarder) Close() { f.transport.CloseIdleConnections() }

// Check returns an error unless the request, which has the Header, has one pass, for this replica, that was not used before.
func (f *Forwarder) Check(r *http.Request) error {
	sealed := r.Header.Values(Header)
	var p pass
	if err := f.keys.Open(r.Context(), passPurpose, sealed[0], &p); err != nil {
		return err
	}
	switch {
	case len(sealed) > 1 || time.Now().After(time.Unix(p.Expires, 0)):
		return errors.New("the request has several passes, or its pass has expired")
	case p.To != f.id: // the pass is for an earlier process with this replica's URL
		return ErrNotHere
	}
	if isNew, _ := f.used.Swap(r.Context(), p.Nonce, nil, []byte("used"), 2*passTTL); !isNew { // a Memory never fails
		return errors.New("the pass was used before")
	}
	return nil
}

// Reasons why a request was not forwarded. After any other error the other replica may have handled the request.
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
	decided atomic.Bool // set by the first Read or by Forward after a failure, whichever comes first
	sending bool        // Read came first; used only by Read
}

func (b *body) Read(p []byte) (int, error) {
	if b.sending || b.decided.CompareAndSwap(false, true) {
		b.sending = true
		return b.ReadCloser.Read(p)
	}
	return 0, ErrNotSent
}

// Forward forwards a request to the replica with the id and the address, a URL, and the replica's answer to the client. The
// request keeps its headers and its query, but not its path. If the body was read before, r.GetBody must return it again. If
// Forward returns an error, the client has got no answer. If the replica dies or ctx ends in the middle of a stream, the
// stream ends with the event lostEvent, which may be empty.
func (f *Forwarder) Forward(ctx context.Context, w http.ResponseWriter, r *http.Request, id, address, lostEvent string) (failed error) {
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
				res.Body = &stream{ReadCloser: res.Body, ctx: r.Context(), lostEvent: lostEvent}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	r = r.Clone(ctx)
	r.Body, r.GetBody = content, func() (io.ReadCloser, error) { return content, nil } // for another attempt of the transport
	r.Header.Del("Connection")                                                         // a client could name headers in it that ReverseProxy then removes
	proxy.ServeHTTP(&writer{w, f.unreadFor, r.ProtoMajor >= 2}, r)
	if dial, ok := errors.AsType[*net.OpError](failed); ok && dial.Op == "dial" {
		if errors.Is(failed, syscall.ECONNREFUSED) {
			return ErrRefused
		}
		return ErrNotSent
	}
	if failed != nil && failed != ErrNotHere && content.decided.CompareAndSwap(false, true) { // the body was not read
		return fmt.Errorf("%w: %w", ErrNotSent, failed)
	}
	return failed
}

// A stream is the response stream of another replica. If the replica dies after a complete event, the stream ends
// with lostEvent.
type stream struct {
	io.ReadCloser
	ctx       context.Context // of the client's request
	lostEvent string
	tail      []byte // the last two bytes that were read
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if n > 0 {
		s.tail = append(s.tail, p[max(0, n-2):n]...)
		s.tail = s.tail[max(0, len(s.tail)-2):]
		return n, nil
	}
	inEvent := len(s.tail) > 0 && !bytes.Equal(s.tail, []byte("\n\n"))
	if err == nil || err == io.EOF || s.ctx.Err() != nil || inEvent { // the replica lives, the client has left, or an event is incomplete
		return 0, err
	}
	s.ReadCloser = struct {
		io.Reader
		io.Closer
	}{strings.NewReader(s.lostEvent), s.ReadCloser}
	s.lostEvent, s.tail = "", nil
	return s.ReadCloser.Read(p)
}

// A writer disconnects a client that does not read for the time unreadFor, as [wire.Events] does.
type writer struct {
	http.ResponseWriter
	unreadFor time.Duration
	http2     bool
}

// WriteHeader does not send the client the other replica's "100 Continue": this replica has the whole request already.
func (w *writer) WriteHeader(status int) {
	if status != http.StatusContinue {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *writer) Write(p []byte) (int, error) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.unreadFor))
	return w.ResponseWriter.Write(p)
}

// FlushError is called after each Write, because of ReverseProxy.FlushInterval.
func (w *writer) FlushError() error {
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.SetWriteDeadline(time.Now().Add(w.unreadFor))
	err := rc.Flush()
	if w.http2 { // over HTTP/2 an expired deadline resets the stream even if nothing is being written
		_ = rc.SetWriteDeadline(time.Time{})
	}
	return err
}
