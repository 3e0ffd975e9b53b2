package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// A catalogue keeps the server's last lists and the listeners for their changes. It requests a list on first use, when it
// has expired, and after the server has announced a change.
type catalogue struct {
	cfg    *config
	sup    *supervisor
	caller toolCaller // of the listed tools

	wake           chan struct{} // has one element when pendingChanges may not be zero
	pendingChanges atomic.Uint32 // what maintain must update, such as listOfTools

	listing   ctxMutex                 // held during tools/list
	snap      atomic.Pointer[snapshot] // nil before the first list
	knownPins sync.Map                 // pinned definitions by tool, so that not every call reads Options.Pins

	prompts              *listCache[Prompt]
	resources, templates *listCache[Resource]
	skills               *listCache[*remoteSkill]
	skillCache           fileCache
	watches              *watchList
	listeners            listeners
}

// A toolCaller calls tools.
type toolCaller interface {
	call(ctx context.Context, t *remoteTool, args json.RawMessage, steps chan progress) (*result, error)
}

func newCatalogue(cfg *config, sup *supervisor) *catalogue {
	return &catalogue{cfg: cfg, sup: sup, wake: make(chan struct{}, 1), listing: make(ctxMutex, 1),
		prompts:   newListCache("prompts/list", "prompts", decodePrompt),
		resources: newListCache("resources/list", "resources", decodeResource),
		templates: newListCache("resources/templates/list", "resources", decodeResource),
		skills:    newListCache("skills/list", skillsExtension, decodeSkill),
		watches:   &watchList{wake: make(chan struct{}, 1), all: map[string]*watch{}}}
}

// listeners are functions that are called after changes.
type listeners struct {
	mu  sync.Mutex
	all [listenerKinds][]*func() // pointers, to be comparable; each slice is replaced, never changed in place
}

// The kinds of listeners.
const (
	onTools = iota
	onPrompts
	onResources
	listenerKinds
)

func (l *listeners) add(kind int, fn func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	added := &fn
	l.all[kind] = append(slices.Clip(l.all[kind]), added)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all[kind] = slices.DeleteFunc(slices.Clone(l.all[kind]), func(o *func()) bool { return o == added })
	}
}

func (l *listeners) call(kind int) {
	l.mu.Lock()
	all := l.all[kind]
	l.mu.Unlock()
	for _, fn := range all {
		(*fn)()
	}
}

// What may change on the server, as a bit set.
const (
	listOfTools uint32 = 1 << iota // and of groups
	listOfPrompts
	listOfResources // and of templates and skills
	watchedResources
	allLists = listOfTools | listOfPrompts | listOfResources
)

// invalidate makes the next use of changed prompts and resources request them again, and calls their listeners.
func (c *catalogue) invalidate(changes uint32) {
	if changes&listOfPrompts != 0 && c.prompts.markChanged() {
		c.listeners.call(onPrompts)
	}
	if changes&listOfResources == 0 {
		return
	}
	resources, templates, skills := c.resources.markChanged(), c.templates.markChanged(), c.skills.markChanged()
	if resources || templates || skills {
		c.listeners.call(onResources)
	}
}

// current returns the snapshot. It requests the list on first use and when the snapshot has expired; maintain requests
// the list after announced changes.
func (c *catalogue) current(ctx context.Context) (*snapshot, error) {
	s := c.snap.Load()
	if s != nil && (s.expires.IsZero() || time.Now().Before(s.expires)) {
		return s, nil
	}
	fresh, err := c.refresh(ctx, s)
	if err != nil && s != nil && ctx.Err() == nil {
		// The server is down: keep its tools, and list again later.
		kept := *s
		kept.expires = time.Now().Add(retryListAfter)
		c.snap.CompareAndSwap(s, &kept)
		return s, nil
	}
	return fresh, err
}

// retryListAfter is how long a list that could not be refreshed is used.
const retryListAfter = 10 * time.Second

// refresh lists again, unless another goroutine has done so since old was read.
func (c *catalogue) refresh(ctx context.Context, old *snapshot) (*snapshot, error) {
	if err := c.listing.lock(ctx); err != nil {
		return nil, err
	}
	defer c.listing.unlock()
	if s := c.snap.Load(); s != old {
		return s, nil
	}
	return c.relist(ctx, old)
}

// relistAfterChange lists again after an announced change. It waits for a listing in progress, which may be
// older than the change. Before the first list it does nothing; on failure the last list is kept.
func (c *catalogue) relistAfterChange(ctx context.Context) error {
	err := c.listing.lock(ctx)
	if err != nil {
		return err
	}
	defer c.listing.unlock()
	if old := c.snap.Load(); old != nil {
		_, err = c.relist(ctx, old)
	}
	return err
}

// relistWait is how long a call waits for a list that the call has changed.
const relistWait = 2 * time.Second

