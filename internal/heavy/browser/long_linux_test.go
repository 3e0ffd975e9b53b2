package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/message"
)

// long stores a session with a number of steps, each with a model call and two tool calls.
func long(t *testing.T, store session.Store, id string, steps int) {
	t.Helper()
	small := session.Memory()
	demo(t, small)
	rec := stored(t, small, "done")
	rec.Data, rec.Events = replaced(t, rec.Data, `"done"`[1:5], id), nil
	seq, now := int64(0), time.Now().Add(-time.Hour)
	add := func(ev event.Event) {
		seq++
		now = now.Add(10 * time.Millisecond)
		h := ev.Head()
		h.Seq, h.Type, h.Time = seq, event.TypeOf(ev), now
		data, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		rec.Events = append(rec.Events, session.Event{Seq: seq, Data: data})
	}
	recs := []session.Record{}
	add(&event.RunStart{Session: id})
	for step := range steps {
		msg := &message.Message{ID: fmt.Sprint("msg_", step), Role: message.RoleAssistant, Model: "gpt-5.5", Usage: &message.Usage{Input: 1000 + step, Cached: 900, Output: 50}}
		add(&event.ModelStart{Message: msg.ID, Step: step + 1, Model: "gpt-5.5", Tools: 12})
		for i := range 2 {
			msg.Blocks = append(msg.Blocks, &message.ToolCall{ID: fmt.Sprint("call_", step, "_", i), Name: "look", Input: json.RawMessage(`{"where":"Bergen"}`)})
		}
		add(&event.Message{Message: msg, Finish: "tool_calls"})
		for _, c := range msg.ToolCalls() {
			add(&event.ToolCall{Message: msg.ID, Call: c.ID, Name: c.Name, Input: c.Input})
			add(&event.ToolStart{Call: c.ID, Name: c.Name, Reason: "it only reads"})
		}
		for _, c := range msg.ToolCalls() {
			text := fmt.Sprintf("Result of step %d: %0500d", step, step)
			add(&event.ToolResult{Call: c.ID, Name: c.Name, Outcome: message.OutcomeSuccess, Text: text,
				Result: &message.ToolResult{ID: c.ID, Name: c.Name, Outcome: message.OutcomeSuccess, Blocks: message.Blocks{&message.Text{Text: text}}}})
		}
		if step%500 == 499 { // few records, so that the test does not wait for the disk
			recs = append(recs, rec)
			rec = session.Record{Seq: rec.Seq + 1, Whole: true, Data: rec.Data, Status: rec.Status, Labels: rec.Labels}
		}
	}
	put(t, store, id, recs...)
}

// TestLong opens a session of 5,000 steps, and measures how long that takes and how large the process of its tab is.
func TestLong(t *testing.T) {
	store, err := session.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	long(t, store, "long", longSteps)
	all := fmt.Sprintf("Rows 1 to 100 of %d", 3*longSteps+1)
	limit := 10 * time.Second // on any machine, whatever else it does
	if os.Getenv("KITBAG_TIMES") != "" {
		limit = time.Second
	}
	best := time.Hour // of three, since other tests run at the same time
	var tb *tab
	for range 3 {
		tb = open(t, serve(t, store, inspect.Options{}))
		tb.shows("What is there to see?")
		server, browser := cpu(t), tb.renderers()
		begin := time.Now()
		tb.goTo("#/s/long")
		tb.await("rows", "document.querySelectorAll('tr.tool').length > 10")
		rows := time.Since(begin)
		tb.await("the total", fmt.Sprintf("document.querySelector('.tools [role=status]').innerText === %q", all)) // quicker than shows
		took := time.Since(begin)
		t.Logf("rows after %v, with their total after %v; CPU time %v of the server, %.1fs of the browser's tabs", rows, took, cpu(t)-server,
			tb.renderers().seconds-browser.seconds)
		best = min(best, rows)
	}
	if best > limit {
		t.Errorf("the rows of a long session are shown after %v, more than %v", best, limit)
	}
	for range 3 {
		tb.click("Next")
		tb.await("the next rows", "document.querySelectorAll('tr.tool').length > 10")
	}
	tb.click("Last")
	tb.shows(fmt.Sprint("to ", 3*longSteps+1, " of"))
	heap, r := eval[float64](tb, "performance.memory.usedJSHeapSize"), tb.renderers()
	t.Logf("the largest tab has %d MB proportional (PSS), %d MB resident; the JavaScript heap of this one has %.1f MB", r.pss>>20, r.rss>>20, heap/(1<<20))
	if r.pss > 150<<20 {
		t.Errorf("the largest tab has %d MB", r.pss>>20)
	}
}

// cpu returns the CPU time of this process, which serves the page.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// usage is what the processes of the browser's tabs use: the CPU time of all, and the memory in bytes of the largest one.
type usage struct {
	seconds  float64
	pss, rss int
}

func (tb *tab) renderers() (u usage) {
	tb.Helper()
	list, err := cdp.Call(tb.ctx, chromedp.FromContext(browser).Browser, systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range list.ProcessInfo {
		if p.Type != "renderer" {
			continue
		}
		u.seconds += p.CPUTime
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.ID))
		if err != nil {
			continue // the process has ended
		}
		for line := range strings.Lines(string(data)) {
			var kb int
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kb); n == 1 {
				u.pss = max(u.pss, kb<<10)
			}
			if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kb); n == 1 {
				u.rss = max(u.rss, kb<<10)
			}
		}
	}
	if u.pss == 0 {
		tb.Fatal("the browser has no tab whose memory can be read")
	}
	return u
}
