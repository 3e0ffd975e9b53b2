package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
)

// A sessionlessProtocol is the protocol of revision 2026-07-28 and later ones, on one connection.
type sessionlessProtocol struct {
	*conn
	version string
}

func (p *sessionlessProtocol) revision() string         { return p.version }
func (p *sessionlessProtocol) usesHeaders() bool        { return p.kind == wireHTTP }
func (p *sessionlessProtocol) notifies() bool           { return false }
func (p *sessionlessProtocol) extendedTasks() bool      { return true }
func (p *sessionlessProtocol) pingMethod() string       { return "server/discover" } // there is no ping
func (p *sessionlessProtocol) setLevel(context.Context) {}                           // the level is in each request

// send implements protocol. It adds the _meta and the headers that each request must have.
func (p *sessionlessProtocol) send(ctx context.Context, x *exchange, method string, params map[string]any, header http.Header) (*transport.JSONRPCResponse, error) {
	withMeta := map[string]any{}
	maps.Copy(withMeta, params)
	meta, _ := params["_meta"].(requestMeta)
	meta.Version, meta.Client, meta.Capabilities = p.version, clientInfo, p.hub.capabilities(p.kind, p.notifies())
	if level := p.hub.level.Load(); level != nil {
		meta.Level = *level
	}
	withMeta["_meta"] = meta
	if p.kind != wireHTTP {
		return p.link.send(ctx, x, method, withMeta)
	}
	headers := http.Header{}
	maps.Copy(headers, header)
	headers.Set(mcp.HeaderProtocolVersion, p.version)
	headers.Set(mcp.HeaderMethod, method)
	for _, key := range []string{"name", "uri"} { // of a tool, a prompt or a resource
		if name, ok := params[key].(string); ok {
			if value, ok := mcp.EncodeHeaderValue(name); ok {
				headers.Set(mcp.HeaderName, value)
			}
		}
	}
	answer, err := p.post(ctx, x, method, withMeta, headers)
	if err != nil && ctx.Err() == nil && p.dead() {
		return nil, context.Cause(p.life) // post failed because the connection ended
	}
	return answer, err
}

// post sends a request over HTTP and reads its answer. It does not use mcp-go's transport, which reads each message several
// times and repeats the checks of receive.
func (p *sessionlessProtocol) post(ctx context.Context, x *exchange, method string, params map[string]any, header http.Header) (*transport.JSONRPCResponse, error) {
	if !p.addWorker(&p.workers) {
		return nil, &unreachedError{ErrClosed}
	}
	defer p.workers.Done()
	x.checkedBySender = true
	ctx, cancel := context.WithCancel(withExchange(ctx, x))
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	body, err := json.Marshal(struct {
		Version string         `json:"jsonrpc"`
		ID      string         `json:"id"`
		Method  string         `json:"method"`
		Params  map[string]any `json:"params"`
	}{mcp.JSONRPC_VERSION, x.id, method, params})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.http.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	res, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	f := filter{maxBytes: p.cfg.Limits.Message, hasLog: p.cfg.Log != nil, exchange: x}
	mediaType, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch mediaType {
	case "application/json":
		data, err := f.readBody(res.Body)
		if err != nil {
			return nil, err
		}
		return p.receive(ctx, &f, data)
	case "text/event-stream":
		events := newEventBody(res.Body, f)
		for {
			_, data, ended := events.nextEvent()
			if len(data) > 0 {
				if answer, err := p.receive(ctx, &f, data); err != errNoAnswer {
					return answer, err
				}
			}
			if ended != nil {
				return nil, fmt.Errorf("the stream ended without an answer: %w", ended)
			}
		}
	}
	return nil, fmt.Errorf("the response has the content type %q", clip(mediaType, 100))
}

// errNoAnswer means that a message is not the answer to the request.
var errNoAnswer = errors.New("the response has no answer")

