package anthropic

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleSystem    = "system" // for changes of the tools

	// summarySource is the source of the hint that a compaction puts in place of what it has
	// removed.
	summarySource = "summary"
)

// A turn is a message on the wire. Its blocks are pointers, since cache breakpoints are added to
// some of them later.
type turn struct {
	role   string
	blocks []*json.RawMessage
}

// An encoder turns messages into turns of user and assistant.
type encoder struct {
	origin  string    // only extras of this host and model are sent back; see keptAnswer
	refused *refusals // of the model
	turns   []turn
	summary *json.RawMessage // the block with the summary of a compaction; nil if there is none
	seen    hash.Hash        // hash of everything encoded so far
	err     error            // the first error

	keptThinking bool // see body

	pending []*model.ToolChange // see flush
	defined map[string]bool     // tools that the request has defined so far
	renames map[string]renames  // of these tools
}

// newEncoder returns an encoder for a request with the given tools and system prompt. list has the
// tools without those that the server runs.
func (m *Model) newEncoder(
	tools []json.RawMessage, list *toolList, system []json.RawMessage,
) *encoder {
	e := &encoder{origin: m.origin, refused: &m.refused, seen: sha256.New(),
		defined: make(map[string]bool, len(list.names)), renames: maps.Clone(list.renames)}
	for name := range list.names {
		e.defined[name] = true
	}
	e.hashBlocks("tools", tools...)
	e.hashBlocks("system", system...)
	return e
}

func (e *encoder) hashBlocks(what string, blocks ...json.RawMessage) {
	for _, b := range blocks {
		fmt.Fprintf(e.seen, "%s %d\n", what, len(b))
		e.seen.Write(b)
	}
}

// sum returns the hash of everything encoded so far.
func (e *encoder) sum() string { return hex.EncodeToString(e.seen.Sum(nil)[:8]) }

// add appends a block to the last turn, or to a new one if the last turn has another role.
func (e *encoder) add(role string, block json.RawMessage) *json.RawMessage {
	e.hashBlocks(role, block)
	n := len(e.turns)
	if n == 0 || e.turns[n-1].role != role {
		e.turns = append(e.turns, turn{role: role})
		n++
	}
	b := &block
	e.turns[n-1].blocks = append(e.turns[n-1].blocks, b)
	return b
}

// userTurns returns the last block of each turn of the user.
func (e *encoder) userTurns() (ends []*json.RawMessage) {
	for _, t := range e.turns {
		if t.role == roleUser {
			ends = append(ends, t.blocks[len(t.blocks)-1])
		}
	}
	return ends
}

// lacksThinking reports whether the request ends with results of calls that were made without
// thinking.
func (e *encoder) lacksThinking() bool {
	n := len(e.turns)
	if n > 0 && e.turns[n-1].role == roleSystem {
		n--
	}
	if n < 2 || kindOf(*e.turns[n-1].blocks[0]) != "tool_result" {
		return false
	}
	return !isThinking(kindOf(*e.turns[n-2].blocks[0]))
}

// isThinking reports whether a type of blocks is thinking, which may be redacted.
func isThinking(kind string) bool { return kind == "thinking" || kind == "redacted_thinking" }

// kindOf returns the type of a block.
func kindOf(block json.RawMessage) string {
	var b struct{ Type string }
	_ = json.Unmarshal(block, &b)
	return b.Type
}

// messages encodes a conversation with the changes of the tools in it. It begins and ends with the
// user, as the API requires.
func (e *encoder) messages(msgs []*message.Message, changes []*model.ToolChange) error {
	for at := 0; ; {
		for len(changes) > 0 && changes[0].At <= at {
			e.change(changes[0])
			changes = changes[1:]
		}
		if at == len(msgs) {
			break
		}
		n, err := e.unit(msgs[at:])
		if err == nil {
			err = e.err
		}
		if err != nil {
			return err
		}
		at += n
	}
	if len(e.turns) > 0 {
		e.userLast()
		e.flush()
	}
	return e.err
}

// userLast makes sure that the last turn is the user's.
func (e *encoder) userLast() {
	if n := len(e.turns); n == 0 || e.turns[n-1].role != roleUser {
		e.add(roleUser, textBlock("(continue)"))
	}
}

