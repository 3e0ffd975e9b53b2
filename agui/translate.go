package agui

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
)

// A translator translates the events of a session to AG-UI events. The result depends only on the session's events and
// the cursor, so another replica can continue a stream.
//
// The path of a call is its id, after the ids of the calls that started the sub-agents around it: "call_1/call_2".
type translator struct {
	msgPos messagePos
	sent   sentDeltas // of the message at msgPos

	step      int64             // number of the open step; 0 if none is open
	toolNames map[string]string // the called tools, by the path of the call
	openSubs  map[string]string // subagentRunId of the open sub-agents, by the path of the call that started them
	usage     message.Usage     // total of the runs that have ended
}

// sentDeltas is what this stream has sent of a message whose deltas arrive. It is zero if another stream has begun the
// message.
type sentDeltas struct {
	block string // block of the open part
	text  string // of the open part
	parts int    // number of parts that were opened
	texts int    // number of these parts that are texts
}

func newTranslator(c cursor) *translator {
	return &translator{msgPos: c.msgPos, step: c.step, toolNames: map[string]string{}, openSubs: map[string]string{}}
}

// isDelta reports whether ev is a piece of text or reasoning, which the later event of the whole message repeats.
func isDelta(ev event.Event) bool {
	switch ev.(type) {
	case *event.TextDelta, *event.ThinkingDelta:
		return true
	}
	return false
}

// isTransient reports whether ev is never stored. Of the transient events only those of isDelta are translated.
func isTransient(ev event.Event) bool {
	switch ev := ev.(type) {
	case *event.ToolCallDelta, *event.ToolDelta:
		return true
	case *event.Sub:
		return isTransient(ev.Event)
	}
	return isDelta(ev)
}

// translateDelta translates a piece of text or reasoning. It calls send with each AG-UI event, after it has moved msgPos
// past the event.
func (t *translator) translateDelta(ev event.Event, send func(*wireEvent)) {
	var msg, block, text string
	reasoning := false
	switch ev := ev.(type) {
	case *event.TextDelta:
		msg, block, text = ev.Message, ev.Block, ev.Text
	case *event.ThinkingDelta:
		msg, block, text, reasoning = ev.Message, ev.Block, ev.Text, true
	}
	if t.msgPos.message == "" {
		t.msgPos, t.sent = messagePos{message: msg}, sentDeltas{}
	}
	begunByOther := t.msgPos.next > 0 && t.sent.parts == 0 // another stream; the event of the whole message has the rest
	if text == "" || t.msgPos.message != msg || begunByOther {
		return
	}
	pos := &t.msgPos
	if pos.part != "" && (t.sent.block != block || pos.reasoning != reasoning) {
		list := missingEndings(*pos)
		pos.next, pos.offset = pos.next+1, 0 // the content is complete
		for i, w := range list {
			pos.next++
			if i == len(list)-1 { // not before: a cursor between the endings needs the part
				pos.part = ""
			}
			send(w)
		}
	}
	if pos.part == "" {
		t.sent.block, t.sent.text = block, ""
		if !reasoning {
			t.sent.texts++
		}
		pos.part, pos.reasoning, pos.partStart = partID(msg, t.sent.parts, !reasoning && t.sent.texts == 1), reasoning, pos.next
		t.sent.parts++
		for _, w := range openingEvents(pos.part, reasoning) {
			pos.next++
			send(w)
		}
	}
	t.sent.text += text
	pos.offset += len(text)
	send(contentEvent(pos.part, reasoning, text))
}

func openingEvents(id string, reasoning bool) []*wireEvent {
	if reasoning {
		return []*wireEvent{{Type: "REASONING_START", MessageID: id}, {Type: "REASONING_MESSAGE_START", MessageID: id, Role: "reasoning"}}
	}
	return []*wireEvent{{Type: "TEXT_MESSAGE_START", MessageID: id, Role: "assistant"}}
}

func contentEvent(id string, reasoning bool, text string) *wireEvent {
	if reasoning {
		return &wireEvent{Type: "REASONING_MESSAGE_CONTENT", MessageID: id, Delta: text}
	}
	return &wireEvent{Type: "TEXT_MESSAGE_CONTENT", MessageID: id, Delta: text}
}

func endingEvents(id string, reasoning bool) []*wireEvent {
	if reasoning {
		return []*wireEvent{{Type: "REASONING_MESSAGE_END", MessageID: id}, {Type: "REASONING_END", MessageID: id}}
	}
	return []*wireEvent{{Type: "TEXT_MESSAGE_END", MessageID: id}}
}