// receive handles a message of a response. It returns the answer to the request, or errNoAnswer for any other message.
func (p *sessionlessProtocol) receive(ctx context.Context, f *filter, data []byte) (*transport.JSONRPCResponse, error) {
	data = validUTF8(data)
	head, err := strictjson.Message(data)
	if err != nil {
		return nil, f.fail(err)
	}
	var m struct { // all members, because a wrong type makes the message malformed
		Version string                   `json:"jsonrpc"`
		ID      any                      `json:"id"`
		Method  string                   `json:"method"`
		Result  json.RawMessage          `json:"result"`
		Error   *mcp.JSONRPCErrorDetails `json:"error"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, f.fail(err)
	}
	switch {
	case head.Method && m.ID == nil: // a notification
		var n mcp.JSONRPCNotification
		if f.hasLog {
			data = withRawLogData(data)
		}
		if json.Unmarshal(data, &n) == nil {
			p.onNotification(n)
		}
		return nil, errNoAnswer
	case head.Method: // a request of the server
		var req transport.JSONRPCRequest
		if json.Unmarshal(data, &req) == nil {
			_, _ = p.onRequest(ctx, req) // sends the answer itself, and returns nil
		}
		return nil, errNoAnswer
	case m.ID == nil: // an error about a message that the server could not read
		return nil, errNoAnswer
	case m.ID != f.exchange.id:
		_ = f.fail(fmt.Errorf("it has the id %s, not the id of the request", clip(string(head.ID), 40)))
		return nil, errNoAnswer // the right answer may follow
	}
	return &transport.JSONRPCResponse{Result: m.Result, Error: m.Error}, nil
}

// listenLists implements protocol with one request that stays open. When the server acknowledges the request, the catalogue
// requests the lists again, since earlier changes were not announced.
func (p *sessionlessProtocol) listenLists() {
	lists := p.server.changeFilter()
	for wait := time.Second; len(lists) > 0 && !p.dead(); wait = min(2*wait, maxBackoff) {
		began := time.Now()
		_, err := p.request(p.life, "subscriptions/listen", map[string]any{"notifications": lists}, nil)
		if _, refused := errors.AsType[*CallError](err); refused {
			return // the server does not announce changes
		}
		if time.Since(began) > stableAfter {
			wait = time.Second
		}
		sleep(p.life, wait)
	}
}

// subscribe wakes resubscribe, which then subscribes to all watched resources.
func (p *sessionlessProtocol) subscribe(_ context.Context, ws *watchList, _ *watch) error {
	signal(ws.wake)
	return nil
}

func (p *sessionlessProtocol) unsubscribe(ws *watchList, w *watch) {
	if ws.dropUnused(w) {
		signal(ws.wake)
	}
}

// resubscribe keeps subscriptions to all watched resources open. After a change of the watchList it subscribes again, and
// then ends the earlier subscriptions, so that no update is missed.
func (p *sessionlessProtocol) resubscribe(ws *watchList) {
	cancelLast := func() {}
	defer func() { cancelLast() }()
	for wait := time.Second; !p.dead(); {
		all := ws.list()
		uris := make([]string, len(all))
		for i, w := range all {
			uris[i] = w.uri
			if subscribed, _ := ws.status(w, p.conn); !subscribed {
				ws.markUpdated(w) // there may have been updates since WatchResource
			}
			ws.setSubscribed(w, p.conn)
		}
		ctx, cancel := context.WithCancel(p.life)
		ended := make(chan struct{}, 1)
		for part := range slices.Chunk(uris, maxListenURIs) {
			p.listenPart(ctx, part, ended)
		}
		cancelLast()
		cancelLast = cancel
		ws.callListeners()
		select {
		case <-ws.wake:
			sleep(p.life, debounce) // collect further changes
		case <-ended:
			sleep(p.life, wait)
			wait = min(2*wait, maxBackoff)
			ws.markUpdated(all...)
			continue
		case <-p.life.Done():
		}
		wait = time.Second
	}
}

// listenPart subscribes to the resources until ctx ends, and returns when the server has acknowledged or refused. If the
// server refuses, listenPart tries each half of uris, so that one missing resource does not affect the others. ended is
// signalled when the subscription ends.
func (p *sessionlessProtocol) listenPart(ctx context.Context, uris []string, ended chan<- struct{}) {
	failed, returned := make(chan error), make(chan struct{})
	defer close(returned)
	p.goWork(func() {
		_, err := p.request(ctx, "subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": uris}}, nil)
		select {
		case failed <- err: // listenPart is still waiting
		case <-returned:
			signal(ended)
		}
	})
	select {
	case <-p.subscribed:
	case err := <-failed:
		switch _, refused := errors.AsType[*CallError](err); {
		case !refused:
			signal(ended)
		case len(uris) > 1 && !hasCode(err, codeMethodNotFound):
			half := len(uris) / 2
			p.listenPart(ctx, uris[:half], ended)
			p.listenPart(ctx, uris[half:], ended)
		}
	case <-time.After(restartPatience): // some servers do not acknowledge
	case <-p.life.Done():
	}
}
