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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// runsDir is set for a process with runs: the directory of its store.
const runsDir = "KITBAG_RUNS_DIR"

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

// TestRuns is a process with runs of TestWatched, which also serves their pages. It first prints the URL of the page, and then
// an answer to each line of its input:
//
//	begin NAME PACE  the ids of new sessions, whose runs will take this long for a step
//	run              the CPU time that each step of the runs took, in nanoseconds
//	idle             an empty line when nothing of the handler works any more
func TestRuns(t *testing.T) {
	dir := os.Getenv(runsDir)
	if dir == "" {
		return // it is not this process
	}
	store := must(session.Dir(dir))
	fmt.Println(served(t, store))
	var begun *runs
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch f := strings.Fields(in.Text()); f[0] {
		case "begin":
			begun = beginRuns(t, store, f[1], must(time.ParseDuration(f[2])))
			fmt.Println(strings.Join(begun.ids, " "))
		case "run":
			fmt.Println(int64(begun.run(t)))
		case "idle":
			untilIdle(t)
			fmt.Println()
		}
	}
}

// A runner is a process that runs TestRuns.
type runner struct {
	t    *testing.T
	dir  string
	url  string
	send io.Writer
	out  *bufio.Scanner
}

func newRunner(t *testing.T) *runner {
	r := &runner{t: t, dir: t.TempDir()}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRuns$")
	cmd.Env, cmd.Stderr = append(os.Environ(), runsDir+"="+r.dir), os.Stderr
	send, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(send.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	r.send, r.out = send, bufio.NewScanner(out)
	r.url = r.answer()
	return r
}

func (r *runner) answer() string {
	r.t.Helper()
	if !r.out.Scan() {
		r.t.Fatal("a process with runs has ended")
	}
	return r.out.Text()
}

// ask sends a line to the process and returns its answer.
func (r *runner) ask(line string) string {
	r.t.Helper()
	fmt.Fprintln(r.send, line)
	return r.answer()
}

// A browser shows pages.
type browser struct {
	client *http.Client
	base   string
	pages  sync.WaitGroup
	stop   context.CancelFunc
	lost   atomic.Int32 // pages that were sent nothing more before they were closed
}

// openPages shows each session on 10 pages.
func openPages(t *testing.T, url string, ids []string) *browser {
	jar := must(cookiejar.New(nil))
	b := &browser{client: &http.Client{Jar: jar, Transport: &http.Transport{MaxIdleConnsPerHost: 20}}}
	resp, err := b.client.Get(url) // for the cookie
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	b.base, _, _ = strings.Cut(url, "?")
	var ctx context.Context
	ctx, b.stop = context.WithCancel(t.Context())
	for _, id := range ids {
		for range 10 {
			b.pages.Go(func() { b.show(ctx, id) })
		}
	}
	time.Sleep(time.Second) // they load what there is
	return b
}

func (b *browser) close(t *testing.T) {
	t.Helper()
	lost := b.lost.Load()
	b.stop()
	b.pages.Wait()
	b.client.CloseIdleConnections()
	if lost > 0 {
		t.Errorf("%d pages have lost their connection", lost)
	}
}

// show does what a page does: it is sent what changes, and loads the rows and the session when it is told to.
func (b *browser) show(ctx context.Context, id string) {
	read := func(path string, use func(io.Reader)) {
		r, err := http.NewRequestWithContext(ctx, "GET", b.base+path, nil)
		if err != nil {
			panic(err)
		}
		if resp, err := b.client.Do(r); err == nil {
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
	if ctx.Err() == nil {
		b.lost.Add(1)
	}
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

// TestWatched measures the CPU time of a step of runs, each of which 10 pages show, and of runs that nothing looks at. Two
// processes run them at the same time, since what a step costs changes by a quarter within minutes. The pages are served by
// another process, as by "kitbag ui", or by that of the runs. When they are closed, nothing of the handler works any more.
func TestWatched(t *testing.T) {
	rounds, limit := 1, 10.0 // on any machine, whatever else it does
	if os.Getenv("KITBAG_TIMES") != "" {
		rounds, limit = 15, 1.05
	}
	paces := []time.Duration{0, 50 * time.Millisecond}
	if testing.Short() {
		paces = paces[:1]
	}
	for _, pace := range paces {
		t.Run(fmt.Sprint("another process ", pace), func(t *testing.T) {
			compareSteps(t, pace, rounds, limit, func(r *runner) string { return served(t, must(session.Dir(r.dir))) })
		})
	}
	if testing.Short() {
		return
	}
	t.Run("this process", func(t *testing.T) {
		compareSteps(t, 50*time.Millisecond, rounds, limit, func(r *runner) string { return r.url })
	})
}

// compareSteps runs sessions in two processes, in turns with the pages of one of them.
func compareSteps(t *testing.T, pace time.Duration, rounds int, limit float64, page func(*runner) string) {
	runners := []*runner{newRunner(t), newRunner(t)}
	urls := []string{page(runners[0]), page(runners[1])}
	measure := func(name string, watched int) (cost [2]time.Duration) {
		var pages *browser
		for i, r := range runners {
			ids := strings.Fields(r.ask(fmt.Sprint("begin ", name, " ", pace)))
			if i == watched {
				pages = openPages(t, urls[i], ids)
			}
		}
		for _, r := range runners {
			fmt.Fprintln(r.send, "run")
		}
		for i, r := range runners {
			cost[i] = time.Duration(must(strconv.ParseInt(r.answer(), 10, 64)))
		}
		if pages != nil {
			pages.close(t)
			runners[watched].ask("idle")
		}
		return cost
	}
	measure("first", -1)
	var ratios []float64
	var alone, watched time.Duration
	for i := range rounds {
		cost := measure(fmt.Sprint("round-", i), i%2)
		one, other := cost[1-i%2], cost[i%2]
		alone, watched, ratios = alone+one, watched+other, append(ratios, float64(other)/float64(one))
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

// Runs are runs of several agents at once, as one would be too little to measure. Each is in a session that has begun.
type runs struct {
	ids  []string
	work []func() error
}

const atOnce, steps = 5, 100

func beginRuns(t *testing.T, store session.Store, name string, pace time.Duration) *runs {
	t.Helper()
	all := &runs{}
	for i := range atOnce {
		id := fmt.Sprint(name, "-", i)
		s, err := session.Open(t.Context(), store, id)
		if err != nil {
			t.Fatal(err)
		}
		a := stepping(t, s, steps, pace)
		if _, err := a.Reply(t.Context(), s.State, agent.Say("Hello.")); err != nil {
			t.Fatal(err)
		}
		all.ids = append(all.ids, id)
		all.work = append(all.work, func() error {
			_, err := a.Reply(t.Context(), s.State, agent.Say("Look."))
			return errors.Join(err, s.Close())
		})
	}
	return all
}

// run returns the CPU time of a step.
func (all *runs) run(t *testing.T) time.Duration {
	t.Helper()
	runtime.GC() // of what was before
	begin := cpu(t)
	var wait sync.WaitGroup
	for _, work := range all.work {
		wait.Go(func() {
			if err := work(); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	return (cpu(t) - begin) / (atOnce * (steps + 1))
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
