package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// testModel returns a model that makes no requests.
func testModel(t testing.TB) *Model {
	m, err := New(Config{Model: "m", BaseURL: "http://localhost/v1"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func bodyOf(t rapid.TB, m *Model, req *model.Request) []byte {
	b, _, err := m.encode(m.protocol.Load(), req)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(b...)
}

// drawMessages draws a conversation with every irregularity that encode accepts. Only duplicate ids are excluded.
func drawMessages(t *rapid.T, ids *int, n int) (msgs []*message.Message) {
	text := rapid.SampledFrom([]string{"", " ", "hi", "é\"\\\n\u0000", "\xff"})
	data := &message.Data{MediaType: "image/png", Bytes: []byte{1}}
	var calls []*message.ToolCall
	for range n {
		m := &message.Message{}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			m.Role = message.RoleUser
			m.Blocks = message.Blocks{&message.Text{Text: text.Draw(t, "text")}}
			if rapid.Bool().Draw(t, "more") {
				m.Blocks = append(m.Blocks, data, &message.Hint{Text: text.Draw(t, "hint")})
			}
		case 1:
			m.Role = message.RoleSystem
			m.Blocks = message.Blocks{&message.Text{Text: text.Draw(t, "text")}}
		case 2:
			m.Role = message.RoleAssistant
			m.Blocks = message.Blocks{&message.Thinking{Text: "hm"}, &message.Text{Text: text.Draw(t, "text")}}
			for range rapid.IntRange(0, 3).Draw(t, "calls") {
				*ids++
				c := &message.ToolCall{ID: fmt.Sprint("c", *ids), Name: rapid.SampledFrom([]string{"a.b", "c", ""}).Draw(t, "name"),
					Input: json.RawMessage(rapid.SampledFrom([]string{`{}`, `{"a":1}`, `[]`, ``, `{`}).Draw(t, "input"))}
				calls = append(calls, c)
				m.Blocks = append(m.Blocks, c)
			}
		default:
			m.Role = message.RoleTool
			for _, c := range calls {
				if rapid.IntRange(0, 3).Draw(t, "answered") > 0 {
					m.Blocks = append(m.Blocks, &message.ToolResult{ID: c.ID, Name: c.Name, Blocks: message.Blocks{&message.Text{Text: text.Draw(t, "result")}, data}})
				}
			}
			if rapid.Bool().Draw(t, "last") {
				calls = nil
			}
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// TestEveryRequestIsValid: a strict server accepts the request for any conversation,
// and a model that has encoded parts of it before sends the same
// bytes as one that has not.
func TestEveryRequestIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := New(Config{Model: "m", BaseURL: "http://localhost/v1"})
		if err != nil {
			t.Fatal(err)
		}
		ids := 0
		msgs := drawMessages(t, &ids, rapid.IntRange(1, 12).Draw(t, "n"))
		for n := 1; n <= len(msgs); n++ {
			if rapid.Bool().Draw(t, "skip") {
				continue
			}
			req := &model.Request{System: "s", Messages: msgs[:n:n]}
			if rapid.Bool().Draw(t, "fork") { // another continuation of the same conversation
				req.Messages = append(req.Messages, message.User("aside"))
			}
			got := bodyOf(t, m, req)
			if err := openaitest.Validate(got); err != nil {
				t.Fatalf("%v\n%s", err, got)
			}
			if want := bodyOf(t, testModel(&testing.T{}), req); !bytes.Equal(got, want) {
				t.Fatalf("with %d messages:\n got %s\nwant %s", n, got, want)
			}
		}
	})
}

// TestBodiesStayAsTheyAre: a later request does not modify the bytes of an
// earlier one, which may still be being sent.
func TestBodiesStayAsTheyAre(t *testing.T) {
	m := testModel(t)
	var msgs []*message.Message
	var bodies []body
	var copies [][]byte
	for i := range 50 {
		call := &message.ToolCall{ID: fmt.Sprint("c", i), Name: "a", Input: json.RawMessage(`{}`)}
		msgs = append(msgs, message.User(fmt.Sprint("question ", i)), message.Assistant(call))
		b, _, err := m.encode(m.protocol.Load(), &model.Request{Messages: msgs})
		if err != nil {
			t.Fatal(err)
		}
		bodies, copies = append(bodies, b), append(copies, slices.Concat(b...))
		msgs = append(msgs, &message.Message{Role: message.RoleTool, Blocks: message.Blocks{&message.ToolResult{ID: call.ID, Name: "a"}}})
	}
	for i, b := range bodies {
		if !bytes.Equal(slices.Concat(b...), copies[i]) {
			t.Errorf("body %d changed", i)
		}
	}
}

// TestConversationsThatBranch: of two concurrent requests, of which one continues the other's
// conversation, neither adds messages to the other.
func TestConversationsThatBranch(t *testing.T) {
	m := testModel(t)
	for range 300 {
		all := []*message.Message{message.User("first"), message.User("second")}
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() {
				msgs := all[:1+n%2]
				body, _, err := m.encode(m.protocol.Load(), &model.Request{Messages: msgs})
				if err != nil || strings.Contains(string(slices.Concat(body...)), "second") != (len(msgs) == 2) {
					t.Errorf("%d messages: %s, %v", len(msgs), slices.Concat(body...), err)
				}
			})
		}
		wg.Wait()
	}
}