// relistAnnounced lists the tools again before a call returns, if the server has announced a change meanwhile, so that
// the model's next request shows what the call changed.
func (c *catalogue) relistAnnounced(ctx context.Context) {
	toolsChanged := c.pendingChanges.And(^listOfTools)&listOfTools != 0 // And clears the bit and returns the old value
	if !toolsChanged && len(c.listing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, relistWait)
	defer cancel()
	if toolsChanged && c.relistAfterChange(ctx) != nil {
		c.scheduleUpdate(listOfTools)
	}
	if c.listing.lock(ctx) == nil { // maintain may be listing after the same change: wait until it has finished
		c.listing.unlock()
	}
}

// relist requests the tools and groups, and stores the snapshot. It tries again once if the connection is lost.
// c.listing is held.
func (c *catalogue) relist(ctx context.Context, old *snapshot) (*snapshot, error) {
	var s *snapshot
	for try := 0; ; try++ {
		cn, release, err := c.sup.acquire(ctx)
		if err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeouts.Idle,
			fmt.Errorf("%w: tools/list was not answered in %v", ErrTimeout, c.cfg.Timeouts.Idle))
		s, err = c.listTools(bounded, cn)
		cancel()
		release()
		if err == nil {
			break
		}
		if try > 0 || !errors.Is(err, ErrLost) || ctx.Err() != nil {
			return nil, c.cfg.serverError(cn, err)
		}
	}
	if old != nil && old.digest == s.digest {
		// Equal content keeps the same slice, so that nothing changes for the model.
		kept := *old
		kept.expires = s.expires
		c.snap.Store(&kept)
		return &kept, nil
	}
	c.sup.setWorked()
	c.snap.Store(s)
	if old != nil {
		c.listeners.call(onTools)
	}
	return s, nil
}

// connected implements connObserver. A restarted server may have other lists.
func (c *catalogue) connected(again bool) {
	if again {
		c.scheduleUpdate(allLists)
	}
}

// scheduleUpdate makes maintain update what has changed, after a debounce.
func (c *catalogue) scheduleUpdate(changes uint32) {
	c.pendingChanges.Or(changes)
	signal(c.wake)
}

// notify handles a notification of the server. It runs on the reading goroutine.
func (c *catalogue) notify(method string, params map[string]any) {
	switch method {
	case mcp.MethodNotificationResourceUpdated:
		if uri, _ := params["uri"].(string); c.watches.markURIUpdated(uri) {
			c.scheduleUpdate(watchedResources)
		}
	case "notifications/tools/list_changed", "notifications/groups/list_changed":
		c.scheduleUpdate(listOfTools)
	case mcp.MethodNotificationPromptsListChanged:
		c.scheduleUpdate(listOfPrompts)
	case mcp.MethodNotificationResourcesListChanged:
		c.scheduleUpdate(listOfResources)
	case mcp.MethodNotificationSubscriptionsAcknowledged:
		c.scheduleUpdate(allLists) // changes before the subscription were not announced
	}
}

// debounce is how long announced changes are collected before maintain updates. The time doubles, up to
// maxDebounce, while the server continues to announce changes.
const (
	debounce    = 200 * time.Millisecond
	maxDebounce = 10 * time.Second
)

// A debouncer computes how long changes are collected.
type debouncer struct {
	delay   time.Duration // the last result of next
	updated time.Time     // when maintain last updated
}

// next returns how long to collect after a change. It starts at debounce again if the server was quiet for
// twice the last delay.
func (d *debouncer) next() time.Duration {
	if d.delay > 0 && time.Since(d.updated) < 2*d.delay {
		d.delay = min(2*d.delay, maxDebounce)
	} else {
		d.delay = debounce
	}
	return d.delay
}

// maintain implements connObserver. It updates what the server announces as changed, and pings an idle server.
func (c *catalogue) maintain(cn *conn) {
	cn.goWork(cn.protocol.listenLists)
	if cn.server.declaresSubscribe() {
		cn.goWork(func() { cn.protocol.resubscribe(c.watches) })
	}
	var tick <-chan time.Time
	if c.cfg.PingInterval > 0 {
		tick = time.Tick(c.cfg.PingInterval)
	}
	var d debouncer
	var due <-chan time.Time // nil while no change waits
	wake := c.wake           // nil while changes are collected
	for {
		select {
		case <-cn.life.Done():
			return
		case <-wake:
			wake, due = nil, time.After(d.next())
		case <-due:
			select {
			case <-c.wake: // for a change that is in pendingChanges now
			default:
			}
			changes := c.pendingChanges.Swap(0)
			if changes&listOfTools != 0 {
				_ = c.relistAfterChange(cn.life) // on failure the last list is kept
			}
			c.invalidate(changes)
			if changes&watchedResources != 0 {
				c.watches.callListeners()
			}
			wake, due, d.updated = c.wake, nil, time.Now()
		case <-tick:
			cn.pingIdle(c.cfg.PingInterval)
		}
	}
}
