package openai

import (
	"reflect"
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

// A history keeps encoded conversations, so that a request that continues one
// encodes only what is new. A conversation is found by its last message, to
// which there is only a weak pointer: once nobody else has that message, no
// request can continue the conversation, and it is dropped. The messages before
// it are held, so that comparing pointers is enough to know them again.
type history struct {
	limit         int // of size
	mu            sync.Mutex
	conversations map[uintptr]*conversation // by the address of the last message
	recent        conversation              // the head of a ring: next is the latest, prev the one that goes first
	size          int                       // of what is kept, in bytes
}

// A conversation is the wire form of messages. Whoever has taken it from the history owns
// it; while it is there, the history's lock guards it. The bytes that are written stay as
// they are, as requests may still be sending them; only behind them more are appended.
type conversation struct {
	next, prev *conversation // nil while it is taken

	messages int // how many, the last one included
	before   []*message.Message
	address  uintptr // of last, which an other message may have once that is gone
	last     weak.Pointer[message.Message]
	wire     []byte          // a comma and an object for each message on the wire
	drop     runtime.Cleanup // calls forget when last is gone
}

// address makes a key of a message at less cost than that of a weak pointer.
func address(m *message.Message) uintptr { return reflect.ValueOf(m).Pointer() }

// encode returns the wire form of msgs: said, which may be kept, and rest,
// which may still change, because tool calls at the end have no result yet.
func (h *history) encode(msgs []*message.Message, endpoint string) (said, rest []byte, err error) {
	c := h.take(msgs)
	n := c.messages
	e := encoder{wire: c.wire, endpoint: endpoint}
	for n < len(msgs) {
		size, settled, err := e.unit(msgs[n:])
		if err != nil {
			return nil, nil, err
		}
		if !settled { // copied, since the next request writes over it
			rest = slices.Clone(e.wire[len(c.wire):])
			break
		}
		n += size
		c.wire = e.wire
	}
	// Once c is there again, another request may take it and append to it, in the memory
	// behind these bytes.
	said = slices.Clip(c.wire)
	if n > 0 {
		h.put(c, msgs[:n])
	}
	return said, rest, nil
}

// take removes and returns the longest conversation that msgs continues, or a
// new one. Whoever has taken one may append to its bytes. Two requests that continue the same
// one at the same time do not share it: the second encodes all of it again.
func (h *history) take(msgs []*message.Message) *conversation {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(msgs) - 1; i >= 0 && i >= len(msgs)-maxLookBack && h.size > 0; i-- {
		c := h.conversations[address(msgs[i])]
		if c != nil && c.last.Value() == msgs[i] && slices.Equal(c.before, msgs[:i]) {
			h.remove(c)
			return c
		}
	}
	return new(conversation)
}

// put keeps c, which was taken or is new, as the conversation of msgs. One that would take a
// quarter of the limit is not kept: it would drive out too many others.
func (h *history) put(c *conversation, msgs []*message.Message) {
	if cap(c.wire) > h.limit/4 {
		return
	}
	c.messages = len(msgs)
	end := len(msgs) - 1
	c.before = append(c.before, msgs[len(c.before):end]...)
	c.last, c.address = weak.Make(msgs[end]), address(msgs[end])
	c.drop = runtime.AddCleanup(msgs[end], forget, forgotten{h, c.address, c.last})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conversations == nil {
		h.conversations = map[uintptr]*conversation{}
		h.recent.next, h.recent.prev = &h.recent, &h.recent
	}
	if old := h.conversations[c.address]; old != nil { // another request was faster, or the message of old is gone
		h.remove(old)
	}
	h.conversations[c.address] = c
	c.next, c.prev = h.recent.next, &h.recent
	c.next.prev, c.prev.next = c, c
	h.size += cap(c.wire)
	for h.size > h.limit {
		h.remove(h.recent.prev)
	}
}

// forgotten is what forget is called with. It must not lead to the message, which would
// then never be gone.
type forgotten struct {
	h       *history
	address uintptr
	last    weak.Pointer[message.Message]
}

// forget drops the conversation that ended with a message that is gone. The address may
// already be that of another message; the weak pointer tells them apart.
func forget(f forgotten) {
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	if c := f.h.conversations[f.address]; c != nil && c.last == f.last {
		f.h.remove(c)
	}
}

// remove takes a conversation out. The lock is held.
func (h *history) remove(c *conversation) {
	c.prev.next, c.next.prev = c.next, c.prev
	c.next, c.prev = nil, nil
	delete(h.conversations, c.address)
	c.drop.Stop()
	h.size -= cap(c.wire)
}
