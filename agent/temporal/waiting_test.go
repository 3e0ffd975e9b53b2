package temporal_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

// TestWaiting has many sessions wait for a person, with and without a timer, and then answers them. While they
// wait they cost a worker nothing, but for the workflows in the SDK's cache, whose size is bounded. "make
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

// manySessions has n sessions wait for an answer, answers all, and checks that each answer is taken up soon.
func (h *host) manySessions(t *testing.T, n int) {
	t.Helper()
	before := runtime.NumGoroutine()
	h.each(n, func(id string) { h.send(t, id, "one", agent.Say("ask:1")) })
	for deadline := time.Now().Add(10 * time.Minute); h.count(t, session.StatusWaiting) < n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("of %d sessions only %d wait", n, h.count(t, session.StatusWaiting))
		}
	}
	more := runtime.NumGoroutine() - before
	for range 100 { // until the last activities have been reported
		if more = runtime.NumGoroutine() - before; more <= 3*cached {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d sessions wait, with %d more goroutines", n, more)
	if more > 3*cached {
		t.Errorf("%d sessions that wait need %d goroutines", n, more)
	}
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
	for deadline := time.Now().Add(time.Minute); h.count(t, session.StatusEnded) <= n && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
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
