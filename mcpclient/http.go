package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/client/transport"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
)

var errSessionGone = errors.New("the server does not know the session")

// An exchange records facts about one request for conn.classify. It is passed in the request's context, since
// mcp-go would turn errors into text.
type exchange struct {
	id         string
	written    atomic.Bool           // the whole request was sent
	unfiltered bool                  // the sender checks the response itself
	refused    atomic.Pointer[error] // why the answer cannot be used
}

type exchangeKey struct{}

// withExchange returns a context that records what happens in the exchange.
func withExchange(ctx context.Context, x *exchange) context.Context {
	ctx = context.WithValue(ctx, exchangeKey{}, x)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				x.written.Store(true)
			}
		},
	})
}

// A roundTripper adds headers, limits the size of responses, and turns failed requests into typed errors.
type roundTripper struct {
	next    http.RoundTripper
	origin  *url.URL
	headers map[string]string
	token   func(context.Context) (string, error) // nil for none
	server  string
	max     int
	logs    bool // Options.Log is set
}

func (rt *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if req.URL.Host == rt.origin.Host && req.URL.Scheme == rt.origin.Scheme {
		for k, v := range rt.headers {
			req.Header.Set(k, v)
		}
		if rt.token != nil {
			token, err := rt.token(req.Context())
			if err != nil {
				if req.Body != nil {
					req.Body.Close()
				}
				return nil, fmt.Errorf("%w: %w", ErrLogin, err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	res, err := rt.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if rt.token != nil {
		hideToken(res, req)
	}
	if req.Method == http.MethodPost && res.StatusCode >= 400 {
		return nil, rt.failure(req, res)
	}
	f := filter{max: rt.max, logs: rt.logs}
	f.x, _ = req.Context().Value(exchangeKey{}).(*exchange)
	mediaType, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case f.x != nil && f.x.unfiltered:
	case mediaType == "text/event-stream" || req.Method == http.MethodGet: // a GET opens a stream
		res.Body = newEventBody(res.Body, f)
	case mediaType == "application/json" && f.x != nil:
		defer res.Body.Close()
		data, err := f.readMessage(res.Body)
		if err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(data))
	default:
		res.Body = http.MaxBytesReader(nil, res.Body, int64(rt.max))
	}
	return res, nil
}

// failure turns an HTTP error into a Go error. A server that does not know the session has not run the request; it answers
// with 404, as specified, or with 400 and a text. Any other body may be a JSON-RPC error.
func (rt *roundTripper) failure(req *http.Request, res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	res.Body.Close()
	body = validUTF8(body)
	if req.Header.Get(transport.HeaderKeySessionID) != "" &&
		(res.StatusCode == http.StatusNotFound ||
			res.StatusCode == http.StatusBadRequest && bytes.Contains(bytes.ToLower(body), []byte("session"))) {
		return &unreachedError{errSessionGone}
	}
	var msg struct {
		Error *struct {
			Code    int             `json:"code"`
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data"`
		} `json:"error"`
	}
	if _, err := strictjson.Message(body); err == nil && json.Unmarshal(body, &msg) == nil && msg.Error != nil && msg.Error.Code != 0 {
		return &CallError{Server: rt.server, Code: msg.Error.Code, Message: visible.Text(msg.Error.Message), Data: msg.Error.Data}
	}
	return &httpStatusError{code: res.StatusCode, body: clip(strings.TrimSpace(strings.ToValidUTF8(string(body), "")), 300)}
}

var discardLogger = slog.New(slog.DiscardHandler)

// maxIdleConns is how many connections to a server are kept for the next requests.
const maxIdleConns = 100

// baseTransport returns the round tripper for all requests, and a function that closes its idle connections.
func baseTransport(cfg *config) (rt http.RoundTripper, closeIdle func()) {
	if cfg.http.Client != nil && cfg.http.Client.Transport != nil {
		return newOutboundGuard(cfg.url, cfg.http.Client.Transport)
	}
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has replaced it
		return newOutboundGuard(cfg.url, http.DefaultTransport)
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = maxIdleConns // the default of two would make most calls of a busy gateway dial
	rt, closeGuarded := newOutboundGuard(cfg.url, t)
	return rt, func() { t.CloseIdleConnections(); closeGuarded() }
}

// httpTransport makes the mcp-go transport for wireHTTP or wireSSE. It also returns the client that the
// transport uses, and a function that closes idle connections.
func httpTransport(cfg *config, kind wire) (tr transport.Interface, client *http.Client, closeIdle func(), err error) {
	client = &http.Client{}
	if cfg.http.Client != nil {
		*client = *cfg.http.Client
	}
	next, closeIdle := baseTransport(cfg)
	if cfg.login != nil {
		next, closeIdle = cfg.login, func() {} // the login is kept over reconnects
	}
	client.Transport = &roundTripper{next: next, origin: cfg.url, headers: cfg.http.Headers, token: cfg.http.Token, server: cfg.name, max: cfg.Limits.Message,
		logs: cfg.Log != nil}
	if kind == wireSSE {
		tr, err = transport.NewSSE(cfg.http.URL, transport.WithHTTPClient(client), transport.WithSSELogger(discardLogger),
			transport.WithEndpointTimeout(cfg.Timeouts.Start), transport.WithResponseTimeout(cfg.Timeouts.Call))
	} else {
		tr, err = transport.NewStreamableHTTP(cfg.http.URL, transport.WithHTTPBasicClient(client), transport.WithHTTPLogger(discardLogger),
			//lint:ignore SA1019 servers of older protocols have no other way to notify
			transport.WithContinuousListening())
	}
	return tr, client, closeIdle, err
}
