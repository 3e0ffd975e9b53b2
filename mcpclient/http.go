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

// An exchange records facts about one request for conn.handleSendError. It is passed in the request's context, since
// mcp-go would turn errors into text.
type exchange struct {
	id              string
	written         atomic.Bool           // the whole request was sent
	checkedBySender bool                  // roundTripper leaves the response to its sender, sessionlessProtocol.post
	refused         atomic.Pointer[error] // why the answer cannot be used
}

type exchangeKey struct{}

// withExchange returns the context for the request of the exchange.
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
	next     http.RoundTripper
	origin   *url.URL // headers and token are sent only to its scheme and host
	headers  map[string]string
	token    func(context.Context) (string, error) // nil for none
	server   string                                // its name, for errors
	maxBytes int                                   // of a message
	hasLog   bool                                  // Options.Log is set
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
		hideToken(res, req) // in the body, which may repeat it
	}
	if req.Method == http.MethodPost && res.StatusCode >= 400 {
		return nil, rt.failure(req, res)
	}
	f := filter{maxBytes: rt.maxBytes, hasLog: rt.hasLog}
	f.exchange, _ = req.Context().Value(exchangeKey{}).(*exchange)
	mediaType, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case f.exchange != nil && f.exchange.checkedBySender:
	case mediaType == "text/event-stream" || req.Method == http.MethodGet: // a GET opens a stream
		res.Body = newEventBody(res.Body, f)
	case mediaType == "application/json" && f.exchange != nil:
		defer res.Body.Close()
		data, err := f.readMessage(res.Body)
		if err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(data))
	default:
		res.Body = http.MaxBytesReader(nil, res.Body, int64(rt.maxBytes))
	}
	return res, nil
}

// failure turns an HTTP error into a Go error. A server that does not know the session has not run the request. Its status
// is 404, as specified, or 400 with a text about the session.
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
	return &httpStatusError{code: res.StatusCode, body: clip(strings.TrimSpace(string(body)), 300)}
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
	if !ok { // the program has replaced the default
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
		next, closeIdle = cfg.login, func() {} // Client.Close closes the connections of the login
	}
	client.Transport = &roundTripper{next: next, origin: cfg.url, headers: cfg.http.Headers, token: cfg.http.Token,
		server: cfg.name, maxBytes: cfg.Limits.Message, hasLog: cfg.Log != nil}
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
