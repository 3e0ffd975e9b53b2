package inspect

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/catalog"
	"github.com/kitbag-go/kitbag/permission"
)

// Options configure a [Handler]. The zero value works.
type Options struct {
	// Token is the secret of the first request, of at least 16 bytes; "" means a random one, see [Handler.Token].
	Token string

	// Hosts are names that the Host of a request may have, without port, in addition to localhost and IP addresses.
	Hosts []string

	// Resume runs a session until nothing more can be done, like [session.Session.Run]. It is called in a goroutine
	// after an answer was sent, but not again for the same session until it has returned. [session.ErrConflict] means
	// that another process has the session and takes the answer. with is the session's [VariantOf]. If Resume is nil,
	// the page says that the answer waits.
	Resume func(ctx context.Context, session string, with Variant) error

	// Keep stores rules that the user accepts permanently with an answer. If nil, the page offers rules for the session
	// only.
	Keep func(ctx context.Context, session string, rules []permission.Rule) error

	// Policy and Call are for explaining decisions. Policy is the agent's, as far as it is known; its Dirs also apply to
	// another policy that the user gives. Call describes a call to the permission engine, as tool.PermissionCall does, or
	// returns nil. Without it calls are judged by the name of their tool only.
	Policy permission.Policy
	Call   func(session, tool string, input json.RawMessage) *permission.Call

	// Gateways returns the MCP gateways that run, and Pins the tools that wait for the user. Accept accepts the new
	// definition of one, if it is still the one that the user was shown.
	Gateways func(ctx context.Context) ([]Gateway, error)
	Pins     func(ctx context.Context) ([]Pin, error)
	Accept   func(ctx context.Context, p Pin) error

	// Note returns what is shown with a session: how it is stored, such as who has the key of its seal.
	Note func(in session.Info) string

	// Price returns what tokens cost in US dollars, false if that is not known; nil means the prices of package
	// [catalog].
	Price func(model string, u message.Usage) (cost float64, ok bool)
}

// A Handler serves the page at the request path "/". It must be closed.
type Handler struct {
	store session.Store
	opts  Options
	mux   *http.ServeMux

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex     // for work.Go before Close
	work   sync.WaitGroup // feeds and resumed runs

	digests digests
	list    hub // for pages with the list
	feeds   feeds
	resumed resumed
}

//go:embed page
var pageFiles embed.FS

// New returns a handler for the sessions of a store.
func New(store session.Store, opts Options) (*Handler, error) {
	if opts.Token == "" {
		opts.Token = rand.Text()
	}
	if len(opts.Token) < 16 {
		return nil, errors.New("inspect: Options.Token has less than 16 bytes; leave it empty for a random one")
	}
	if opts.Price == nil {
		opts.Price = cataloguePrice
	}
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		return nil, err
	}
	h := &Handler{store: store, opts: opts, mux: http.NewServeMux()}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.mux.Handle("GET /", http.FileServerFS(files))
	h.handle("GET /api/sessions", h.listSessions)
	h.handle("GET /api/inbox", h.listQuestions)
	h.handleSession("GET /api/sessions/{id}", h.showSession)
	h.handleSession("GET /api/sessions/{id}/rows", h.showRows)
	h.handleSession("GET /api/sessions/{id}/requests", h.showRequests)
	h.handleSession("GET /api/sessions/{id}/groups", h.showGroups)
	h.handleSession("GET /api/sessions/{id}/find", h.findRow)
	h.handleSession("GET /api/sessions/{id}/details", h.showDetails)
	h.handleSession("POST /api/sessions/{id}/answer", h.answer)
	h.handleSession("POST /api/sessions/{id}/resume", h.resume)
	h.handleSession("POST /api/sessions/{id}/fork", h.fork)
	h.handleSession("POST /api/sessions/{id}/judge", h.judge)
	h.handleSession("GET /api/sessions/{id}/compare", h.compare)
	h.handle("GET /api/gateways", h.showGateways)
	h.handle("POST /api/pins/accept", h.acceptPin)
	h.mux.HandleFunc("GET /api/sessions/{id}/export", h.export)
	h.mux.HandleFunc("GET /api/live", h.live)
	return h, nil
}

// Token returns the secret for the query parameter "token" of the first request.
func (h *Handler) Token() string { return h.opts.Token }

// Close ends the requests for live updates and the runs that were resumed, and waits for them.
func (h *Handler) Close() {
	h.mu.Lock()
	h.cancel()
	h.mu.Unlock()
	h.work.Wait()
}

// start runs f on a goroutine that Close waits for. It returns false after Close.
func (h *Handler) start(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return false
	}
	h.work.Go(f)
	return true
}

// ServeHTTP serves the page, its files and its interface, to requests with the cookie of the token.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.guard(w, r) {
		h.mux.ServeHTTP(w, r)
	}
}

// handle registers a function that returns what is written as JSON.
func (h *Handler) handle(pattern string, f func(*http.Request) (any, error)) {
	h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		out, err := f(r)
		var data []byte
		if err == nil {
			data, err = json.Marshal(out)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data) // the browser has gone
	})
}

// handleSession is handle for what is about a session.
func (h *Handler) handleSession(pattern string, f func(r *http.Request, id string) (any, error)) {
	h.handle(pattern, func(r *http.Request) (any, error) {
		id, err := sessionID(r)
		if err != nil {
			return nil, err
		}
		return f(r, id)
	})
}

// A badRequest is the error for a request that the page does not make.
type badRequest string

func (e badRequest) Error() string { return string(e) }

// badBody is the error for a body that does not decode.
func badBody(err error) error { return badRequest("the request body is not valid: " + err.Error()) }

// writeError writes an error as JSON, so that the page can show it.
func writeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	_, bad := errors.AsType[badRequest](err)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, session.ErrGone):
		code = http.StatusNotFound
	case errors.Is(err, session.ErrConflict), errors.Is(err, session.ErrFull):
		code = http.StatusConflict
	case bad:
		code = http.StatusBadRequest
	}
	data, _ := json.Marshal(map[string]string{"error": err.Error()}) // strings always encode
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data)
}

// cataloguePrice returns the cost by the prices of package catalog, which a dated name of a model is found by, too.
func cataloguePrice(model string, u message.Usage) (float64, bool) {
	m, ok := catalog.Default().Find(model)
	if !ok || m.Price == nil {
		return 0, false
	}
	return m.Price.Cost(u), true
}

// sessionID returns the session of a request, if it is a valid id.
func sessionID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if err := session.CheckID(id); err != nil {
		return "", badRequest(err.Error())
	}
	return id, nil
}

// contains reports whether any of the texts contains the lower-case text q.
func contains(q string, texts ...string) bool {
	for _, t := range texts {
		if strings.Contains(strings.ToLower(t), q) {
			return true
		}
	}
	return q == ""
}
