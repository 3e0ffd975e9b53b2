package agui

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
)

// A translator translates the events of a session to those of AG-UI. What it returns for an event depends only on
// the event, those before it, and mid, so another replica can continue a stream.
type translator struct {
	mid  messagePos
	sent sentDeltas // of the message at mid

	step  int64             // the open step; 0 if none is open
	names map[string]string // of called tools, by the path of the call
	subs  map[string]string // the open sub-agents, by the path of their calls
	usage message.Usage     // total of the runs that have ended
}

// sentDeltas is what this stream has sent of a message: nothing if another stream has sent its deltas.
type sentDeltas struct {
	block        string // block of the open part; empty if another stream opened the part
	text         string // of the open part
	parts, texts int    // numbers of opened parts and texts
}

func newTranslator(c cursor) *translator {
	return &translator{mid: c.mid, step: c.step, names: map[string]string{}, subs: map[string]string{}}
}

// isDelta reports whether ev is a piece of text or reasoning, which a later message event repeats.
func isDelta(ev event.Event) bool {
	switch ev.(type) {
	case *event.TextDelta, *event.ThinkingDelta:
		return true
	}
	return false
}

// isTransient reports whether ev is never stored. Of such events only the deltas of messages are translated.
func isTransient(ev event.Event) bool {
	switch ev := ev.(type) {
	case *event.ToolCallDelta, *event.ToolDelta:
		return true
	case *event.Sub:
		return isTransient(ev.Event)
	}
	return isDelta(ev)
}

// delta translates a piece of text or reasoning. It calls send with each resulting event, after it has moved mid
// past that event.
func (t *translator) delta(ev event.Event, send func(*wireEvent)) {
	var msg, block, text string
	reasoning := false
	switch ev := ev.(type) {
	case *event.TextDelta:
		msg, block, text = ev.Message, ev.Block, ev.Text
	case *event.ThinkingDelta:
		msg, block, text, reasoning = ev.Message, ev.Block, ev.Text, true
	}
	if t.mid.message == "" {
		t.mid, t.sent = messagePos{message: msg}, sentDeltas{}
	}
	// If another stream has begun the message, the message's own event has the rest.
	if begun := t.mid.next > 0 && t.sent.parts == 0; text == "" || t.mid.message != msg || begun {
		return
	}
	m := &t.mid
	if m.part != "" && (t.sent.block != block || m.reasoning != reasoning) {
		list := closings(*m)
		m.next, m.offset = m.base+sizeOf(m.reasoning)-len(list), 0
		for i, w := range list {
			m.next++
			if i == len(list)-1 {
				m.part = ""
			}
			send(w)
		}
	}
	if m.part == "" {
		t.sent.block, t.sent.text = block, ""
		if !reasoning {
			t.sent.texts++
		}
		m.part, m.reasoning, m.base = partID(msg, t.sent.parts, !reasoning && t.sent.texts == 1), reasoning, m.next
		t.sent.parts++
		for _, w := range openings(m.part, reasoning) {
			m.next++
			send(w)
		}
	}
	t.sent.text += text
	m.offset += len(text)
	send(contentOf(m.part, reasoning, text))
}

// sizeOf returns the number of events of a part.
func sizeOf(reasoning bool) int {
	if reasoning {
		return 5
	}
	return 3
}

func openings(id string, reasoning bool) []*wireEvent {
	if reasoning {
		return []*wireEvent{{Type: "REASONING_START", MessageID: id}, {Type: "REASONING_MESSAGE_START", MessageID: id, Role: "reasoning"}}
	}
	return []*wireEvent{{Type: "TEXT_MESSAGE_START", MessageID: id, Role: "assistant"}}
}

func contentOf(id string, reasoning bool, text string) *wireEvent {
	if reasoning {
		return &wireEvent{Type: "REASONING_MESSAGE_CONTENT", MessageID: id, Delta: text}
	}
	return &wireEvent{Type: "TEXT_MESSAGE_CONTENT", MessageID: id, Delta: text}
}

func endings(id string, reasoning bool) []*wireEvent {
	if reasoning {
		return []*wireEvent{{Type: "REASONING_MESSAGE_END", MessageID: id}, {Type: "REASONING_END", MessageID: id}}
	}
	return []*wireEvent{{Type: "TEXT_MESSAGE_END", MessageID: id}}
}

