package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/message"
)

// A Resource is content that a server offers, or a template of such content.
type Resource struct {
	URI         string // the URI template (RFC 6570) if it is from [Client.ResourceTemplates]
	Name        string
	Title       string          // may be empty
	Description string          // may be empty
	MediaType   string          // may be empty
	Size        int64           // in bytes; 0 if unknown
	Raw         json.RawMessage // the whole entry
}

// A ResourceResult is what [Client.ReadResource] returns.
type ResourceResult struct {
	Blocks message.Blocks  // text or data, one block for each element of contents
	Raw    json.RawMessage // the whole result
}

// Resources returns the server's resources, which are cached like [Client.Prompts].
func (c *Client) Resources(ctx context.Context) ([]Resource, error) {
	return c.cat.resources.get(ctx, c.cat)
}

// ResourceTemplates returns the server's resource templates, which are cached like [Client.Prompts].
func (c *Client) ResourceTemplates(ctx context.Context) ([]Resource, error) {
	return c.cat.templates.get(ctx, c.cat)
}

// decodeResource reads an entry of a list; ok is false if it cannot be read or has no URI.
func decodeResource(raw json.RawMessage) (r Resource, ok bool) {
	var e struct {
		URI         string          `json:"uri"`
		Template    string          `json:"uriTemplate"`
		Name        string          `json:"name"`
		Title       string          `json:"title"`
		Description string          `json:"description"`
		MediaType   string          `json:"mimeType"`
		Size        json.RawMessage `json:"size"`
	}
	if strictjson.Unmarshal(raw, &e) != nil {
		return r, false
	}
	r = Resource{URI: cmp.Or(e.URI, e.Template), Name: e.Name, Title: e.Title, Description: e.Description, MediaType: e.MediaType, Raw: raw}
	_ = json.Unmarshal(e.Size, &r.Size) // an unreadable size is only in Raw
	return r, r.URI != ""
}

// ReadResource returns the contents of a resource. For timeouts and requests of the server see [Client.GetPrompt].
func (c *Client) ReadResource(ctx context.Context, uri string) (*ResourceResult, error) {
	raw, err := c.fetchVisible(ctx, "resources/read", "resource "+strconv.Quote(clip(uri, maxNameBytes)), map[string]any{"uri": uri})
	if err != nil {
		return nil, err
	}
	out := &ResourceResult{Raw: raw}
	var r struct {
		Contents []resourceContents `json:"contents"`
	}
	_ = strictjson.Unmarshal(raw, &r) // unreadable contents are only in Raw
	for _, rc := range r.Contents {
		out.Blocks = append(out.Blocks, rc.block())
	}
	return out, nil
}

type resourceContents struct {
	URI       string  `json:"uri"`
	MediaType string  `json:"mimeType"`
	Text      *string `json:"text"`
	Blob      []byte  `json:"blob"`
}

func (rc resourceContents) block() message.Block {
	if rc.Text != nil {
		return &message.Text{Text: visible.Result(*rc.Text)}
	}
	d := &message.Data{Name: rc.URI, MediaType: rc.MediaType, Bytes: rc.Blob}
	removeInvisible(d)
	return d
}

// fetchVisible is runner.fetch, and removes invisible characters from the result.
func (c *Client) fetchVisible(ctx context.Context, method, what string, params map[string]any) (json.RawMessage, error) {
	raw, err := c.runner.fetch(ctx, method, what, params)
	return visible.JSON(raw, visible.Contents), err
}

// fetch makes a request that changes nothing on the server, and so may be repeated. what names its object in errors.
func (r *runner) fetch(ctx context.Context, method, what string, params map[string]any) (raw json.RawMessage, err error) {
	err = r.run(ctx, &job{what: what, repeatable: true, do: func(ctx context.Context, cn *conn, token string) (err error) {
		params["_meta"] = requestMeta{Token: token}
		_, raw, err = cn.requestWithInput(ctx, method, what, params, nil)
		return err
	}}, make(chan progress, 1)) // progress only extends the timeout
	return raw, err
}

// A listCache keeps a list of the server's prompts, resources, resource templates or skills.
type listCache[T any] struct {
	method, capability string
	decode             func(json.RawMessage) (T, bool) // false leaves the entry out

	requesting ctxMutex // held while get requests the list
	requested  atomic.Bool
	changes    atomic.Int64 // how often the list may have changed since the first request

	mu          sync.Mutex
	listed      bool // list was received
	list        []T
	changesSeen int64     // the value of changes when the list was requested
	expires     time.Time // zero: only when the server announces a change
}

func newListCache[T any](method, capability string, decode func(json.RawMessage) (T, bool)) *listCache[T] {
	return &listCache[T]{method: method, capability: capability, decode: decode, requesting: make(ctxMutex, 1)}
}

// markChanged records that the list may have changed, and reports whether it was ever requested.
func (l *listCache[T]) markChanged() bool {
	if !l.requested.Load() {
		return false
	}
	l.changes.Add(1)
	return true
}

// cached returns the last list, and whether it is up to date.
func (l *listCache[T]) cached() (list []T, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list, l.listed && l.changesSeen == l.changes.Load() && (l.expires.IsZero() || time.Now().Before(l.expires))
}

// get returns the list. It requests the list if the cached list is not up to date.
func (l *listCache[T]) get(ctx context.Context, c *catalogue) ([]T, error) {
	if list, fresh := l.cached(); fresh {
		return list, nil
	}
	if err := l.requesting.lock(ctx); err != nil {
		return nil, err
	}
	defer l.requesting.unlock()
	if list, fresh := l.cached(); fresh {
		return list, nil
	}
	list, err := l.request(ctx, c)
	if err == nil {
		return list, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listed && ctx.Err() == nil { // use the last list while the server is down
		l.changesSeen, l.expires = l.changes.Load(), time.Now().Add(retryListAfter)
		return l.list, nil
	}
	return nil, err
}

// request requests the list from the server.
func (l *listCache[T]) request(ctx context.Context, c *catalogue) ([]T, error) {
	cn, release, err := c.sup.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	bounded, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeouts.Idle,
		fmt.Errorf("%w: %s was not answered in %v", ErrTimeout, l.method, c.cfg.Timeouts.Idle))
	defer cancel()
	l.requested.Store(true)
	changesSeen := l.changes.Load() // the answer may lack changes from now on
	var ttl time.Duration
	list := []T{}
	if cn.server.declares(l.capability) {
		var raws []json.RawMessage
		raws, ttl, _, err = cn.listAll(bounded, l.method)
		if err != nil && !hasCode(err, codeMethodNotFound) { // some servers have resources, but no templates
			return nil, c.cfg.serverError(cn, err)
		}
		for _, raw := range raws[:min(len(raws), maxEntries)] {
			if item, ok := l.decode(raw); ok {
				list = append(list, item)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed, l.changesSeen, l.list, l.expires = true, changesSeen, list, time.Time{}
	if ttl = cmp.Or(c.cfg.ListTTL, ttl); ttl > 0 {
		l.expires = time.Now().Add(ttl)
	}
	return l.list, nil
}
