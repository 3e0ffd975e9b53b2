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

// A history keeps encoded conversations, so that a request that continues a conversation encodes only the new messages,
// not all. A conversation is found by its last message, to which the history has only a weak pointer: once the last
// message is garbage-collected, no request can continue the conversation, and the history drops the conversation. To
// the earlier messages there are strong pointers, so that a pointer cannot be reused for another message.
type history struct {
	responses bool // encode for the Responses API
	limit     int  // of size
	mu        sync.Mutex
	byLast    map[weak.Pointer[message.Message]]*list.Element
	recent    list.List // of *conversation, the latest first
	size      int       // bytes in all kept conversations

	withoutReasoning provider.MessageSet // answers whose reasoning is not sent back
	reasoningDrops   int                 // how often dropReasoning has added to withoutReasoning
}

// A conversation is the wire form of messages. The history's lock guards the conversations in the history; encode takes
// a conversation out while it appends to wire. The bytes in wire never change, as earlier requests may still be sending
// them.
type conversation struct {
	before  []*message.Message // all but the last
	last    weak.Pointer[message.Message]
	wire    []byte          // a comma and an object for each message on the wire
	cleanup runtime.Cleanup // calls forget when last was garbage-collected

	changes        []*model.ToolChange // the changes that wire contains
	reasoningDrops int                 // history.reasoningDrops when the encoding began
}

// encode returns the wire form of msgs and of the changes to the tools in two parts: settled may be kept; rest may
// still change, because tool calls at the end have no result yet, or no answer follows a change.
func (h *history) encode(msgs []*message.Message, endpoint string, tools *toolList) (settled, rest []byte, err error) {
	c, n := h.take(msgs, tools)
	e := newEncoder(c.wire, endpoint)
	e.responses, e.tools, e.withoutReasoning = h.responses, tools, &h.withoutReasoning
	changes := len(c.changes) // the number of encoded changes
	for n < len(msgs) {
		if changes, err = e.addChanges(changes, n); err != nil {
			return nil, nil, err
		}
		count, unitSettled, err := e.addUnit(msgs[n:])
		if err != nil {
			return nil, nil, err
		}
		if !unitSettled { // these are the last messages
			break
		}
		n += count
		c.wire, c.changes = e.wire.Bytes(), tools.changes[:changes]
	}
	if _, err = e.addChanges(changes, len(msgs)); err != nil {
		return nil, nil, err
	}
	rest = slices.Clone(e.wire.Bytes()[len(c.wire):]) // the next request may overwrite these bytes
	settled = slices.Clip(c.wire)                     // the next request may append to c.wire
	if n > 0 {
		h.put(c, msgs[:n])
	}
	return settled, rest, nil
}

// take removes and returns the longest conversation that msgs continues, and the number of its messages; without such a
// conversation, a new one. Of two concurrent requests that continue the same conversation, the second encodes all
// messages again.
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
	return &conversation{reasoningDrops: h.reasoningDrops}, 0
}

// put keeps c as the conversation of msgs. A conversation that needs more than a quarter of the limit is not kept,
// because it would evict too many other conversations.
func (h *history) put(c *conversation, msgs []*message.Message) {
	if cap(c.wire) > h.limit/4 {
		return
	}
	before, last := msgs[:len(msgs)-1], msgs[len(msgs)-1]
	c.before = append(c.before, before[len(c.before):]...)
	c.last = weak.Make(last)
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.reasoningDrops != h.reasoningDrops { // wire may contain reasoning that was dropped during the encoding
		return
	}
	c.cleanup = runtime.AddCleanup(last, h.forget, c.last)
	h.removeLast(c.last) // of a concurrent request with the same messages
	if h.byLast == nil {
		h.byLast = map[weak.Pointer[message.Message]]*list.Element{}
	}
	h.byLast[c.last] = h.recent.PushFront(c)
	h.size += cap(c.wire)
	for h.size > h.limit {
		h.remove(h.recent.Back())
	}
}

// forget drops the conversation whose last message was garbage-collected.
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
	c.cleanup.Stop()
	h.size -= cap(c.wire)
}
