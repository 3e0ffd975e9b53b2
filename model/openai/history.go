package openai

import (
	"container/list"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/kitbag-go/kitbag/message"
)

const (
	// maxHistory bounds the bytes of encoded conversations that are kept.
	maxHistory = 64 << 20
	// maxLookBack is how many messages a request may add to a conversation and
	// still have it found.
	maxLookBack = 32
)

// A history keeps encoded conversations, so that a request that continues one encodes only what is
// new: without it a step costs as much as all that was said before. A conversation is found by its
// last message, to which there is only a weak pointer: once that is gone no request can continue the
// conversation, and it is dropped. The messages before it are held, so that comparing pointers is
// enough to know them again.
type history struct {
	responses bool // the form of the messages
	limit     int  // of size
	mu        sync.Mutex
	byLast    map[weak.Pointer[message.Message]]*list.Element
	recent    list.List // of *conversation, the latest first
	size      int       // of what is kept, in bytes
}

// A conversation is the wire form of messages. Whoever has taken it from the history owns it; while
// it is there, the history's lock guards it. The bytes that are written stay as they are, as requests
// may still be sending them; more are only appended.
type conversation struct {
	before []*message.Message // all but the last
	last   weak.Pointer[message.Message]
	wire   []byte          // a comma and an object for each message on the wire
	drop   runtime.Cleanup // calls forget when last is gone
}

// encode returns the wire form of msgs: said, which may be kept, and rest,
// which may still change, because tool calls at the end have no result yet.
func (h *history) encode(msgs []*message.Message, endpoint string) (said, rest []byte, err error) {
	c, n := h.take(msgs)
	e := newEncoder(c.wire, endpoint)
	e.responses = h.responses
	for n < len(msgs) {
		size, settled, err := e.unit(msgs[n:])
		if err != nil {
			return nil, nil, err
		}
		if !settled { // copied, since the next request writes over it
			rest = slices.Clone(e.wire.Bytes()[len(c.wire):])
			break
		}
		n += size
		c.wire = e.wire.Bytes()
	}
	// Once c is there again, another request may take it and append to it, in the memory
	// behind these bytes.
	said = slices.Clip(c.wire)
	if n > 0 {
		h.put(c, msgs[:n])
	}
	return said, rest, nil
}

// take removes and returns the longest conversation that msgs continues and its length, or a new
// one. Two requests that continue the same one at the same time do not share it: the second encodes
// all of it again.
func (h *history) take(msgs []*message.Message) (c *conversation, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(msgs) - 1; i >= max(0, len(msgs)-maxLookBack) && h.size > 0 && msgs[i] != nil; i-- {
		el := h.byLast[weak.Make(msgs[i])]
		if el == nil {
			continue
		}
		if c := el.Value.(*conversation); slices.Equal(c.before, msgs[:i]) {
			h.remove(el)
			return c, i + 1
		}
	}
	return new(conversation), 0
}

// put keeps c, which was taken or is new, as the conversation of msgs. One that would take a
// quarter of the limit is not kept: it would drive out too many others.
func (h *history) put(c *conversation, msgs []*message.Message) {
	if cap(c.wire) > h.limit/4 {
		return
	}
	end := len(msgs) - 1
	c.before = append(c.before, msgs[len(c.before):end]...)
	c.last = weak.Make(msgs[end])
	c.drop = runtime.AddCleanup(msgs[end], h.forget, c.last)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLast(c.last) // of a request that was faster
	if h.byLast == nil {
		h.byLast = map[weak.Pointer[message.Message]]*list.Element{}
	}
	h.byLast[c.last] = h.recent.PushFront(c)
	h.size += cap(c.wire)
	for h.size > h.limit {
		h.remove(h.recent.Back())
	}
}

// forget drops the conversation that ended with a message that is gone.
func (h *history) forget(last weak.Pointer[message.Message]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLast(last)
}

// removeLast takes out the conversation that ends with last, if there is one. The lock is held.
func (h *history) removeLast(last weak.Pointer[message.Message]) {
	if el := h.byLast[last]; el != nil {
		h.remove(el)
	}
}

// remove takes a conversation out. The lock is held.
func (h *history) remove(el *list.Element) {
	c := h.recent.Remove(el).(*conversation)
	delete(h.byLast, c.last)
	c.drop.Stop()
	h.size -= cap(c.wire)
}
