package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/tool/host"
)

// How many requests of one server are handled at a time. Further requests are refused at once, so that a flood costs
// little. The limit per host is lower, so that a host that does not answer does not block other hosts.
const (
	maxOpenRequests = 1024
	maxOpenPerHost  = 16
)

// A hub answers the server's requests. A client has one hub for all its connections, so that a server cannot reset the
// limit for sampling by crashing.
type hub struct {
	cfg     *config
	samples atomic.Int64           // number of sampling requests, for Limits.Samples
	level   atomic.Pointer[string] // set by SetLogLevel; nil until then

	mu         sync.Mutex
	roots      []string    // Options.Roots, or the directories of SetRoots
	openByHost map[any]int // requests in progress, by the host of the call
	open       int         // requests in progress of all hosts
}

func newHub(cfg *config) *hub { return &hub{cfg: cfg, roots: cfg.Roots, openByHost: map[any]int{}} }

// beginRequest counts a request of the server until end is called; ok is false if there are too many.
func (h *hub) beginRequest(ctx context.Context) (end func(), ok bool) {
	var key any // shared by requests without a host and hosts that cannot be map keys
	if caller := host.From(ctx); caller != nil && reflect.ValueOf(caller).Comparable() {
		key = caller
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open >= maxOpenRequests || h.openByHost[key] >= maxOpenPerHost {
		return nil, false
	}
	h.open++
	h.openByHost[key]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.open--
		if h.openByHost[key]--; h.openByHost[key] == 0 {
			delete(h.openByHost, key)
		}
	}, true
}

// rootDirs returns the working directories; ok is false if roots are not declared.
func (h *hub) rootDirs() ([]string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.roots, h.roots != nil
}

// setRootDirs replaces the working directories, and reports whether they have changed.
func (h *hub) setRootDirs(dirs []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if dirs == nil {
		dirs = []string{} // not nil, so that roots stay declared
	}
	changed := h.roots == nil || !slices.Equal(h.roots, dirs)
	h.roots = slices.Clone(dirs)
	return changed
}

// capabilities returns what the client declares to the server: nothing over SSE, where mcp-go cannot answer requests.
// notifies is protocol.notifies: only a revision with notifications announces changed roots, and only one without them has
// extensions.
func (h *hub) capabilities(kind wire, notifies bool) *capabilities {
	caps := new(capabilities)
	if kind == wireSSE {
		return caps
	}
	if h.cfg.Elicitation != nil {
		caps.Elicitation = new(elicitationModes)
	}
	if h.cfg.Sampling != nil {
		caps.Sampling = new(struct{})
	}
	if !notifies {
		caps.Extensions = map[string]struct{}{tasksExtension: {}, skillsExtension: {}}
	}
	if _, ok := h.rootDirs(); ok {
		caps.Roots = &rootsCapability{notifies}
	}
	return caps
}

// capabilities are what the client can do for a server.
type capabilities struct {
	Elicitation *elicitationModes `json:"elicitation,omitempty"`
	Sampling    *struct{}         `json:"sampling,omitempty"`
	Roots       *rootsCapability  `json:"roots,omitempty"`

	Extensions map[string]struct{} `json:"extensions,omitempty"`
}

type elicitationModes struct {
	Form struct{} `json:"form"`
	URL  struct{} `json:"url"`
}

type rootsCapability struct {
	ListChanged bool `json:"listChanged,omitempty"`
}

// handle returns the result for a request of the server.
func (h *hub) handle(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method == "ping" {
		return struct{}{}, nil
	}
	end, ok := h.beginRequest(ctx)
	if !ok {
		return nil, fmt.Errorf("%s: too many open requests (at most %d for the calls of one host, and %d in all); wait for an answer", method, maxOpenPerHost, maxOpenRequests)
	}
	defer end()
	dirs, hasRoots := h.rootDirs()
	switch {
	case method == "elicitation/create" && h.cfg.Elicitation != nil:
		return h.elicit(ctx, params)
	case method == "sampling/createMessage" && h.cfg.Sampling != nil:
		return h.sample(ctx, params)
	case method == "roots/list" && hasRoots:
		return listRoots(dirs)
	}
	return nil, &CallError{Server: h.cfg.name, Method: method, Code: codeMethodNotFound, Message: "this client does not support " + method}
}

// refuse returns an error answer for the server.
func (h *hub) refuse(code int, method, format string, args ...any) error {
	return &CallError{Server: h.cfg.name, Method: method, Code: code, Message: method + ": " + fmt.Sprintf(format, args...)}
}

// An elicitResult is the result of elicitation/create.
type elicitResult struct {
	Action  host.Action `json:"action"`
	Content any         `json:"content,omitempty"`
}

