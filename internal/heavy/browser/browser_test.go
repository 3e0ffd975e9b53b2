package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
)

// browser is the context of the browser that all tests share. Each test has its own tab and cookies.
var browser context.Context

func TestMain(m *testing.M) {
	code, err := withBrowser(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func withBrowser(run func() int) (int, error) {
	if err := installChromium(); err != nil {
		return 1, err
	}
	if out, err := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("npm ci installs axe-core for these tests; install Node with npm: %w\n%s", err, out)
	}
	// Chromium's sandbox does not work as root, and pages of tests are our own.
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-gpu", true), chromedp.WSURLReadTimeout(time.Minute))
	alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	defer stopAlloc()
	ctx, stop := chromedp.NewContext(alloc)
	defer stop()
	if err := chromedp.Do(ctx); err != nil {
		return 1, fmt.Errorf("start chromium: %w", err)
	}
	browser = ctx
	return run(), nil
}

// installChromium installs Debian's package, if there is no Chromium and the tests run as root.
func installChromium() error {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if _, err := exec.LookPath(name); err == nil {
			return nil
		}
	}
	if os.Getuid() != 0 {
		return fmt.Errorf("no Chromium is installed: apt-get install chromium")
	}
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "chromium"}} {
		cmd := exec.Command("apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil && args[0] == "install" {
			return fmt.Errorf("no Chromium is installed, and apt-get install chromium fails; install it: %w\n%s", err, out)
		}
	}
	return nil
}

// A tab is a page of the handler in the browser.
type tab struct {
	*testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	problems []string // what the console says, and scripts of attacks
	allowed  string   // a part of problems that are none
}

// serve serves a store until the end of the test.
func serve(t *testing.T, store session.Store, opts inspect.Options) (url string) {
	t.Helper()
	h, err := inspect.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/here/", http.StripPrefix("/here", h))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		h.Close()
		server.Close()
	})
	return server.URL + "/here/?token=" + h.Token()
}

// open opens the page in a tab of its own. Whatever the console says fails the test.
func open(t *testing.T, url string, first ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	return newTab(t, ctx, stop, url, first...)
}

// another opens the page in another tab with the same cookies.
func (tb *tab) another() *tab {
	tb.Helper()
	ctx, stop := chromedp.NewContext(tb.ctx)
	return newTab(tb.T, ctx, stop, tb.url)
}

func newTab(t *testing.T, ctx context.Context, stop func(), url string, first ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	tb := &tab{T: t, ctx: ctx, url: url}
	t.Cleanup(func() {
		stop()
		tb.mu.Lock()
		defer tb.mu.Unlock()
		for _, p := range tb.problems {
			t.Errorf("the page: %s", p)
		}
	})
	if err := chromedp.Listen(ctx, tb.listen); err != nil {
		t.Fatal(err)
	}
	tb.run(append(first, chromedp.Navigate(url))...)
	return tb
}

// listen collects what must not be.
func (tb *tab) listen(ev any) {
	problem := ""
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		problem = fmt.Sprintf("exception: %s %v", ev.ExceptionDetails.Text, ev.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		if ev.Type == "error" || ev.Type == "warning" {
			problem = "console: " + string(ev.Type)
		}
	case *log.EventEntryAdded:
		if ev.Entry.Level == "error" || ev.Entry.Level == "warning" {
			problem = ev.Entry.Text + " " + ev.Entry.URL
		}
	case *page.EventJavascriptDialogOpening:
		problem = "a dialog: " + ev.Message
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if problem != "" && (tb.allowed == "" || !strings.Contains(problem, tb.allowed)) {
		tb.problems = append(tb.problems, problem)
	}
}

func (tb *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		tb.Fatal(err)
	}
}

// eval returns the value of an expression, which may be a promise.
func eval[T any](tb *tab, expr string) T {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, time.Minute)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expr, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.Fatalf("%.200s: %v", expr, err)
	}
	return value
}

// await waits until an expression is true.
func (tb *tab) await(what, expr string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, time.Minute)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expr+")"))
		if ok {
			return
		}
		if err != nil || ctx.Err() != nil {
			tb.Fatalf("%s does not happen (%v); the page is:\n%s", what, err, eval[string](tb, "document.body.innerText"))
		}
		time.Sleep(20 * time.Millisecond) // what the page does is seen by looking only
	}
}

// shows waits until the page shows a text.
func (tb *tab) shows(text string) {
	tb.Helper()
	tb.await(fmt.Sprintf("%q", text), fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// click clicks the button or link with a text.
func (tb *tab) click(text string) {
	tb.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll('button,a')].find(b => b.innerText.trim() === %q && !b.disabled)", text)
	tb.await("a button "+text, find)
	eval[chromedp.Void](tb, find+".click()")
}

// goTo shows another view of the page.
func (tb *tab) goTo(fragment string) {
	tb.Helper()
	base, _, _ := strings.Cut(tb.url, "?")
	tb.run(chromedp.Navigate(base + fragment))
}

// scheme is the user's preference for "dark" or "light".
func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
		return err
	})
}

// zoomed makes the window as large as it is at a zoom, in pixels of the page.
func zoomed(percent int64) chromedp.Action[chromedp.Void] {
	return chromedp.EmulateViewport(1280*100/percent, 900*100/percent, chromedp.EmulateScale(float64(percent)/100))
}

// slash presses the key for the search. KeyEvent would type it as well, in the field that has the focus by then.
func (tb *tab) slash() {
	tb.Helper()
	eval[chromedp.Void](tb, "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
}