// missingEndings returns the events that close the open part at a position.
func missingEndings(pos messagePos) []*wireEvent {
	list := endingEvents(pos.part, pos.reasoning)
	switch sent := pos.next - pos.partStart; {
	case pos.part == "" || sent <= 0:
		return nil
	case pos.reasoning && (sent == 1 || sent >= 4): // REASONING_MESSAGE_START was not sent, or REASONING_MESSAGE_END was
		return list[1:]
	}
	return list
}

// abortMessage closes the open part of a message that will not be completed.
func (t *translator) abortMessage() []*wireEvent {
	if t.msgPos.message == "" {
		return nil
	}
	list := missingEndings(t.msgPos)
	if t.msgPos.next > 0 {
		list = append(list, customEvent("discard", map[string]string{"messageId": t.msgPos.message}))
	}
	t.msgPos, t.sent = messagePos{}, sentDeltas{}
	return list
}

func customEvent(name string, value any) *wireEvent {
	return &wireEvent{Type: "CUSTOM", Name: "kitbag." + name, Value: value}
}

// translate translates an event that is not a delta. A nil in the list stands for an AG-UI event that was already sent.
func (t *translator) translate(ev event.Event) []*wireEvent {
	switch ev := ev.(type) {
	case *event.RunStart: // a crash may have ended the last run without an event.End
		return slices.Concat(t.abortMessage(), t.closeSubs(), t.endStep())
	case *event.ModelStart:
		list := append(t.abortMessage(), t.endStep()...)
		t.step = int64(ev.Step)
		return append(list, &wireEvent{Type: "STEP_STARTED", StepName: stepName(t.step)})
	case *event.Discard:
		return t.abortMessage()
	case *event.Message:
		if ev.Message.Role == message.RoleAssistant {
			return t.translateMessage(ev.Message)
		}
	case *event.ToolCall:
		t.toolNames[ev.Call] = ev.Name
	case *event.ToolResult:
		return append(t.closeSubs(ev.Call), resultEvent(ev, ev.Call))
	case *event.Sub:
		if !isTransient(ev) {
			return t.translateSub(ev, ev.Call, "")
		}
	case *event.End:
		t.usage.Add(ev.Usage)
		return slices.Concat(t.abortMessage(), t.closeSubs(), t.endStep())
	case *event.Background:
		value := map[string]string{"call": ev.Call, "name": ev.Name}
		if ev.Result != nil {
			value["text"] = ev.Result.Text()
		}
		return []*wireEvent{customEvent("background", value)}
	case *event.Elicitation:
		return []*wireEvent{customEvent("elicitation", ev)}
	case *event.Retry:
		return []*wireEvent{customEvent("retry", map[string]any{"attempt": ev.Attempt, "waitMs": ev.Wait.Milliseconds()})}
	case *event.Compaction:
		return []*wireEvent{customEvent("compaction", map[string]int{"before": ev.Before, "after": ev.After, "dropped": ev.Dropped})}
	}
	return nil
}

func stepName(n int64) string { return "step " + itoa(n) }

func (t *translator) endStep() []*wireEvent {
	if t.step == 0 {
		return nil
	}
	name := stepName(t.step)
	t.step = 0
	return []*wireEvent{{Type: "STEP_FINISHED", StepName: name}}
}

// translateMessage translates a message of the model, of which a beginning may have been sent.
func (t *translator) translateMessage(m *message.Message) []*wireEvent {
	list := messageEvents(m, m.ID)
	pos := t.msgPos
	if pos.message != m.ID || pos.next == 0 {
		return append(t.abortMessage(), list...)
	}
	if !fits(list, pos, t.sent) { // the message was changed after deltas of it were sent
		return append(t.abortMessage(), messageEvents(m, m.ID+".again")...) // the client has discarded the message's own id
	}
	t.msgPos, t.sent = messagePos{}, sentDeltas{}
	clear(list[:pos.next])
	if pos.offset == 0 {
		return list
	}
	content := list[pos.next]
	if rest := content.Delta.(string)[pos.offset:]; rest != "" {
		content.Delta = rest
	} else {
		list[pos.next] = nil
	}
	return list
}

// fits reports whether what was sent up to a position is the beginning of the message with the given events. sent is zero
// if another stream has sent it.
func fits(list []*wireEvent, pos messagePos, sent sentDeltas) bool {
	if pos.next > len(list) {
		return false
	}
	if pos.part == "" {
		return pos.offset == 0
	}
	if pos.partStart >= len(list) || list[pos.partStart].MessageID != pos.part || list[pos.partStart].Type != openingEvents(pos.part, pos.reasoning)[0].Type {
		return false
	}
	if pos.offset == 0 {
		return true
	}
	if pos.next >= len(list) {
		return false
	}
	text, ok := list[pos.next].Delta.(string)
	return ok && pos.offset <= len(text) && utf8.ValidString(text[:pos.offset]) && // the offset is not within a character
		(sent.parts == 0 || strings.HasPrefix(text, sent.text))
}

