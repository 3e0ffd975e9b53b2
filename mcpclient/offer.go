package mcpclient

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// What a server offers besides tools, for whoever passes it on: lists and contents
// stay the JSON that they came as.

// Prompts returns the entries of prompts/list, as the server wrote them. As with
// [Client.Tools] the server is asked the first time and after a change, the last list
// stays while it restarts, and the slice is shared. A server that says that it has none is
// not asked.
func (c *Client) Prompts(ctx context.Context) ([]json.RawMessage, error) {
	return c.prompts.items(ctx, c)
}

// Resources returns the entries of resources/list; see [Client.Prompts].
func (c *Client) Resources(ctx context.Context) ([]json.RawMessage, error) {
	return c.resources.items(ctx, c)
}

// ResourceTemplates returns the entries of resources/templates/list; see
// [Client.Prompts].
func (c *Client) ResourceTemplates(ctx context.Context) ([]json.RawMessage, error) {
	return c.templates.items(ctx, c)
}

// ReadResource returns the result of resources/read. What the server asks meanwhile is
// answered as in a call of a tool, and the time-outs are the same.
func (c *Client) ReadResource(ctx context.Context, uri string) (json.RawMessage, error) {
	return c.fetch(ctx, "resources/read", "resource "+strconv.Quote(clip(uri, maxNameBytes)), map[string]any{"uri": uri})
}

// GetPrompt returns the result of prompts/get; see [Client.ReadResource].
func (c *Client) GetPrompt(ctx context.Context, name string, args map[string]string) (json.RawMessage, error) {
	params := map[string]any{"name": name}
	if len(args) > 0 {
		params["arguments"] = args
	}
	return c.fetch(ctx, "prompts/get", "prompt "+strconv.Quote(clip(name, maxNameBytes)), params)
}

// Complete returns the result of completion/complete: what the value of an argument could
// become that was typed as far as it is. Ref is what it is an argument of, as the protocol
// has it, and others are the arguments that are known already; see [Client.ReadResource]. A
// server that does not say that it completes anything is not asked, and the result is nil,
// as it is of one that does not know how to.
func (c *Client) Complete(ctx context.Context, ref map[string]any, argument, typed string, others map[string]string) (raw json.RawMessage, err error) {
	params := map[string]any{"ref": ref, "argument": map[string]any{"name": argument, "value": typed}}
	if len(others) > 0 {
		params["context"] = map[string]any{"arguments": others}
	}
	what := "completion of " + strconv.Quote(clip(argument, maxNameBytes))
	err = c.run(ctx, &job{what: what, again: true, do: func(ctx context.Context, cn *conn, _ string) error {
		if !cn.hello.offers("completions") && cn.version >= completionsDeclared {
			return nil
		}
		var asked error
		if raw, asked = cn.request(ctx, "completion/complete", params, nil); hasCode(asked, codeMethodNotFound) {
			return nil // which before that revision is how it says so
		}
		return asked
	}}, make(chan progress, 1))
	return raw, err
}

// completionsDeclared is the first revision in which servers that complete say so.
const completionsDeclared = "2025-03-26"

// fetch makes a request that changes nothing, so that it may be made twice.
func (c *Client) fetch(ctx context.Context, method, what string, params map[string]any) (raw json.RawMessage, err error) {
	err = c.run(ctx, &job{what: what, again: true, do: func(ctx context.Context, cn *conn, token string) error {
		params["_meta"] = map[string]any{"progressToken": token}
		var asked error
		_, raw, asked = cn.interact(ctx, method, what, params, nil)
		raw = visible.JSON(raw, visible.Contents)
		return asked
	}}, make(chan progress, 1)) // whose progress only shows that it lives
	return raw, err
}

// An offer is one of the lists besides that of tools.
type offer struct {
	method, capability string

	turn  chan struct{} // holds a token while the server is asked
	asked atomic.Bool
	news  atomic.Int64 // how often it may have become another list since it was asked for

	mu    sync.Mutex
	known bool
	of    int64 // what news was when it was listed
	list  []json.RawMessage
	until time.Time // when it is to be listed anew; zero for when told
}

func newOffer(method, capability string) *offer {
	return &offer{method: method, capability: capability, turn: make(chan struct{}, 1)}
}

// cached returns the last list, and whether it is still good.
func (o *offer) cached() (list []json.RawMessage, fresh bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list, o.known && o.of == o.news.Load() && (o.until.IsZero() || time.Now().Before(o.until))
}

func (o *offer) items(ctx context.Context, c *Client) ([]json.RawMessage, error) {
	if list, fresh := o.cached(); fresh {
		return list, nil
	}
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if list, fresh := o.cached(); fresh {
		return list, nil
	}
	list, err := o.ask(ctx, c)
	if err == nil {
		return list, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known && ctx.Err() == nil { // a server that is down withdraws nothing
		o.of, o.until = o.news.Load(), time.Now().Add(retryList)
		return o.list, nil
	}
	return nil, err
}

// ask lists anew.
func (o *offer) ask(ctx context.Context, c *Client) (list []json.RawMessage, err error) {
	cn, release, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	bounded, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout,
		fmt.Errorf("%w: %s was not answered in %v", ErrTimeout, o.method, c.cfg.Timeout))
	defer cancel()
	o.asked.Store(true)
	of := o.news.Load() // what changes from now on is not in it
	var ttl time.Duration
	if cn.hello.offers(o.capability) {
		list, ttl, _, err = cn.pages(bounded, o.method)
		if err != nil && !hasCode(err, codeMethodNotFound) { // some have resources, but no templates
			return nil, c.serverError(cn, err)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known, o.of, o.list, o.until = true, of, list[:min(len(list), maxTools)], time.Time{}
	if c.cfg.ListTTL > 0 {
		ttl = c.cfg.ListTTL
	}
	if ttl > 0 {
		o.until = time.Now().Add(ttl)
	}
	return o.list, nil
}

// offers reports whether the server says that it has the capability at all.
func (h *hello) offers(capability string) bool { return h.Capabilities[capability] != nil }

// Lists of a server that may change, as a set.
const (
	listOfTools uint32 = 1 << iota // and of groups
	listOfPrompts
	listOfResources // and of templates
	updates         // no list: of resources that are watched
	allLists        = listOfTools | listOfPrompts | listOfResources
)

// follow has the lists that have changed listed anew when somebody wants them, and
// tells the listeners.
func (c *Client) follow(lists uint32) {
	tell := false
	changed := func(list uint32, offers ...*offer) {
		for _, o := range offers {
			if lists&list != 0 && o.asked.Load() {
				o.news.Add(1)
				tell = true
			}
		}
	}
	changed(listOfPrompts, c.prompts)
	changed(listOfResources, c.resources, c.templates)
	if tell {
		c.tellChanged(ofOffers)
	}
}
