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

// A history keeps encoded conversations, so that a request that continues one
// encodes only what is new. A conversation is found by its last message, to
// which there is only a weak pointer: once nobody else has that message, no
// request can continue the conversation, and it is dropped. The messages before
// it are held, so that comparing pointers is enough to know them again.
type history struct {
	mu            sync.Mutex
	conversations map[weak.Pointer[message.Message]]*list.Element
	recent        list.List // of *conversation, the latest first
	size          int
}

type conversation struct {
	before []*message.Message
	last   weak.Pointer[message.Message]
	wire   []byte // a comma and an object for each message on the wire
	drop   runtime.Cleanup
}

// encode returns the wire form of msgs: said, which may be kept, and rest,
// which may still change, because tool calls at the end have no result yet.
func (h *history) encode(msgs []*message.Message, endpoint string) (said, rest []byte, err error) {
	n, said := h.take(msgs)
	e := encoder{wire: said, endpoint: endpoint}
	for n < len(msgs) {
		size, settled, err := e.unit(msgs[n:])
		if err != nil {
			return nil, nil, err
		}
		if !settled {
			rest = slices.Clone(e.wire[len(said):])
			break
		}
		n += size
		said = e.wire
	}
	if n > 0 {
		h.put(msgs[:n], said)
	}
	return slices.Clip(said), rest, nil
}

// take removes and returns the longest conversation that msgs continues, with
// its number of messages. Whoever takes one may append to its bytes.
func (h *history) take(msgs []*message.Message) (int, []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(msgs) - 1; i >= 0 && i >= len(msgs)-maxLookBack && h.size > 0; i-- {
		el := h.conversations[weak.Make(msgs[i])]
		if el == nil {
			continue
		}
		c := el.Value.(*conversation)
		if slices.Equal(c.before, msgs[:i]) {
			h.remove(el)
			c.drop.Stop()
			return i + 1, c.wire
		}
	}
	return 0, nil
}

func (h *history) put(msgs []*message.Message, wire []byte) {
	if len(wire) > maxHistory/4 {
		return
	}
	last := msgs[len(msgs)-1]
	c := &conversation{before: slices.Clone(msgs[:len(msgs)-1]), last: weak.Make(last), wire: wire}
	c.drop = runtime.AddCleanup(last, h.forget, c.last)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conversations == nil {
		h.conversations = map[weak.Pointer[message.Message]]*list.Element{}
	}
	if el := h.conversations[c.last]; el != nil { // another request was faster
		el.Value.(*conversation).drop.Stop()
		h.remove(el)
	}
	h.conversations[c.last] = h.recent.PushFront(c)
	h.size += cap(wire)
	for h.size > maxHistory {
		el := h.recent.Back()
		el.Value.(*conversation).drop.Stop()
		h.remove(el)
	}
}

// forget drops the conversation that ended with a message that is gone.
func (h *history) forget(last weak.Pointer[message.Message]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if el := h.conversations[last]; el != nil {
		h.remove(el)
	}
}

func (h *history) remove(el *list.Element) {
	c := h.recent.Remove(el).(*conversation)
	delete(h.conversations, c.last)
	h.size -= cap(c.wire)
}
