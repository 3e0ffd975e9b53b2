package temporal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

// TestWaiting has many sessions wait for a person, with and without a timer, and then answers them. While they
// wait, they use no memory of a worker except in the SDK's cache of workflows, whose size is bounded. "make
// waiting" has 10,000.
func TestWaiting(t *testing.T) {
	n := 100
	if s := os.Getenv("KITBAG_WAITING"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, wait := range map[string]time.Duration{"without a timer": 0, "with a timer": time.Hour} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.WaitFor = wait
			h := newHost(t, p)
			h.work(t, h.agent)
			h.send(t, "warm", "one", agent.Say("pay:1"))
			h.ended(t, "warm", 1)
			h.manySessions(t, n)
		})
	}
}

// cached is how many workflows the SDK may keep in the memory of the test's process.
const cached = 20

// manySessions has n sessions wait for an answer, answers all, and checks that a worker soon processes each answer.
func (h *host) manySessions(t *testing.T, n int) {
	t.Helper()
	goroutines, heap := used()
	begin := time.Now()
	h.each(n, func(id string) { h.send(t, id, "one", agent.Say("ask:1")) })
	for deadline := time.Now().Add(10 * time.Minute); h.count(t, session.StatusWaiting) < n; time.Sleep(time.Duration(n) * time.Millisecond / 10) {
		if time.Now().After(deadline) {
			t.Fatalf("of %d sessions only %d wait", n, h.count(t, session.StatusWaiting))
		}
	}
	t.Logf("%d sessions wait after %v", n, time.Since(begin))
	worker.PurgeStickyWorkflowCache()
	more, bytes := 0, 0
	for range 100 { // until the last activities have been reported, and pollers that are not needed have ended
		now, size := used()
		if more, bytes = now-goroutines, size-heap; more <= cached && bytes < 4<<20 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("they need %d more goroutines and %d bytes", more, bytes)
	if more > cached || bytes > 4<<20+100*n { // pollers and buffers; a cached workflow has some kilobytes
		t.Errorf("%d sessions that wait need %d goroutines and %d bytes", n, more, bytes)
	}
	begin = time.Now()
	var mu sync.Mutex
	var took []time.Duration
	h.each(n, func(id string) {
		pending, err := h.Pending(t.Context(), id)
		if err != nil || len(pending) != 1 {
			t.Errorf("%s: pending %v, %v", id, pending, err)
			return
		}
		begin := time.Now()
		if err := h.Answer(t.Context(), id, "yes", pending[0].(*event.Approval).Allow()); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(begin))
	})
	t.Logf("all answers are taken up after %v", time.Since(begin))
	for deadline := time.Now().Add(time.Minute); h.count(t, session.StatusEnded) <= n && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
	}
	if got := h.count(t, session.StatusEnded) - 1; got != n { // and the first
		t.Errorf("of %d sessions %d have ended", n, got)
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("an answer is taken up in %v (median), %v (p99)", took[len(took)/2], p99)
	if p99 > 10*time.Second { // the machine may be busy
		t.Errorf("an answer is taken up only after %v (p99)", p99)
	}
}

// TestTakenUp compares the time from an answer until a worker has loaded its session with the time of an empty activity.
// The two alternate, so that both have the same load of the machine.
func TestTakenUp(t *testing.T) {
	p := newPlace(t)
	h := newHost(t, p)
	loaded := make(chan time.Time, 1)
	h.work(t, func(ctx context.Context, s *session.Session) (*agent.Agent, error) {
		if len(s.State.Pending()) > 0 {
			loaded <- time.Now()
		}
		return h.agent(ctx, s)
	})
	bare := worker.New(h.client, "bare", worker.Options{})
	bare.RegisterActivityWithOptions(func(context.Context) (time.Time, error) { return time.Now(), nil }, activity.RegisterOptions{Name: "bare"})
	bare.RegisterWorkflowWithOptions(func(ctx workflow.Context) (at time.Time, err error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return at, workflow.ExecuteActivity(ctx, "bare").Get(ctx, &at)
	}, workflow.RegisterOptions{Name: "bare"})
	if err := bare.Start(); err != nil {
		t.Fatal(err)
	}
	defer bare.Stop()
	const n = 20
	var bares, loads, answers []time.Duration
	h.each(n, func(id string) { h.send(t, id, "one", agent.Say("ask:1")); h.ended(t, id, 1) })
	for i := range n {
		begin := time.Now()
		run, err := h.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "bare"}, "bare")
		var at time.Time
		if err = errors.Join(err, run.Get(t.Context(), &at)); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("s%d", i)
		pending, err := h.Pending(t.Context(), id)
		if err != nil || len(pending) != 1 {
			t.Fatalf("%s: pending %v, %v", id, pending, err)
		}
		bares, begin = append(bares, at.Sub(begin)), time.Now()
		if err := h.Answer(t.Context(), id, "yes", pending[0].(*event.Approval).Allow()); err != nil {
			t.Fatal(err)
		}
		answers, loads = append(answers, time.Since(begin)), append(loads, (<-loaded).Sub(begin))
		h.ended(t, id, 2)
	}
	slices.Sort(bares)
	slices.Sort(loads)
	slices.Sort(answers)
	unit, load := bares[n/2], loads[n/2]
	t.Logf("an activity begins after %v, a session that was answered is loaded after %v (%.1f times as long) and the answer taken up after %v (medians)",
		unit, load, float64(load)/float64(unit), answers[n/2])
	if load > 5*unit {
		t.Errorf("a session that was answered is loaded only after %v", load)
	}
}

// used returns the number of goroutines of this process, and the size of its heap.
func used() (goroutines, heap int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int(m.HeapAlloc)
}

// each calls fn for n sessions, four at a time.
func (h *host) each(n int, fn func(id string)) {
	var calls sync.WaitGroup
	for i := range 4 {
		calls.Go(func() {
			for j := i; j < n; j += 4 {
				fn(fmt.Sprintf("s%d", j))
			}
		})
	}
	calls.Wait()
}

func (h *host) count(t *testing.T, status session.Status) (n int) {
	t.Helper()
	q := session.Query{Status: []session.Status{status}, Limit: 1000}
	for {
		page, err := h.store.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if n += len(page.Infos); page.Next == "" {
			return n
		}
		q.After = page.Next
	}
}