// closings returns the events that close the open part at a position.
func closings(m messagePos) []*wireEvent {
	list := endings(m.part, m.reasoning)
	switch sent := m.next - m.base; {
	case m.part == "" || sent <= 0:
		return nil
	case m.reasoning && (sent == 1 || sent >= 4): // the reasoning message was not opened, or is already closed
		return list[1:]
	}
	return list
}

// abort closes the open part of a message that will not be completed.
func (t *translator) abort() []*wireEvent {
	if t.mid.message == "" {
		return nil
	}
	list := closings(t.mid)
	if t.mid.next > 0 {
		list = append(list, custom("discard", map[string]string{"messageId": t.mid.message}))
	}
	t.mid, t.sent = messagePos{}, sentDeltas{}
	return list
}

func custom(name string, value any) *wireEvent {
	return &wireEvent{Type: "CUSTOM", Name: "kitbag." + name, Value: value}
}

// event translates an event that is not a delta. A nil in the list stands for an AG-UI event that was already sent.
func (t *translator) event(ev event.Event) []*wireEvent {
	switch ev := ev.(type) {
	case *event.RunStart: // close what the last run left open
		return slices.Concat(t.abort(), t.closeSubs(), t.endStep())
	case *event.ModelStart:
		list := append(t.abort(), t.endStep()...)
		t.step = int64(ev.Step)
		return append(list, &wireEvent{Type: "STEP_STARTED", StepName: stepName(t.step)})
	case *event.Discard:
		return t.abort()
	case *event.Message:
		if ev.Message.Role == message.RoleAssistant {
			return t.message(ev.Message)
		}
	case *event.ToolCall:
		t.names[ev.Call] = ev.Name
	case *event.ToolResult:
		return append(t.closeSubs(ev.Call), resultOf(ev, "")...)
	case *event.Sub:
		if !isTransient(ev) {
			return t.sub(ev, "")
		}
	case *event.End:
		t.usage.Add(ev.Usage)
		return slices.Concat(t.abort(), t.closeSubs(), t.endStep())
	case *event.Background:
		value := map[string]string{"call": ev.Call, "name": ev.Name}
		if ev.Result != nil {
			value["text"] = ev.Result.Text()
		}
		return []*wireEvent{custom("background", value)}
	case *event.Elicitation:
		return []*wireEvent{custom("elicitation", ev)}
	case *event.Retry:
		return []*wireEvent{custom("retry", map[string]any{"attempt": ev.Attempt, "waitMs": ev.Wait.Milliseconds()})}
	case *event.Compaction:
		return []*wireEvent{custom("compaction", map[string]int{"before": ev.Before, "after": ev.After, "dropped": ev.Dropped})}
	}
	return nil
}

func stepName(n int64) string { return "step " + strconv.FormatInt(n, 10) }

func (t *translator) endStep() []*wireEvent {
	if t.step == 0 {
		return nil
	}
	name := stepName(t.step)
	t.step = 0
	return []*wireEvent{{Type: "STEP_FINISHED", StepName: name}}
}

// message translates a message of the model, of which a part may have been sent.
func (t *translator) message(m *message.Message) []*wireEvent {
	list := messageEvents(m, m.ID)
	mid := t.mid
	if mid.message != m.ID || mid.next == 0 {
		return append(t.abort(), list...)
	}
	if !fits(list, mid, t.sent) { // the message was changed after deltas of it were sent
		return append(t.abort(), messageEvents(m, m.ID+".again")...)
	}
	t.mid, t.sent = messagePos{}, sentDeltas{}
	clear(list[:mid.next])
	if mid.offset == 0 {
		return list
	}
	rest := *list[mid.next]
	if text := rest.Delta.(string)[mid.offset:]; text != "" {
		rest.Delta = text
		list[mid.next] = &rest
	} else {
		list[mid.next] = nil
	}
	return list
}

// fits reports whether the sent deltas are the beginning of the message.
func fits(list []*wireEvent, mid messagePos, sent sentDeltas) bool {
	if mid.next > len(list) {
		return false
	}
	if mid.part == "" {
		return mid.offset == 0
	}
	first := mid.base
	if first >= len(list) || list[first].MessageID != mid.part || list[first].Type != openings(mid.part, mid.reasoning)[0].Type {
		return false
	}
	if mid.offset == 0 {
		return true
	}
	if mid.next >= len(list) {
		return false
	}
	text, ok := list[mid.next].Delta.(string)
	return ok && mid.offset <= len(text) && strings.ToValidUTF8(text[:mid.offset], "") == text[:mid.offset] &&
		(sent.parts == 0 || strings.HasPrefix(text, sent.text))
}

