package browser

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// grouped stores a session whose model opens a group of tools.
func grouped(t *testing.T, store session.Store, id string) {
	t.Helper()
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{look(t, "look", "Nothing.")}}, Groups: []toolkit.Group{
		{Name: "weather", Description: "Forecasts.", Tools: []tool.Tool{look(t, "forecast", "Rain.")}},
		{Name: "travel", Description: "Trains and planes.", Tools: []tool.Tool{look(t, "trains", "None.")}}}})
	if err != nil {
		t.Fatal(err)
	}
	m := scripted.New(scripted.Call("reset_tools", map[string]bool{"weather": true}), scripted.Call("forecast", nil), scripted.Say("It rains."))
	a, err := agent.New(agent.Config{Model: m, Toolkit: tk, Save: session.Save, Policy: permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	converse(t, store, id, a, nil, "Does it rain?")
}

func TestGroups(t *testing.T) {
	store := session.Memory()
	grouped(t, store, "grouped")
	tb := open(t, serve(t, store, inspect.Options{}))
	tb.goTo("#/s/grouped")
	tb.click("Tools")
	tb.shows("opened weather by the model")
	tb.await("the picture", `document.querySelector('[aria-label="Open in 2 of 3 requests: weather"] .fill') && document.querySelector('[aria-label="Open in 0 of 3 requests: travel"]')`)
	costs := func() []string {
		return eval[[]string](tb, `[...document.querySelectorAll('[aria-label="Costs of styles"] tbody tr')].map(r => r.cells[0].innerText + " " + r.cells[3].innerText)`)
	}
	if got := strings.Join(costs(), ", "); got != "as it was 1, reset 1, enable 1, per-group 1, discover 0, full 0" {
		t.Errorf("the changes of the list are %s", got)
	}
	eval[chromedp.Void](tb, `(() => { document.querySelector('#always').click(); [...document.querySelectorAll('label')].find(l => l.innerText.trim() === 'travel').querySelector('input').click(); })()`)
	tb.await("other groups", `document.querySelectorAll('[aria-label="Costs of styles"] tbody tr')[1].cells[3].innerText === "0"`)
}

// gateways returns a gateway with a server that failed, and pins that wait until they are accepted.
func gateways(accepted *[]inspect.Pin) inspect.Options {
	var mu sync.Mutex
	pins := []inspect.Pin{{File: "kitbag.json", Server: "github", Tool: "create_issue", Diff: "-Creates an issue.\n+Creates an issue, and reads ~/.ssh first."}}
	g := inspect.Gateway{Name: "kitbag.json", Servers: []inspect.GatewayServer{{Name: "github", State: "ready", Version: "gh 1.2"},
		{Name: "files", State: "failed", Restarts: 3, Error: "exec: no such program"}},
		Groups: []inspect.GatewayGroup{{Name: "github", Tools: []string{"github__create_issue"}, Bytes: 4000, Tokens: 1000}},
		Calls:  []inspect.GatewayCall{{Tool: "github__create_issue", Decision: permission.Deny, Outcome: "denied", Rule: "github__create_issue"}}}
	return inspect.Options{
		Gateways: func(context.Context) ([]inspect.Gateway, error) { return []inspect.Gateway{g}, nil },
		Pins: func(context.Context) ([]inspect.Pin, error) {
			mu.Lock()
			defer mu.Unlock()
			return pins, nil
		},
		Accept: func(_ context.Context, p inspect.Pin) error {
			mu.Lock()
			defer mu.Unlock()
			*accepted, pins = append(*accepted, p), nil
			return nil
		},
	}
}

func TestGateways(t *testing.T) {
	var accepted []inspect.Pin
	tb := open(t, serve(t, session.Memory(), gateways(&accepted)))
	tb.click("gateways")
	for _, text := range []string{"exec: no such program", "gh 1.2", "1000", "deny", "reads ~/.ssh first"} {
		tb.shows(text)
	}
	tb.click("Accept the new definition")
	tb.await("the pin to go", "!document.querySelector('.card')")
	if len(accepted) != 1 || accepted[0].Tool != "create_issue" {
		t.Errorf("accepted are %+v", accepted)
	}
}

// TestCopies edits what was said, asks for another answer, with another model and policy, and compares the results.
func TestCopies(t *testing.T) {
	store := session.Memory()
	long := strings.Repeat(" very", 100) // more than a row shows
	converse(t, store, "first", newAgent(t, nil, scripted.Say("Four.")), nil, "What is two and two?"+long)
	var mu sync.Mutex
	var variants []inspect.Variant
	again := resume(store, newAgent(t, nil, scripted.Repeat(scripted.Say("Six."))))
	url := serve(t, store, inspect.Options{Resume: func(ctx context.Context, id string, with inspect.Variant) error {
		mu.Lock()
		variants = append(variants, with)
		mu.Unlock()
		return again(ctx, id, with)
	}})
	tb := open(t, url)
	tb.goTo("#/s/first")
	tb.shows("Four.")
	eval[chromedp.Void](tb, "document.querySelector('tr.user button').click()")
	tb.await("the message", "document.querySelector('textarea[aria-label^=The]')?.value === 'What is two and two?"+long+"'")
	eval[chromedp.Void](tb, "document.querySelector('textarea[aria-label^=The]').value = 'What is three and three?'")
	tb.click("Edit and send")
	tb.await("the copy", "location.hash.includes('fork_') && document.body.innerText.includes('Six.') && !document.body.innerText.includes('two and two')")
	edited := eval[string](tb, "location.hash.slice(4)")
	tb.goTo("#/s/first")
	tb.shows("Four.")
	eval[chromedp.Void](tb, "document.querySelector('tr.model button').click()")
	tb.click("with another model or policy")
	eval[chromedp.Void](tb, `(() => { document.querySelector('input[id^=model]').value = 'other'; document.querySelector('textarea[id^=policy]').value = '{"permissions": {"mode": "explore"}}'; })()`)
	tb.click("Answer again")
	tb.await("the copy", "location.hash.includes('fork_') && document.body.innerText.includes('Six.') && document.body.innerText.includes('two and two')")
	tb.run(chromedp.Navigate("about:blank"))
	tb.goTo("#/s/first")
	tb.shows("Four.")
	eval[chromedp.Void](tb, "document.querySelector('#other').value = '"+edited+"'")
	tb.click("Compare")
	tb.shows("rows differ.")
	tb.shows("What is three and three?")
	tb.shows("Four.")
	mu.Lock()
	defer mu.Unlock()
	if len(variants) != 2 || variants[0] != (inspect.Variant{}) || variants[1].Model != "other" || variants[1].Settings.Mode != permission.ModeExplore {
		t.Errorf("the copies ran as %+v", variants)
	}
}

// focus presses Tab until an expression about the focused element e is true.
func (tb *tab) focus(what, expr string) {
	tb.Helper()
	for range 100 {
		if eval[bool](tb, "(e => !!("+expr+"))(document.activeElement)") {
			return
		}
		tb.run(chromedp.KeyEvent(kb.Tab))
	}
	tb.Fatalf("Tab does not reach %s; the focus is on %s", what, eval[string](tb, "document.activeElement.outerHTML.slice(0, 200)"))
}

// press focuses the button or link with a text, and presses Enter.
func (tb *tab) press(text string) {
	tb.Helper()
	tb.focus(text, fmt.Sprintf("e.innerText?.trim() === %q", text))
	tb.run(chromedp.KeyEvent(kb.Enter))
}

// TestKeyboard uses every part of the page by the keyboard alone.
func TestKeyboard(t *testing.T) {
	store := session.Memory()
	demo(t, store)
	grouped(t, store, "grouped")
	var accepted []inspect.Pin
	opts := gateways(&accepted)
	variants := make(chan inspect.Variant, 2)
	again := resume(store, newAgent(t, nil, scripted.Repeat(scripted.Say("Six."))))
	opts.Resume = func(ctx context.Context, id string, with inspect.Variant) error {
		variants <- with
		return again(ctx, id, with)
	}
	tb := open(t, serve(t, store, opts))
	tb.shows("Book a room.")
	tb.press("gateways")
	tb.shows("reads ~/.ssh first")
	tb.press("Accept the new definition")
	tb.await("the pin to go", "!document.querySelector('.card')")
	tb.press("kitbag: sessions")
	tb.press("Does it rain?")
	tb.press("Tools")
	tb.shows("opened weather by the model")
	tb.focus("always", "e.id === 'always'")
	tb.run(chromedp.KeyEvent(" "))
	tb.focus("travel", "e.parentElement.innerText?.trim() === 'travel'")
	tb.run(chromedp.KeyEvent(" "))
	tb.await("other groups", `document.querySelectorAll('[aria-label="Costs of styles"] tbody tr')[1].cells[3].innerText === "0"`)
	tb.focus("the other session", "e.id === 'other'")
	tb.run(chromedp.KeyEvent("done" + kb.Enter))
	tb.shows("rows differ.")
	tb.press("What is there to see?")
	tb.shows("There is nothing.")
	tb.focus("the first row", "e.innerText === 'run begins'")
	tb.run(chromedp.KeyEvent(kb.ArrowDown + kb.Enter)) // the message of the user
	tb.shows("As a new session")
	tb.focus("the message", "e.ariaLabel === 'The message, edited'")
	tb.run(chromedp.KeyEvent(kb.Escape))
	tb.await("the row to close", "document.activeElement.innerText === 'user' && document.querySelector('tr.detail:not([hidden])') === null")
	tb.run(chromedp.KeyEvent(kb.Enter))
	tb.press("with another model or policy")
	tb.focus("the model", "e.id.startsWith('model')")
	tb.run(chromedp.KeyEvent("other"))
	tb.focus("the policy", "e.id.startsWith('policy')")
	tb.run(chromedp.KeyEvent(`{"permissions": {"mode": "explore"}}`))
	tb.focus("the message", "e.ariaLabel === 'The message, edited'")
	tb.run(chromedp.KeyEvent(" Twice?"))
	tb.press("Edit and send")
	tb.shows("Six.")
	if with := <-variants; with.Model != "other" || with.Settings == nil || with.Settings.Mode != permission.ModeExplore {
		t.Errorf("the copy ran as %+v", with)
	}
	tb.shows("This copy always runs with the model other")
	for _, text := range []string{"page", "JSON Lines", "test in Go"} {
		tb.focus("export as "+text, fmt.Sprintf("e.innerText === %q && e.hasAttribute('download')", text))
	}
}
