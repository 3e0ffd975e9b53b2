package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/tracecontext"
)

// A protocol is the part of the client that depends on whether a revision has sessions: *sessionProtocol is for the
// revisions before 2026-07-28, *sessionlessProtocol for the later ones, in which each request describes the client.
type protocol interface {
	// revision returns the protocol revision; "" until initialize is answered.
	revision() string
	// send sends a request with the id of the exchange, and waits for its answer.
	send(ctx context.Context, x *exchange, method string, params map[string]any, header http.Header) (*transport.JSONRPCResponse, error)
	// usesHeaders reports whether some parameters are also sent as HTTP headers.
	usesHeaders() bool
	// notifies reports whether the client sends notifications.
	notifies() bool
	// extendedTasks reports whether tasks have the form of the extension, not the experimental one of 2025-11-25.
	extendedTasks() bool
	// pingMethod returns the method of the cheapest request.
	pingMethod() string
	// setLevel sends the log level, unless the server has it already.
	setLevel(ctx context.Context)
	// listenLists keeps a subscription to changes of lists open, if the revision has such subscriptions.
	listenLists()

	watcher
}

// A watcher subscribes to resources.
type watcher interface {
	// subscribe subscribes on this connection, unless the connection has the subscription.
	subscribe(ctx context.Context, ws *watchList, w *watch) error
	// unsubscribe ends the subscription if the watch has no listener.
	unsubscribe(ws *watchList, w *watch)
	// resubscribe subscribes on a new connection to all watched resources.
	resubscribe(ws *watchList)
}

// protocolOf returns the protocol of a revision; version is "" until initialize is answered.
func (c *conn) protocolOf(version string) protocol {
	if mcp.IsModernProtocol(version) {
		return &sessionlessProtocol{conn: c, version: version}
	}
	return &sessionProtocol{conn: c, version: version}
}

// A sessionProtocol is the protocol of the revisions before 2026-07-28, on one connection.
type sessionProtocol struct {
	*conn
	version string

	sendingLevel sync.Mutex             // so that the level that was set last is sent last
	sentLevel    atomic.Pointer[string] // the value of hub.level that was sent last; nil until then
}

func (p *sessionProtocol) revision() string    { return p.version }
func (p *sessionProtocol) usesHeaders() bool   { return false }
func (p *sessionProtocol) notifies() bool      { return true }
func (p *sessionProtocol) extendedTasks() bool { return false }
func (p *sessionProtocol) pingMethod() string  { return "ping" }
func (p *sessionProtocol) listenLists()        {} // the server announces changes without a subscription

func (p *sessionProtocol) send(ctx context.Context, x *exchange, method string, params map[string]any, _ http.Header) (*transport.JSONRPCResponse, error) {
	if params == nil {
		params = map[string]any{}
	}
	return p.link.send(ctx, x, method, params)
}

func (p *sessionProtocol) setLevel(ctx context.Context) {
	if p.hub.level.Load() == p.sentLevel.Load() || !p.server.declares("logging") { // also before SetLogLevel: both are nil
		return
	}
	p.sendingLevel.Lock()
	defer p.sendingLevel.Unlock()
	level := p.hub.level.Load()
	if level == p.sentLevel.Load() { // another goroutine has sent this level
		return
	}
	bounded, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	_, err := p.request(bounded, "logging/setLevel", map[string]any{"level": cmp.Or(*level, "emergency")}, nil) // there is no level "none"
	if err != nil && ctx.Err() != nil {
		return // the next call of setLevel sends the level again
	}
	p.sentLevel.Store(level) // even if the server refused
}

func (p *sessionProtocol) subscribe(ctx context.Context, ws *watchList, w *watch) error {
	if err := w.busy.lock(ctx); err != nil {
		return err
	}
	defer w.busy.unlock()
	if subscribed, watched := ws.status(w, p.conn); subscribed || !watched {
		return nil
	}
	if _, err := p.request(ctx, "resources/subscribe", map[string]any{"uri": w.uri}, nil); err != nil {
		return err
	}
	ws.setSubscribed(w, p.conn)
	return nil
}

func (p *sessionProtocol) unsubscribe(ws *watchList, w *watch) {
	if w.busy.lock(p.life) != nil {
		ws.dropUnused(w) // the connection has ended, and its subscriptions with it
		return
	}
	defer w.busy.unlock()
	subscribed, watched := ws.status(w, p.conn)
	if watched {
		return // a listener has joined meanwhile
	}
	if subscribed {
		ctx, cancel := context.WithTimeout(p.life, noticeTimeout)
		defer cancel()
		// If this fails, the server sends updates, which are ignored.
		_, _ = p.request(ctx, "resources/unsubscribe", map[string]any{"uri": w.uri}, nil)
	}
	ws.setUnsubscribed(w)
}

func (p *sessionProtocol) resubscribe(ws *watchList) {
	for _, w := range ws.list() {
		ctx, cancel := context.WithTimeout(p.life, p.cfg.Timeouts.Idle)
		if err := p.subscribe(ctx, ws, w); err != nil {
			ws.markUpdated(w) // a listener that reads the resource gets the error
		}
		cancel()
	}
	ws.callListeners()
}

// A requestMeta is the _meta of a request. Version and the members after it are only set in revisions without sessions.
type requestMeta struct {
	Token string `json:"progressToken,omitempty"`
	tracecontext.Context
	Version      string          `json:"io.modelcontextprotocol/protocolVersion,omitempty"`
	Capabilities *capabilities   `json:"io.modelcontextprotocol/clientCapabilities,omitempty"`
	Client       json.RawMessage `json:"io.modelcontextprotocol/clientInfo,omitempty"`
	Level        string          `json:"io.modelcontextprotocol/logLevel,omitempty"`
}
