package openai

import (
	"container/list"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

const (
	// maxHistory bounds the bytes of encoded conversations that are kept.
	maxHistory = 64 << 20
	// maxLookBack is the maximum number of messages that a request may add to a kept conversation.
	maxLookBack = 32
)

// A history keeps encoded conversations, so that a request that continues one encodes only the new messages;
// otherwise each step costs as much as the whole conversation. A conversation is found by its last message, which has
// only a weak pointer: once that message is collected no request can continue the conversation, and it is dropped.
// The messages before it have strong pointers, so that comparing pointers suffices to recognize them.
type history struct {
	responses bool // encode for the Responses API
	limit     int  // the maximum size
	mu        sync.Mutex
	byLast    map[weak.Pointer[message.Message]]*list.Element
	recent    list.List // of *conversation, the latest first
	size      int       // bytes of all kept conversations

	withoutReasoning provider.MessageSet // answers whose reasoning is not sent
	drops            int                 // the number of calls that have added to withoutReasoning
}

// A conversation is the wire form of messages. While it is in the history, the history's lock guards
// it; the caller that removed it owns it. Bytes that are written never change, as requests may still be
// sending them; more are only appended.
type conversation struct {
	before []*message.Message // all but the last
	last   weak.Pointer[message.Message]
	wire   []byte          // a comma and an object for each message on the wire
	drop   runtime.Cleanup // calls forget when last is gone

	changes []*model.ToolChange // the changes that wire contains
	drops   int                 // history.drops when the encoding began
}

// encode returns the wire form of msgs and of the changes to the tools in two parts: settled may be kept; rest may
// still change, because tool calls at the end have no result yet, or no answer follows a change.
func (h *history) encode(msgs []*message.Message, endpoint string, tools *toolList) (settled, rest []byte, err error) {
	c, n := h.take(msgs, tools)
	e := newEncoder(c.wire, endpoint)
	e.responses, e.tools, e.withoutReasoning = h.responses, tools, &h.withoutReasoning
	written := len(c.changes)
	writeChanges := func() (err error) {
		for ; err == nil && written < len(tools.changes) && tools.changes[written].At <= n; written++ {
			err = e.change(written)
		}
		return err
	}
	for n < len(msgs) && err == nil {
		if err = writeChanges(); err != nil {
			break
		}
		count, unitSettled, unitErr := e.unit(msgs[n:])
		if err = unitErr; !unitSettled {
			break
		}
		n += count
		c.wire, c.changes = e.wire.Bytes(), tools.changes[:written]
	}
	kept := n
	if n = len(msgs); err == nil {
		err = writeChanges()
	}
	if err != nil {
		return nil, nil, err
	}
	rest = slices.Clone(e.wire.Bytes()[len(c.wire):]) // cloned, since the next request overwrites these bytes
	// Once c is in the history again, another request may take it and append to it, in the memory after these bytes.
	settled = slices.Clip(c.wire)
	if kept > 0 {
		h.put(c, msgs[:kept])
	}
	return settled, rest, nil
}

// take removes and returns the longest conversation that msgs continues, and its length, or returns an empty one. Of
// two concurrent requests that continue the same conversation, the second encodes all messages again.
func (h *history) take(msgs []*message.Message, tools *toolList) (c *conversation, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(msgs) - 1; i >= max(0, len(msgs)-maxLookBack) && h.size > 0 && msgs[i] != nil; i-- {
		el := h.byLast[weak.Make(msgs[i])]
		if el == nil {
			continue
		}
		if c := el.Value.(*conversation); slices.Equal(c.before, msgs[:i]) && tools.continues(c, i+1) {
			h.remove(el)
			return c, i + 1
		}
	}
	return &conversation{drops: h.drops}, 0
}

// put keeps c as the conversation of msgs. A conversation that needs more than a quarter of the limit is not kept: it
// would evict too many others.
func (h *history) put(c *conversation, msgs []*message.Message) {
	if cap(c.wire) > h.limit/4 {
		return
	}
	end := len(msgs) - 1
	c.before = append(c.before, msgs[len(c.before):end]...)
	c.last = weak.Make(msgs[end])
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.drops != h.drops { // wire may contain reasoning that has been dropped since
		return
	}
	c.drop = runtime.AddCleanup(msgs[end], h.forget, c.last)
	h.removeLast(c.last) // a concurrent request may have put it
	if h.byLast == nil {
		h.byLast = map[weak.Pointer[message.Message]]*list.Element{}
	}
	h.byLast[c.last] = h.recent.PushFront(c)
	h.size += cap(c.wire)
	for h.size > h.limit {
		h.remove(h.recent.Back())
	}
}

// forget drops the conversation whose last message was collected.
func (h *history) forget(last weak.Pointer[message.Message]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLast(last)
}

// removeLast removes the conversation that ends with last, if there is one. The caller holds the lock.
func (h *history) removeLast(last weak.Pointer[message.Message]) {
	if el := h.byLast[last]; el != nil {
		h.remove(el)
	}
}

// remove removes a conversation. The caller holds the lock.
func (h *history) remove(el *list.Element) {
	c := h.recent.Remove(el).(*conversation)
	delete(h.byLast, c.last)
	c.drop.Stop()
	h.size -= cap(c.wire)
}