// unit encodes the messages that belong together at the start of msgs: one, or an assistant message
// with the results of its calls. It returns their number.
func (e *encoder) unit(msgs []*message.Message) (n int, err error) {
	m := msgs[0]
	if m == nil {
		return 0, errors.New("a message is nil; remove it from Request.Messages")
	}
	switch m.Role {
	case message.RoleSystem, message.RoleUser:
		e.user(m.Blocks)
	case message.RoleTool: // results without a call, or of a call that has a result already
		e.user(provider.Unmatched(m, nil))
	case message.RoleAssistant:
		return e.assistantUnit(msgs)
	default:
		return 0, fmt.Errorf("a message has the role %q; it must be system, user, assistant or tool",
			m.Role)
	}
	return 1, nil
}

// assistantUnit encodes an assistant message and a result for each of its calls.
func (e *encoder) assistantUnit(msgs []*message.Message) (n int, err error) {
	calls, results, later, n, err := provider.Calls(msgs)
	if err != nil {
		return 0, err
	}
	e.assistant(msgs[0], calls)
	for _, c := range calls {
		e.result(c, results[c.ID])
	}
	e.user(later)
	return n, nil
}

func (e *encoder) assistant(m *message.Message, calls []*message.ToolCall) {
	blocks := e.blocks(m, calls)
	if len(blocks) == 0 {
		return
	}
	if len(e.turns) == 0 { // the API requires the user first
		e.add(roleUser, textBlock("(the beginning of the conversation is missing)"))
	}
	if len(e.pending) > 0 {
		e.flush()
		blocks = e.blocks(m, calls) // including thinking that depends on the changes
	}
	for _, b := range blocks {
		e.add(roleAssistant, b)
	}
}

// blocks returns the blocks of an assistant message: the original ones if they were kept.
func (e *encoder) blocks(m *message.Message, calls []*message.ToolCall) []json.RawMessage {
	if blocks, ok := e.kept(m, calls); ok {
		return blocks
	}
	var blocks []json.RawMessage
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			if text := textOf(b.Text); text != "" {
				blocks = append(blocks, textBlock(text))
			}
		case *message.Data: // the API accepts no files in an answer: send a note
			blocks = append(blocks, textBlock("("+provider.DescribeFile(b)+")"))
		case *message.ToolCall:
			blocks = append(blocks, e.call(b))
		}
	}
	return blocks
}

// call returns the block of a call.
func (e *encoder) call(c *message.ToolCall) json.RawMessage {
	return marshal(wireCall{wireID(c.ID), e.input(c), callName(c), "tool_use"})
}

// callName returns the name of a call on the wire, which must not be empty.
func callName(c *message.ToolCall) string { return cmp.Or(wireName(c.Name), "unknown") }

// input returns the input of a call on the wire.
func (e *encoder) input(c *message.ToolCall) json.RawMessage {
	return renameKeys(callInput(c.Input), e.renames[c.Name].toWire)
}

// callInput returns a call's input as an object, normalized: equal before and after it was stored.
func callInput(input json.RawMessage) json.RawMessage {
	return marshal(provider.Arguments(input))
}

// result encodes the result of a call. For a call without a result the text says so.
func (e *encoder) result(c *message.ToolCall, r *message.ToolResult) {
	w := wireResult{CallID: wireID(c.ID), Type: "tool_result"}
	if r == nil {
		w.Content = []json.RawMessage{textBlock("(the call was interrupted and has no result)")}
		e.add(roleUser, marshal(w))
		return
	}
	onlyText := true
	for _, b := range r.Blocks {
		switch b := b.(type) {
		case *message.Text:
			if s := textOf(b.Text); s != "" {
				w.Content = append(w.Content, textBlock(s))
			}
		case *message.Data:
			file := fileBlock(b)
			onlyText = onlyText && kindOf(file) == "text"
			w.Content = append(w.Content, file)
		}
	}
	if len(w.Content) == 0 {
		w.Content = []json.RawMessage{textBlock("(no output)")}
	}
	failed := r.Outcome == message.OutcomeError || r.Outcome == message.OutcomeDenied
	w.IsError = failed && onlyText // the API refuses an error with files
	e.add(roleUser, marshal(w))
}

func (e *encoder) user(blocks message.Blocks) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *message.Text:
			if text := textOf(b.Text); text != "" {
				e.add(roleUser, textBlock(text))
			}
		case *message.Hint:
			text := textOf(b.Text)
			if text == "" {
				continue
			}
			block := e.add(roleUser, textBlock(text))
			if b.Source == summarySource {
				e.summary = block
			}
		case *message.Data:
			e.add(roleUser, fileBlock(b))
		}
	}
}

// textOf returns s, or "" if s is blank: the API refuses blank text.
func textOf(s string) string {
	if strings.TrimSpace(s) == "" {
		return ""
	}
	return s
}