// messageEvents returns all AG-UI events of a message of the model, under the given id: its texts and reasonings, then its
// calls.
func messageEvents(m *message.Message, id string) []*wireEvent {
	var list []*wireEvent
	for _, p := range partsOf(m) {
		part := id + strings.TrimPrefix(p.id, m.ID)
		list = append(list, openingEvents(part, p.reasoning)...)
		list = append(list, contentEvent(part, p.reasoning, p.text))
		list = append(list, endingEvents(part, p.reasoning)...)
	}
	for _, c := range m.ToolCalls() {
		list = append(list, &wireEvent{Type: "TOOL_CALL_START", ToolCallID: c.ID, ToolCallName: c.Name, ParentMessageID: id},
			&wireEvent{Type: "TOOL_CALL_ARGS", ToolCallID: c.ID, Delta: string(c.Input)}, &wireEvent{Type: "TOOL_CALL_END", ToolCallID: c.ID})
	}
	return list
}

// resultEvent returns the event of a call's result. path is the path of the call.
func resultEvent(ev *event.ToolResult, path string) *wireEvent {
	return &wireEvent{Type: "TOOL_CALL_RESULT", MessageID: resultID(path), ToolCallID: path, Role: "tool", Content: new(ev.Text),
		Metadata: map[string]any{"kitbag": map[string]any{"outcome": ev.Outcome}}}
}

// translateSub translates an event of a sub-agent. path is the path of the call that started the sub-agent, and parent
// the path of the call that started the agent above it; "" for the session's own agent.
func (t *translator) translateSub(ev *event.Sub, path, parent string) []*wireEvent {
	var list []*wireEvent
	if t.openSubs[path] == "" {
		name := cmp.Or(t.toolNames[path], "agent") // the call may be from before the stream
		id := path + "." + itoa(ev.Event.Head().Seq)
		t.openSubs[path] = id
		list = append(list, &wireEvent{Type: "SUBAGENT_STARTED", SubagentRunID: id, Name: name, ParentToolCallID: path,
			ParentSubagent: t.openSubs[parent]})
	}
	var translated []*wireEvent
	switch e := ev.Event.(type) {
	case *event.Message:
		if e.Message.Role == message.RoleAssistant {
			translated = messageEvents(e.Message, e.Message.ID)
			for _, w := range translated {
				if w.ToolCallID != "" {
					w.ToolCallID = path + "/" + w.ToolCallID
				}
			}
		}
	case *event.ToolCall:
		t.toolNames[path+"/"+e.Call] = e.Name
	case *event.ToolResult:
		translated = append(translated, resultEvent(e, path+"/"+e.Call))
	case *event.Sub:
		return append(list, t.translateSub(e, path+"/"+e.Call, path)...)
	case *event.End:
		list = append(list, t.closeSub(path, e.Reason)...)
	}
	for _, w := range translated {
		w.SubagentRunID = t.openSubs[path]
	}
	return append(list, translated...)
}

// closeSub closes a sub-agent and the sub-agents that it has started.
func (t *translator) closeSub(path string, reason event.EndReason) []*wireEvent {
	id := t.openSubs[path]
	if id == "" {
		return nil
	}
	var list []*wireEvent
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(t.openSubs))) {
		if strings.HasPrefix(p, path+"/") {
			list = append(list, t.closeSub(p, event.EndInterrupted)...)
		}
	}
	delete(t.openSubs, path)
	switch reason {
	case event.EndWaiting:
		return append(list, &wireEvent{Type: "SUBAGENT_FINISHED", SubagentRunID: id, Outcome: &wireOutcome{Type: "suspended"}})
	case event.EndError, event.EndInterrupted:
		return append(list, &wireEvent{Type: "SUBAGENT_ERROR", SubagentRunID: id, Message: "the sub-agent ended with " + string(reason), Code: string(reason)})
	}
	return append(list, &wireEvent{Type: "SUBAGENT_FINISHED", SubagentRunID: id})
}

// closeSubs closes the sub-agents that the calls have started; without calls, all sub-agents.
func (t *translator) closeSubs(calls ...string) []*wireEvent {
	if len(calls) == 0 {
		calls = slices.Sorted(maps.Keys(t.openSubs))
	}
	var list []*wireEvent
	for _, c := range calls {
		list = append(list, t.closeSub(c, event.EndInterrupted)...)
	}
	return list
}
