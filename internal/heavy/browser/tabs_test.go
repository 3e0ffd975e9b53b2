package browser

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
)

// TestTwoTabs answers a question in two tabs of one page: one answer counts, and both tabs show what comes of it. When the
// cookie is gone, as after the server was started again, both say what to do.
func TestTwoTabs(t *testing.T) {
	store := session.Memory()
	a := demo(t, store)
	var mu sync.Mutex
	runs := 0
	run := resume(store, a)
	one := open(t, serve(t, store, inspect.Options{Resume: func(ctx context.Context, id string, with inspect.Variant) error {
		mu.Lock()
		runs++
		mu.Unlock()
		return run(ctx, id, with)
	}}))
	other := one.another()
	other.goTo("#/s/waits")
	tabs := []*tab{one, other}
	var clicks sync.WaitGroup
	allow := func(text string) {
		for _, tb := range tabs {
			tb.mu.Lock()
			tb.allowed = text
			tb.mu.Unlock()
		}
	}
	allow("status of 400") // to an answer, if the run has taken the other one by then
	for _, tb := range tabs {
		tb.shows("book wants to run")
	}
	for _, tb := range tabs {
		clicks.Go(func() {
			eval[chromedp.Void](tb, "[...document.querySelectorAll('button')].find(b => b.innerText === 'Allow once').click()")
		})
	}
	clicks.Wait()
	one.await("the end of the run", "[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('Book a room.') && r.innerText.includes('ended'))")
	other.shows("It is booked.")
	for _, tb := range tabs {
		tb.await("the question to go", "!document.querySelector('.card')")
	}
	st, _, err := session.Read(t.Context(), store, "waits", 0)
	if err != nil {
		t.Fatal(err)
	}
	results := 0
	for _, m := range st.Messages {
		results += len(m.ToolResults())
	}
	mu.Lock()
	defer mu.Unlock()
	if results != 1 || runs == 0 || !st.Done() {
		t.Errorf("the call has %d results after %d runs", results, runs)
	}
	allow("status of 403")
	one.run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, network.ClearBrowserCookies, cdp.Empty{})
		return err
	}))
	for _, tb := range tabs { // a hidden tab listens again when it is shown
		eval[chromedp.Void](tb, "document.dispatchEvent(new Event('visibilitychange'))")
		tb.shows("Open the URL that was printed when the server was started")
	}
}

// TestToken uses the page like a user, and finds the token in the first request only: in no other address or header that a
// log has, and in nothing that the page knows.
func TestToken(t *testing.T) {
	store := session.Memory()
	a := demo(t, store)
	h, err := inspect.New(store, inspect.Options{Resume: resume(store, a)})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var line strings.Builder
		line.WriteString(r.Method + " " + r.URL.String() + "\n")
		_ = r.Header.Write(&line)
		mu.Lock()
		requests = append(requests, line.String())
		mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		h.Close()
		server.Close()
	})
	tb := open(t, server.URL+"/?token="+h.Token())
	tb.shows("book wants to run")
	tb.click("Allow once")
	tb.await("the end of the run", "!document.querySelector('.card')")
	tb.click("What is there to see?")
	tb.shows("There is nothing.")
	for _, part := range []string{"Requests", "Tools", "Decisions", "gateways"} {
		tb.click(part)
		tb.await(part, "document.querySelector('h1,h2') && !document.body.innerText.includes('Loading')")
	}
	tb.run(chromedp.Reload())
	tb.shows("This program knows of no gateway.")
	known := eval[string](tb, `JSON.stringify([location.href, document.referrer, document.cookie, document.documentElement.outerHTML,
		performance.getEntries().map(e => e.name), Object.entries(localStorage), Object.entries(sessionStorage)])`)
	if strings.Contains(known, h.Token()) {
		t.Errorf("the page knows the token: %s", known)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, line := range requests {
		if strings.Contains(line, h.Token()) != (i == 0) || strings.Contains(line, "\nReferer:") {
			t.Errorf("request %d: %s", i, line)
		}
	}
	if len(requests) < 20 {
		t.Errorf("there were only %d requests", len(requests))
	}
}
