package browser

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/tool"
)

// demo fills a store: a finished session, one that waits, and one that failed.
func demo(t *testing.T, store session.Store) *agent.Agent {
	tools := []tool.Tool{look(t, "look", "Nothing to see."), write(t, "book", "Booked.")}
	where := map[string]string{"where": "Bergen"}
	converse(t, store, "done", newAgent(t, tools,
		scripted.Say("I look twice.").And(scripted.Call("look", where)).And(scripted.Call("look", where)),
		scripted.Say("There is nothing.")), map[string]string{"tenant": "north"}, "What is there to see?")
	converse(t, store, "broken", newAgent(t, tools, scripted.Fail(errors.New("the model is on fire"))), nil, "Say something.")
	a := newAgent(t, tools, scripted.Call("book", where), scripted.Say("It is booked."))
	converse(t, store, "waits", a, nil, "Book a room.")
	return a
}

func TestList(t *testing.T) {
	store := session.Memory()
	demo(t, store)
	tb := open(t, serve(t, store, inspect.Options{}))
	tb.shows("What is there to see?")
	rows := eval[[]string](tb, "[...document.querySelectorAll('tbody tr')].map(r => r.innerText)")
	if len(rows) != 3 || !strings.Contains(rows[0], "Book a room.") || !strings.Contains(rows[0], "waiting") {
		t.Errorf("the waiting session is not first: %q", rows)
	}
	if title := eval[string](tb, "document.title"); title != "(1) kitbag" {
		t.Errorf("the title is %q", title)
	}
	if url := eval[string](tb, "location.href"); strings.Contains(url, "token") {
		t.Errorf("the token stays in the address %s", url)
	}
	// By the keyboard alone: "/" goes to the search, Tab and Enter to what is found.
	tb.slash()
	tb.run(chromedp.KeyEvent("north"))
	tb.await("the search", "document.querySelectorAll('tbody tr').length === 1")
	tb.run(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r")) // the table can be scrolled, too
	tb.shows("There is nothing.")
	tb.goTo("#/%") // not a valid escape
	tb.shows("Search (key /)")
}

func TestAnswer(t *testing.T) {
	store := session.Memory()
	a := demo(t, store)
	tb := open(t, serve(t, store, inspect.Options{Resume: resume(store, a)}))
	tb.shows("book wants to run")
	tb.shows("Bergen")
	tb.click("Allow once")
	tb.await("the end of the run", "[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('Book a room.') && r.innerText.includes('ended'))")
	tb.click("Book a room.")
	tb.shows("It is booked.")
	st, _, err := session.Read(t.Context(), store, "waits", 0)
	if err != nil || !st.Done() {
		t.Errorf("the session is not done: %v", err)
	}
}

// TestAnswerOfOthers sends an answer where no program runs the session: it waits.
func TestAnswerOfOthers(t *testing.T) {
	store := session.Memory()
	a := demo(t, store)
	tb := open(t, serve(t, store, inspect.Options{}))
	tb.shows("book wants to run")
	eval[chromedp.Void](tb, "(() => { const i = document.querySelector('input[aria-label^=Reason]'); i.value = 'Not on a Sunday.'; })()")
	tb.click("Deny")
	tb.shows("The program that runs this session takes it")
	tb.shows("waits to be taken")
	if err := resume(store, a)(t.Context(), "waits", inspect.Variant{}); err != nil {
		t.Fatal(err)
	}
	tb.await("the answer", "!document.querySelector('.card')")
	st, _, err := session.Read(t.Context(), store, "waits", 0)
	if err != nil {
		t.Fatal(err)
	}
	if text := st.Messages[2].ToolResults()[0].Text(); !strings.Contains(text, "Not on a Sunday.") {
		t.Errorf("the model reads %q", text)
	}
}

func TestTimeline(t *testing.T) {
	store := session.Memory()
	demo(t, store)
	tb := open(t, serve(t, store, inspect.Options{}))
	tb.goTo("#/s/done")
	tb.shows("There is nothing.")
	tb.await("two lanes", "document.querySelectorAll('tr.tool').length === 2 && document.querySelectorAll('tr.model .track').length > 0")
	// From row to row with the arrows, and into one with Enter.
	eval[chromedp.Void](tb, "document.querySelector('tr.tool button').focus()")
	tb.run(chromedp.KeyEvent("\r"))
	tb.shows("Nothing to see.")
	tb.shows("Bergen")
	tb.slash()
	tb.run(chromedp.KeyEvent("there is nothing"), chromedp.KeyEvent("\r"))
	tb.await("the match", "document.activeElement.closest('tr.model')")
	// A copy up to this answer is a session of its own.
	eval[chromedp.Void](tb, "document.querySelector('tr.model button').click()")
	tb.click("Fork after this")
	tb.await("the copy", "location.hash.includes('fork_') && document.querySelectorAll('tr.tool').length === 2")
	tb.goTo("#/s/done")
	tb.click("Requests")
	tb.shows("2 requests.")
	tb.shows("first request")
	tb.click("Decisions")
	tb.click("Judge all calls again")
	tb.shows("2 calls were judged; 2 would be decided differently.")
	tb.goTo("#/s/broken")
	tb.shows("the model is on fire")
}

// TestLive watches a session from its first step.
func TestLive(t *testing.T) {
	store := session.Memory()
	steps := make(chan struct{})
	wait, err := tool.New("wait", "Waits.", func(context.Context, struct{}) (string, error) { <-steps; return "Waited.", nil }, tool.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	tb := open(t, serve(t, store, inspect.Options{}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		converse(t, store, "live", newAgent(t, []tool.Tool{wait}, scripted.Call("wait", nil), scripted.Say("The end.")), nil, "Wait.")
	}()
	tb.await("the new session", "[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('working'))")
	tb.goTo("#/s/live")
	tb.await("the call", "document.querySelector('tr.tool')?.innerText.includes('running')")
	steps <- struct{}{}
	tb.await("its result", "document.querySelector('tr.tool')?.innerText.includes('success')")
	tb.shows("The end.")
	<-done
}

// TestLooks checks both views in both schemes and at two zooms: nothing is cut off, and axe finds no serious fault.
func TestLooks(t *testing.T) {
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	store := session.Memory()
	demo(t, store)
	grouped(t, store, "grouped")
	url := serve(t, store, gateways(new([]inspect.Pin)))
	exported := filepath.Join(t.TempDir(), "done.html")
	if err := os.WriteFile(exported, []byte(eval[string](open(t, url), "fetch('api/sessions/done/export?as=html').then(r => r.text())")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"light", "dark"} {
		for _, zoom := range []int64{40, 200} {
			tb := open(t, url, scheme(name), zoomed(zoom))
			for _, v := range []struct{ fragment, text string }{{"#/", "Book a room."}, {"#/s/done", "There is nothing."}, {"#/s/done/requests", "first request"}, {"#/s/done/groups", "The toolkit has no groups."}, {"#/s/done/decisions", "Judge all"}, {"#/s/waits", "book wants to run"},
				{"#/s/grouped/groups", "opened weather by the model"}, {"#/compare/done/waits", "rows differ"}, {"#/gateways", "no such program"}} {
				tb.goTo(v.fragment)
				tb.shows(v.text)
				for range 2 { // rows, and what is in them
					eval[chromedp.Void](tb, "document.querySelectorAll('button.toggle[aria-expanded=false]').forEach(b => b.click())")
					tb.await("the details", "!document.body.innerText.includes('Loading')")
				}
				if wide := eval[int](tb, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide > 0 {
					t.Errorf("%s at %d %%: the page is %d pixels wider than the window", v.fragment, zoom, wide)
				}
				tb.faults(axe, v.fragment+" "+name)
			}
			tb.run(chromedp.Navigate("file://" + exported))
			tb.shows("There is nothing.")
			tb.faults(axe, "the exported page "+name)
		}
	}
}

// faults runs axe.
func (tb *tab) faults(axe []byte, where string) {
	tb.Helper()
	eval[chromedp.Void](tb, string(axe)+";0")
	type fault struct {
		ID, Impact, Help string
		HTML             []string
	}
	for _, f := range eval[[]fault](tb, `axe.run().then(r => r.violations.map(v => ({ID: v.id, Impact: v.impact, Help: v.help, HTML: v.nodes.slice(0, 3).map(n => n.html)})))`) {
		if f.Impact == "serious" || f.Impact == "critical" {
			tb.Errorf("%s: axe: %s %s: %s %q", where, f.Impact, f.ID, f.Help, f.HTML)
		} else {
			tb.Logf("%s: axe: %s %s: %s %q", where, f.Impact, f.ID, f.Help, f.HTML)
		}
	}
}