// elicit asks the user a question. A question that must not be shown is refused. An answer that does not fit
// the question is not sent, because the server may learn only what it has asked for.
func (h *hub) elicit(ctx context.Context, params json.RawMessage) (*elicitResult, error) {
	const method = "elicitation/create"
	var p struct {
		Mode    string          `json:"mode"`
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"requestedSchema"`
		URL     string          `json:"url"`
		ID      string          `json:"elicitationId"`
	}
	if err := strictjson.Unmarshal(params, &p); err != nil {
		return nil, h.refuse(codeInvalidParams, method, "%v", err)
	}
	mode := "form"
	if p.URL != "" {
		mode = "url"
	}
	if p.Mode != "" && p.Mode != mode {
		return nil, h.refuse(codeInvalidParams, method, "the mode %.20q does not match the other parameters", p.Mode)
	}
	q := host.Elicitation{Server: h.cfg.name, Message: p.Message, Schema: p.Schema, URL: p.URL, ID: clip(p.ID, maxNameBytes)}.Clean()
	if err := q.Check(); err != nil {
		return nil, h.refuse(codeInvalidParams, method, "%v", err)
	}
	answer, err := h.cfg.Elicitation(ctx, q)
	if ctx.Err() != nil {
		return &elicitResult{Action: host.ActionCancel}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	switch answer.Action {
	case host.ActionDecline, host.ActionCancel:
		return &elicitResult{Action: answer.Action}, nil
	case host.ActionAccept:
	default:
		return nil, fmt.Errorf("%s: Options.Elicitation returned the unknown action %q", method, answer.Action)
	}
	if answer, err = q.Accept(answer.Content); err != nil {
		return nil, fmt.Errorf("%s: the answer cannot be sent: %w", method, err)
	}
	res := &elicitResult{Action: host.ActionAccept}
	if q.URL == "" {
		res.Content = answer.Content
	}
	return res, nil
}

func (h *hub) sample(ctx context.Context, params json.RawMessage) (any, error) {
	const method = "sampling/createMessage"
	if n := h.samples.Add(1); h.cfg.Limits.Samples > 0 && n > int64(h.cfg.Limits.Samples) {
		return nil, h.refuse(codeRefused, method, "the server has used its %d samples", h.cfg.Limits.Samples)
	}
	req, err := h.sampleRequest(params)
	if err != nil {
		return nil, h.refuse(codeInvalidParams, method, "%v", err)
	}
	sample, err := h.cfg.Sampling(ctx, req)
	if errors.Is(err, host.ErrRefused) {
		return nil, h.refuse(codeRefused, method, "%v", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return map[string]any{
		"role": "assistant", "model": sample.Model, "stopReason": cmp.Or(sample.StopReason, "endTurn"),
		"content": map[string]any{"type": "text", "text": sample.Text},
	}, nil
}

// sampleRequest reads the params of sampling/createMessage.
func (h *hub) sampleRequest(params json.RawMessage) (req host.SampleRequest, err error) {
	var p struct {
		Messages    []promptMessage   `json:"messages"`
		System      string            `json:"systemPrompt"`
		MaxTokens   int               `json:"maxTokens"`
		Temperature *float64          `json:"temperature"`
		Stop        []string          `json:"stopSequences"`
		Tools       []json.RawMessage `json:"tools"`
		Preferences struct {
			Hints []struct {
				Name string `json:"name"`
			} `json:"hints"`
		} `json:"modelPreferences"`
	}
	if err := strictjson.Unmarshal(params, &p); err != nil {
		return req, err
	}
	if len(p.Tools) > 0 {
		return req, errors.New("this client does not support sampling with tools")
	}
	if len(p.Messages) == 0 {
		return req, errors.New("messages is empty")
	}
	req = host.SampleRequest{Server: h.cfg.name, System: visible.Text(p.System), MaxTokens: max(p.MaxTokens, 0), Temperature: p.Temperature, Stop: p.Stop}
	for _, hint := range p.Preferences.Hints {
		req.Hints = append(req.Hints, hint.Name)
	}
	for _, m := range p.Messages {
		req.Messages = append(req.Messages, m.message())
	}
	return req, nil
}

func listRoots(dirs []string) (any, error) {
	roots := []map[string]any{}
	for _, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, errors.New("roots/list: a working directory has no absolute path")
		}
		roots = append(roots, map[string]any{"uri": fileURI(filepath.ToSlash(abs)), "name": filepath.Base(abs)})
	}
	return map[string]any{"roots": roots}, nil
}

// fileURI returns the URI of an absolute path with slashes (RFC 8089). On Windows a path begins with a drive,
// or with the server of a share; either may follow the prefix of long paths.
func fileURI(path string) string {
	if long, ok := strings.CutPrefix(path, "//?/UNC/"); ok {
		path = "//" + long
	} else {
		path = strings.TrimPrefix(path, "//?/")
	}
	u := url.URL{Scheme: "file", Path: path}
	if share, ok := strings.CutPrefix(path, "//"); ok {
		u.Host, u.Path, _ = strings.Cut(share, "/")
	}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	return u.String()
}
