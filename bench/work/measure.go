package work

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Result is the cost of a scenario. All figures are for one run, or for one conversation in scenarios that
// create conversations. Times are in nanoseconds.
type Result struct {
	Peer, Version string
	Steps         int     // model calls
	CPU           float64 // user and system time of the process
	User          float64 // user time alone, which depends least on the load of the machine
	Wall          float64
	Allocs, Bytes float64
	Sent          float64 // bytes in requests
	First         float64 // time until the first text, the median of the runs
	Heap          float64 // bytes of memory per conversation

	HooksCPU, HooksAllocs float64 // ratios of runs with hooks to runs without
}

// measure runs the named scenario and checks its result.
func measure(p Peer, server, name string, least time.Duration, profile string) (*Result, error) {
	s := Find(name)
	if s == nil {
		return nil, fmt.Errorf("unknown scenario %q", name)
	}
	slow = s.Slow
	res := &Result{Peer: p.Name, Version: p.version(), Steps: s.Steps + 1}
	if s.Sessions > 0 {
		return res, keepSessions(p, s, server, res)
	}
	if alone := p.Alone[name]; alone != nil {
		return res, repeatAlone(alone, s.setup(server), least, res)
	}
	if s.Traced {
		return res, compareHooks(p, s, server, least, res)
	}
	run, err := p.Agent(context.Background(), s.setup(server))
	if err != nil {
		return nil, err
	}
	w := &worker{s: s, run: run}
	if err := w.warm(least / 4); err != nil {
		return nil, err
	}
	before, err := served(server)
	if err != nil {
		return nil, err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	m := start()
	if err := w.work(least); err != nil {
		return nil, err
	}
	m.stop(res, w.runs())
	res.First = w.median()
	return res, w.check(server, before, res)
}

// repeatAlone measures a scenario that only one peer has.
func repeatAlone(alone func(context.Context, Setup) (func() error, error), s Setup, least time.Duration, res *Result) error {
	op, err := alone(context.Background(), s)
	if err != nil {
		return err
	}
	for range 3 {
		if err := op(); err != nil {
			return err
		}
	}
	m, n := start(), 0
	for ; n < 10 || time.Since(m.wall) < least; n++ {
		if err := op(); err != nil {
			return err
		}
	}
	m.stop(res, float64(n))
	return nil
}

// compareHooks alternates runs of an agent with hooks and of one without in one process, because two processes
// differ more on a loaded machine.
func compareHooks(p Peer, s *Scenario, server string, least time.Duration, res *Result) error {
	var workers [2]*worker
	for i := range workers {
		setup := s.setup(server)
		setup.Traced = i == 1
		run, err := p.Agent(context.Background(), setup)
		if err != nil {
			return err
		}
		workers[i] = &worker{s: s, run: run}
		if err := workers[i].warm(least / 4); err != nil {
			return err
		}
	}
	var cpu, allocs [2]float64
	began := time.Now()
	for n := 0; n < 20 || time.Since(began) < 4*least; n++ {
		for i := range workers {
			i = (i + n) % 2 // alternate which is first
			m := new(mark)
			m.read()
			if err := workers[i].runOnce(); err != nil {
				return err
			}
			var one Result
			m.stop(&one, 1)
			cpu[i] += one.CPU
			allocs[i] += one.Allocs
		}
	}
	res.HooksCPU, res.HooksAllocs = cpu[1]/cpu[0], allocs[1]/allocs[0]
	return nil
}

// A worker executes the runs of a scenario.
type worker struct {
	s   *Scenario
	run Run

	mu     sync.Mutex
	firsts []time.Duration // one for each run
}

// runOnce performs a run and checks its answer.
func (w *worker) runOnce() error {
	began := time.Now()
	first := time.Duration(-1)
	n := 0
	text, err := w.run(context.Background(), func(piece string) {
		if first < 0 && piece != "" {
			first = time.Since(began)
		}
		n += len(piece)
	})
	if err != nil {
		return err
	}
	if want := w.s.answer(); text != want || n != len(want) && !w.s.Whole {
		return fmt.Errorf("the answer has %d bytes, %d of them streamed; want %d: %.40q", len(text), n, len(want), text)
	}
	w.mu.Lock()
	w.firsts = append(w.firsts, first)
	w.mu.Unlock()
	return nil
}

// warm fills caches and opens connections.
func (w *worker) warm(d time.Duration) error {
	for began := time.Now(); len(w.firsts) < 2 || time.Since(began) < d; {
		if err := w.runOnce(); err != nil {
			return err
		}
	}
	w.firsts = nil
	calls.Store(0)
	return nil
}

// work performs runs for the given time, at least three. In a scenario with concurrent workers it performs five for each
// of them, however long that takes.
func (w *worker) work(least time.Duration) error {
	if w.s.Together == 0 {
		for began := time.Now(); len(w.firsts) < 3 || time.Since(began) < least; {
			if err := w.runOnce(); err != nil {
				return err
			}
		}
		return nil
	}
	var left atomic.Int64
	left.Store(int64(5 * w.s.Together))
	errs := make(chan error, w.s.Together)
	for range w.s.Together {
		go func() {
			for left.Add(-1) >= 0 {
				if err := w.runOnce(); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var failed error
	for range w.s.Together {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}

func (w *worker) runs() float64 { return float64(len(w.firsts)) }

func (w *worker) median() float64 {
	slices.Sort(w.firsts)
	return float64(w.firsts[len(w.firsts)/2])
}

// check returns an error if requests or tool calls are missing or were made twice.
func (w *worker) check(server string, before count, res *Result) error {
	after, err := served(server)
	if err != nil {
		return err
	}
	if got, want := float64(after.Requests-before.Requests), w.runs()*float64(w.s.Steps+1); got != want {
		return fmt.Errorf("%v requests in %v runs, want %v", got, w.runs(), want)
	}
	if got, want := float64(calls.Load()), w.runs()*float64(w.s.Steps*w.s.Calls); got != want {
		return fmt.Errorf("%v tool calls in %v runs, want %v", got, w.runs(), want)
	}
	res.Sent = float64(after.Bytes-before.Bytes) / w.runs()
	return nil
}

// A count is the server's number of requests and bytes.
type count struct{ Requests, Bytes int64 }

func served(server string) (c count, err error) {
	resp, err := http.Get(server + "/count")
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	return c, json.NewDecoder(resp.Body).Decode(&c)
}

// keepSessions creates conversations of 20 messages of 200 bytes.
func keepSessions(p Peer, s *Scenario, server string, res *Result) error {
	makeOne, err := p.Session(context.Background(), s.setup(server), s.Own)
	if err != nil {
		return err
	}
	const warm = 10 // so that shared memory is not counted
	kept := make([]any, 0, s.Sessions+warm)
	add := func() error {
		texts := make([]string, 20)
		for j := range texts {
			head := fmt.Sprintf("Message %d of conversation %d. ", j, len(kept))
			texts[j] = head + strings.Repeat("x", 200-len(head))
		}
		one, err := makeOne(texts)
		kept = append(kept, one)
		return err
	}
	for range warm {
		if err := add(); err != nil {
			return err
		}
	}
	heap := inUse()
	m := start()
	for range s.Sessions {
		if err := add(); err != nil {
			return err
		}
	}
	m.stop(res, float64(s.Sessions))
	res.Heap = (inUse() - heap) / float64(s.Sessions)
	runtime.KeepAlive(kept)
	return nil
}

// inUse returns the reachable memory of heap and stacks.
func inUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// A mark is a snapshot of the process's counters.
type mark struct {
	mem  runtime.MemStats
	cpu  time.Duration
	user time.Duration
	wall time.Time
}

func start() *mark {
	runtime.GC()
	m := new(mark)
	m.read()
	return m
}

func (m *mark) read() {
	runtime.ReadMemStats(&m.mem)
	m.cpu, m.user = cpuTime()
	m.wall = time.Now()
}

// stop stores in res the cost since start, divided by n.
func (m *mark) stop(res *Result, n float64) {
	res.Wall = float64(time.Since(m.wall)) / n
	cpu, user := cpuTime()
	res.CPU, res.User = float64(cpu-m.cpu)/n, float64(user-m.user)/n
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	res.Allocs = float64(mem.Mallocs-m.mem.Mallocs) / n
	res.Bytes = float64(mem.TotalAlloc-m.mem.TotalAlloc) / n
}

// cpuTime returns the process's user and system time, and its user time alone.
func cpuTime() (all, user time.Duration) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), time.Duration(u.Utime.Nano())
}
