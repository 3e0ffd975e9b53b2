package mcpclient

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

func init() {
	scripts["chaos"] = chaos()
}

// chaos is a server that makes every mistake that a server can make.
func chaos() script {
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	var lock sync.Mutex
	write := func(s string) {
		lock.Lock()
		defer lock.Unlock()
		out.WriteString(s)
		out.Flush()
	}
	var flood, progress sync.Once
	return func(msg request, _ func(string)) {
		reply := func(s string) { write(s + "\n") }
		write("this is not JSON\n{\"jsonrpc\":\n[1,2]\n\n{\"jsonrpc\":\"2.0\",\"id\":\"kb-999\",\"result\":{}}\nnull\n")
		if msg.Method == "tools/list" {
			reply(msg.result(`{"tools":` + manyTools() + `}`))
			return
		}
		if handleStandard(msg, reply, "") || msg.Method != "tools/call" {
			return
		}
		var p struct {
			Meta struct {
				Token json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
		}
		_ = json.Unmarshal(msg.Params, &p)
		switch msg.name() {
		case "huge", "huge_id_last":
			head, tail := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, msg.ID), `"}]}}`
			if msg.name() == "huge_id_last" {
				head, tail = `{"result":{"content":[{"type":"text","text":"`, fmt.Sprintf(`"}]},"jsonrpc":"2.0","id":%s}`, msg.ID)
			}
			write(head)
			for range 200 {
				write(strings.Repeat("x", 1<<20))
			}
			reply(tail)
		case "twice":
			for range 3 {
				reply(msg.result(`{"content":[{"type":"text","text":"again"}]}`))
			}
		case "odd":
			reply(msg.result(`[1,2]`))
		case "neither":
			reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s}`, msg.ID))
		case "flood":
			flood.Do(func() {
				go func() {
					for {
						write(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n")
						time.Sleep(time.Millisecond)
					}
				}()
			})
			reply(msg.result(`{}`))
		case "progress":
			progress.Do(func() {
				go func() {
					for i := 0; ; i++ {
						write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":{"not":"text"}}}`+"\n", p.Meta.Token, i))
					}
				}()
			})
		case "refuse":
			reply(msg.fail(-32042, "no"))
		default:
			reply(msg.result(`{"content":[{"type":"text","text":"fine"}]}`))
		}
	}
}

func manyTools() string {
	var b strings.Builder
	b.WriteString(`[{"name":"huge"},{"name":"huge_id_last"},{"name":"twice"},{"name":"odd"},{"name":"neither"},{"name":"flood"},{"name":"progress"},{"name":"refuse"}`)
	for i := range 5000 {
		fmt.Fprintf(&b, `,{"name":"t%d","description":"tool"},{"name":"t%d"}`, i, i)
		if i%100 == 0 {
			b.WriteString(`,{"name":["bad"]}`)
		}
	}
	return b.String() + "]"
}

func TestChaos(t *testing.T) {
	cfg := child(t, "chaos")
	cfg.Options.Limits.Message = 2 << 20
	patient := connect(t, cfg)
	cfg.Options.Timeouts.Call = 2 * time.Second
	c := connect(t, cfg)
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(tools) != 4979 {
		// 10,058 entries, of which the first 10,000 are read
		t.Errorf("%d tools, %d skipped", len(tools), len(c.Skipped()))
	}
	for _, row := range []struct {
		tool, want string
		outcome    message.Outcome
	}{
		{"huge", "too large: 2097", message.OutcomeError},
		{"huge_id_last", "too large: 2097", message.OutcomeError},
		{"twice", "again", message.OutcomeSuccess},
		{"odd", "not an object", message.OutcomeError},
		{"neither", "neither a result nor an error", message.OutcomeError},
		{"refuse", "code -32042", message.OutcomeError},
		{"flood", "", message.OutcomeSuccess},
		{"progress", "still running", message.OutcomeError},
		{"t17", "fine", message.OutcomeSuccess},
	} {
		client := c
		if strings.HasPrefix(row.tool, "huge") {
			client = patient
		}
		res := mustRun(t, find(t, client, row.tool), `{}`)
		if res.Outcome != row.outcome || !strings.Contains(res.Text(), row.want) {
			t.Errorf("%s: %s %q, want %s %q", row.tool, res.Outcome, clip(res.Text(), 300), row.outcome, row.want)
		}
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	if mem.HeapSys > 400<<20 {
		t.Errorf("the heap grew to %d MiB; the two results of 200 MiB were kept", mem.HeapSys>>20)
	}
	if st := c.Status(); st.Restarts > 0 {
		t.Errorf("the connection was lost %d times: %v", st.Restarts, st.Err)
	}
}

func TestErrorCodesAreKept(t *testing.T) {
	cfg := child(t, "chaos")
	c := connect(t, cfg)
	tl := find(t, c, "refuse")
	var last error
	for _, err := range tl.Call(t.Context(), toolCall(tl, `{}`)) {
		last = err
	}
	ce, ok := errors.AsType[*CallError](last)
	if !ok || ce.Code != -32042 || ce.Method != "tools/call" || ce.Server != "srv" || string(ce.Data) != `{"why":"test"}` {
		t.Errorf("error: %#v", last)
	}
}

// TestBurst makes many calls in parallel while the server changes its list and dies again and again.
func TestBurst(t *testing.T) {
	cfg := child(t, "crashing")
	diary := withDiary(t, &cfg)
	c := connect(t, cfg)
	work, die := find(t, c, "work"), find(t, c, "die")
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for i := range 40 {
		wg.Go(func() {
			tl := work
			if i%10 == 5 {
				tl = die
			}
			res, err := run(t.Context(), tl, `{}`)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if res.Outcome == message.OutcomeSuccess {
				done++
			}
		})
	}
	wg.Wait()
	if ran := strings.Count(diary(), "ran work"); ran < done || ran > 36 {
		t.Errorf("36 calls: %d succeeded, %d ran", done, ran)
	}
	until(t, func() bool { res, err := run(t.Context(), work, `{}`); return err == nil && res.Text() == "done" })
}