// messageEvents returns all events of a message of the model: its texts and reasonings, then its calls.
func messageEvents(m *message.Message, id string) []*wireEvent {
	var list []*wireEvent
	for _, p := range partsOf(m) {
		part := id + strings.TrimPrefix(p.id, m.ID)
		list = append(list, openings(part, p.reasoning)...)
		list = append(list, contentOf(part, p.reasoning, p.text))
		list = append(list, endings(part, p.reasoning)...)
	}
	for _, c := range m.ToolCalls() {
		list = append(list, &wireEvent{Type: "TOOL_CALL_START", ToolCallID: c.ID, ToolCallName: c.Name, ParentMessageID: id},
			&wireEvent{Type: "TOOL_CALL_ARGS", ToolCallID: c.ID, Delta: string(c.Input)}, &wireEvent{Type: "TOOL_CALL_END", ToolCallID: c.ID})
	}
	return list
}

// resultOf returns the event of a call's result. path is that of the sub-agent that made the call, followed by a slash.
func resultOf(ev *event.ToolResult, path string) []*wireEvent {
	text := ev.Text
	return []*wireEvent{{Type: "TOOL_CALL_RESULT", MessageID: resultID(path + ev.Call), ToolCallID: path + ev.Call, Role: "tool", Content: &text,
		Metadata: map[string]any{"kitbag": map[string]any{"outcome": ev.Outcome}}}}
}

// sub translates an event of a sub-agent. above is the path of the sub-agent that started it, followed by a slash.
func (t *translator) sub(ev *event.Sub, above string) []*wireEvent {
	path := above + ev.Call
	var list []*wireEvent
	if t.subs[path] == "" {
		name := cmp.Or(t.names[path], "agent")
		id := path + "." + itoa(ev.Event.Head().Seq)
		t.subs[path] = id
		list = append(list, &wireEvent{Type: "SUBAGENT_STARTED", SubagentRunID: id, Name: name, ParentToolCallID: path,
			ParentSubagent: t.subs[strings.TrimSuffix(above, "/")]})
	}
	inner := path + "/"
	var translated []*wireEvent
	switch e := ev.Event.(type) {
	case *event.Message:
		if e.Message.Role == message.RoleAssistant {
			translated = messageEvents(e.Message, e.Message.ID)
			for _, w := range translated {
				if w.ToolCallID != "" {
					w.ToolCallID = inner + w.ToolCallID
				}
			}
		}
	case *event.ToolCall:
		t.names[inner+e.Call] = e.Name
	case *event.ToolResult:
		translated = resultOf(e, inner)
	case *event.Sub:
		return append(list, t.sub(e, inner)...)
	case *event.End:
		list = append(list, t.closeSub(path, e.Reason)...)
	}
	for _, w := range translated {
		w.SubagentRunID = t.subs[path]
	}
	return append(list, translated...)
}

// closeSub closes a sub-agent and those below it.
func (t *translator) closeSub(path string, why event.EndReason) []*wireEvent {
	id := t.subs[path]
	if id == "" {
		return nil
	}
	var list []*wireEvent
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(t.subs))) {
		if strings.HasPrefix(p, path+"/") {
			list = append(list, t.closeSub(p, event.EndInterrupted)...)
		}
	}
	delete(t.subs, path)
	switch why {
	case event.EndWaiting:
		return append(list, &wireEvent{Type: "SUBAGENT_FINISHED", SubagentRunID: id, Outcome: &wireOutcome{Type: "suspended"}})
	case event.EndError, event.EndInterrupted:
		return append(list, &wireEvent{Type: "SUBAGENT_ERROR", SubagentRunID: id, Message: "the sub-agent ended with " + string(why), Code: string(why)})
	}
	return append(list, &wireEvent{Type: "SUBAGENT_FINISHED", SubagentRunID: id})
}

// closeSubs closes the sub-agents of the calls, or all of them.
func (t *translator) closeSubs(calls ...string) []*wireEvent {
	if len(calls) == 0 {
		calls = slices.Sorted(maps.Keys(t.subs))
	}
	var list []*wireEvent
	for _, c := range calls {
		list = append(list, t.closeSub(c, event.EndInterrupted)...)
	}
	return list
}
