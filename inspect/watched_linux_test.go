package inspect_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// cpu returns the CPU time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Of the process with the pages: where the page is, or the directory of the store, if that process serves the page, too.
const watchedURL, watchedDir = "KITBAG_WATCHED_URL", "KITBAG_WATCHED_DIR"

// working counts the goroutines that are in code of this package or watch the store.
func working() (n int) {
	buf := make([]byte, 1<<20)
	for i, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if i > 0 && (strings.Contains(g, "kitbag/inspect.") || strings.Contains(g, "agent/session.")) { // the first is this one
			n++
		}
	}
	return n
}

// TestWatchingPages is the process with the pages of TestWatched: "watch ID..." opens 10 pages of each session, and "stop"
// closes them.
func TestWatchingPages(t *testing.T) {
	url := os.Getenv(watchedURL)
	if dir := os.Getenv(watchedDir); dir != "" {
		url = served(t, must(session.Dir(dir)))
	}
	if url == "" {
		return // it is not this process
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: 20}}
	defer c.CloseIdleConnections()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	base, _, _ := strings.Cut(url, "?")
	var pages sync.WaitGroup
	stop := func() {}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if ids, watch := strings.CutPrefix(in.Text(), "watch "); watch {
			var ctx context.Context
			ctx, stop = context.WithCancel(t.Context())
			for _, id := range strings.Fields(ids) {
				for range 10 {
					pages.Go(func() { watchPage(ctx, c, base, id) })
				}
			}
			time.Sleep(time.Second) // they load what there is
		} else {
			stop()
			pages.Wait()
		}
		fmt.Println("done")
	}
	stop()
	pages.Wait()
}

// watchPage does what a page does: it is sent what changes, and loads the rows and the session when it is told to.
func watchPage(ctx context.Context, c *http.Client, base, id string) {
	read := func(path string, use func(io.Reader)) {
		r, err := http.NewRequestWithContext(ctx, "GET", base+path, nil)
		if err != nil {
			panic(err)
		}
		if resp, err := c.Do(r); err == nil {
			use(resp.Body)
			resp.Body.Close()
		}
	}
	read("api/live?session="+id, func(body io.Reader) {
		for lines := bufio.NewScanner(body); lines.Scan(); {
			if strings.Contains(lines.Text(), `"reload":true`) {
				for _, path := range []string{"", "/rows?from=0&n=100"} {
					read("api/sessions/"+id+path, func(body io.Reader) { _, _ = io.Copy(io.Discard, body) })
				}
			}
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// served serves a store until the end of the test, and returns the URL with the token.
func served(t *testing.T, store session.Store) string {
	h := must(inspect.New(store, inspect.Options{}))
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		server.Close()
	})
	return server.URL + "/?token=" + h.Token()
}

// TestWatched measures the CPU time of a step of runs, each of which 10 pages show, and of runs that nothing looks at, in turns;
// then nothing of the handler works. The pages are served by another process, as by "kitbag ui", or by that of the runs.
func TestWatched(t *testing.T) {
	rounds, limit := 1, 10.0 // on any machine, whatever else it does
	if os.Getenv("KITBAG_TIMES") != "" {
		rounds, limit = 15, 1.05
	}
	dir := t.TempDir()
	store := must(session.Dir(dir))
	for _, pace := range []time.Duration{0, 50 * time.Millisecond} {
		t.Run(fmt.Sprint("another process ", pace), func(t *testing.T) {
			compareSteps(t, store, watchedDir+"="+dir, pace, rounds, limit)
		})
	}
	t.Run("this process", func(t *testing.T) {
		compareSteps(t, store, watchedURL+"="+served(t, store), 50*time.Millisecond, rounds, limit)
	})
}

// compareSteps runs sessions with and without pages in a process with these settings, in turns.
func compareSteps(t *testing.T, store session.Store, settings string, pace time.Duration, rounds int, limit float64) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestWatchingPages$")
	cmd.Env, cmd.Stderr = append(os.Environ(), settings), os.Stderr
	send, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	pages := func(what string) {
		t.Helper()
		fmt.Fprintln(send, what)
		if !lines.Scan() {
			t.Fatal("the pages have ended")
		}
	}
	name := strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())
	runSteps(t, store, name, pace, func([]string) {})
	var ratios []float64
	var alone, watched time.Duration
	for i := range rounds {
		var one, other time.Duration
		for first := range 2 { // the order alternates
			if first == i%2 {
				one = runSteps(t, store, fmt.Sprint(name, i, "-alone"), pace, func([]string) {})
				continue
			}
			other = runSteps(t, store, fmt.Sprint(name, i), pace, func(ids []string) { pages("watch " + strings.Join(ids, " ")) })
			pages("stop")
			untilIdle(t)
		}
		alone, watched, ratios = alone+one, watched+other, append(ratios, float64(other)/float64(one))
	}
	if err := errors.Join(send.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	slices.Sort(ratios)
	n, ratio := time.Duration(rounds), float64(watched)/float64(alone)
	t.Logf("a step each %v: %v alone, %v watched by 10 pages, ratio %.3f; of the rounds: median %.3f, quartiles %.3f and %.3f",
		pace, alone/n, watched/n, ratio, ratios[rounds/2], ratios[rounds/4], ratios[rounds-1-rounds/4])
	if ratio > limit {
		t.Errorf("a step costs %.3f times as much while it is watched", ratio)
	}
}

// untilIdle waits until nothing of the handler works any more: a feed is kept for some seconds.
func untilIdle(t *testing.T) {
	t.Helper()
	for begin := time.Now(); working() > 0; time.Sleep(50 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("%d goroutines of the handler work while nothing looks", working())
		}
	}
}

// runSteps runs several agents at once, as one would be too little to measure, and returns the CPU time of a step. Each is in a
// session that has begun, and each step waits for the pace.
func runSteps(t *testing.T, store session.Store, name string, pace time.Duration, begun func(ids []string)) time.Duration {
	t.Helper()
	const runs, steps = 5, 100
	var ids []string
	var work []func() error
	for i := range runs {
		id := fmt.Sprint(name, "-", i)
		s, err := session.Open(t.Context(), store, id)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		a := stepping(t, s, steps, pace)
		if _, err := a.Reply(t.Context(), s.State, agent.Say("Hello.")); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		work = append(work, func() error {
			_, err := a.Reply(t.Context(), s.State, agent.Say("Look."))
			return err
		})
	}
	begun(ids)
	runtime.GC() // of what was before
	begin := cpu(t)
	var wait sync.WaitGroup
	for _, run := range work {
		wait.Go(func() {
			if err := run(); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	return (cpu(t) - begin) / (runs * (steps + 1))
}

// stepping returns an agent that answers, and then calls a tool in each of its steps.
func stepping(t *testing.T, s *session.Session, steps int, pace time.Duration) *agent.Agent {
	t.Helper()
	looks := 0 // different results, as otherwise the agent would end the run as a loop
	look, err := tool.New("look", "Looks.", func(context.Context, struct{}) (string, error) {
		time.Sleep(pace)
		looks++
		return fmt.Sprint("Nothing ", looks), nil
	}, tool.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	turns := slices.Repeat([]scripted.Turn{scripted.Call("look", nil)}, steps)
	turns = slices.Concat([]scripted.Turn{scripted.Say("Hello.")}, turns, []scripted.Turn{scripted.Say("Done.")})
	a, err := agent.New(agent.Config{Model: scripted.New(turns...), Save: s.Save, Toolkit: toolkit.Of(look),
		Limits: agent.Limits{Steps: 2 * steps}, Policy: permission.Policy{TrustReadOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}