// chat returns a conversation of n messages.
func chat(n int) []*message.Message {
	var msgs []*message.Message
	for i := range n {
		msgs = append(msgs, message.User(strings.Repeat("x", 200)+fmt.Sprint(i)))
	}
	return msgs
}

func (h *history) count() (conversations, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byLast), h.size
}

// TestHistoryIsDropped: a conversation is kept once for all its requests,
// and is dropped with its messages.
func TestHistoryIsDropped(t *testing.T) {
	m := testModel(t)
	msgs := chat(10)
	for n := 1; n <= len(msgs); n++ {
		bodyOf(t, m, &model.Request{Messages: msgs[:n]})
	}
	if n, size := m.protocol.Load().history.count(); n != 1 || size == 0 {
		t.Errorf("%d conversations, %d bytes", n, size)
	}
	runtime.KeepAlive(msgs)
	msgs = nil
	for range 10_000 {
		runtime.GC()
		if n, _ := m.protocol.Load().history.count(); n == 0 {
			break
		}
		time.Sleep(time.Millisecond) // cleanups run in a goroutine of the runtime
	}
	if n, size := m.protocol.Load().history.count(); n != 0 || size != 0 {
		t.Errorf("%d conversations, %d bytes are left", n, size)
	}
	if len(m.protocol.Load().history.byLast) != 0 {
		t.Error("the list is not empty")
	}
}

// TestHistoryIsBounded: many live conversations stay within the limit; the
// least recent are dropped.
func TestHistoryIsBounded(t *testing.T) {
	m := testModel(t)
	m.protocol.Load().history.limit = 1 << 20
	var all [][]*message.Message
	for range 12 {
		msgs := []*message.Message{message.User(strings.Repeat("x", m.protocol.Load().history.limit/8))}
		bodyOf(t, m, &model.Request{Messages: msgs})
		all = append(all, msgs)
	}
	if n, size := m.protocol.Load().history.count(); size > m.protocol.Load().history.limit || n < 4 || n >= 12 {
		t.Errorf("%d conversations, %d bytes", n, size)
	}
	if _, n := m.protocol.Load().history.take(all[11], &toolList{}); n == 0 {
		t.Error("the latest is gone")
	}
	if _, n := m.protocol.Load().history.take(all[0], &toolList{}); n != 0 {
		t.Error("the oldest is still there")
	}
	huge := []*message.Message{message.User(strings.Repeat("x", m.protocol.Load().history.limit))}
	bodyOf(t, m, &model.Request{Messages: huge})
	if _, n := m.protocol.Load().history.take(huge, &toolList{}); n != 0 {
		t.Error("a conversation that would push out all others was kept")
	}
}

var globalMessage = &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Text{Text: "hi"}}}

// TestGlobalMessage: a message in a global variable, which is never garbage-collected, can be the last of a conversation.
func TestGlobalMessage(t *testing.T) {
	m := testModel(t)
	for range 2 {
		bodyOf(t, m, &model.Request{Messages: []*message.Message{globalMessage, message.User("x")}})
		bodyOf(t, m, &model.Request{Messages: []*message.Message{globalMessage}})
	}
}

// TestStepEncodesOnlyWhatIsNew: the 200th step of a conversation takes as many allocations
// as the 20th.
func TestStepEncodesOnlyWhatIsNew(t *testing.T) {
	allocations := func(n int) uint64 {
		m := testModel(t)
		msgs := chat(n + 20)
		bodyOf(t, m, &model.Request{Messages: msgs[:n]})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range 20 {
			if _, _, err := m.encode(m.protocol.Load(), &model.Request{Messages: msgs[:n+i+1]}); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(msgs)
		return after.Mallocs - before.Mallocs
	}
	fewest := func(n int) uint64 { // other goroutines allocate too
		return min(allocations(n), allocations(n), allocations(n))
	}
	if short, long := fewest(20), fewest(200); long > short+short/5 {
		t.Errorf("20 steps take %d allocations after 20 messages and %d after 200", short, long)
	}
}

// TestToolsAreEncodedOnce: with a digest, the cost of a request does not depend
// on the number of tools.
func TestToolsAreEncodedOnce(t *testing.T) {
	perRequest := func(n int, digest string) float64 {
		m := testModel(t)
		tools, _ := benchTools(n)
		req := &model.Request{Messages: []*message.Message{globalMessage}, Tools: tools, Digest: digest}
		bodyOf(t, m, req)
		return testing.AllocsPerRun(10, func() {
			if _, _, err := m.encode(m.protocol.Load(), req); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := perRequest(1, "d"), perRequest(1000, "d"); many > few {
		t.Errorf("%v allocations with 1 tool, %v with 1000", few, many)
	}
	if uncached := perRequest(1000, ""); uncached < 1000 {
		t.Errorf("without a digest: %v allocations", uncached)
	}
}

// TestDropWhileEncoding: a conversation that was encoded before its reasoning was dropped is not kept afterwards.
func TestDropWhileEncoding(t *testing.T) {
	h := &history{responses: true, limit: maxHistory}
	msgs := []*message.Message{{Role: message.RoleAssistant, Blocks: message.Blocks{&message.Thinking{Extra: json.RawMessage("{}")}}}}
	c, _ := h.take(msgs, &toolList{})
	h.dropReasoning(msgs)
	h.put(c, msgs)
	if h.recent.Len() > 0 {
		t.Error("the conversation was kept")
	}
}
