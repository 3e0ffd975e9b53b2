package temporal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/temporal"
	"github.com/kitbag-go/kitbag/message"
)

// TestRun has a worker run a conversation of two inputs, the second of which is sent twice.
func TestRun(t *testing.T) {
	t.Parallel()
	h := newHost(t, newPlace(t))
	h.work(t, h.agent)
	h.send(t, "a", "one", agent.Say("pay:1 book:2"))
	if end := h.ended(t, "a", 1); end.Reason != event.EndCompleted || end.Text != "done" {
		t.Errorf("ended with %+v", end)
	}
	for _, want := range []bool{true, false} {
		if accepted, err := h.Send(t.Context(), "a", "two", agent.Say("pay:3")); accepted != want || err != nil {
			t.Errorf("accepted %v, %v, want %v", accepted, err, want)
		}
	}
	h.ended(t, "a", 2)
	if got := h.done(t, "a"); got != "model:0 pay:1 model:1 book:2 model:2 model:0 pay:3 model:1" {
		t.Errorf("done: %s", got)
	}
	list := h.history(t, "a", "")
	keep(t, "run", list)
	if n := len(list.Events); n > 40 || list.Size() > 10000 { // the runs have five steps
		t.Errorf("the history has %d events of %d bytes", n, list.Size())
	}
	for _, ev := range list.Events {
		if strings.Contains(ev.String(), "pay:") {
			t.Errorf("the history has content: %s", ev)
		}
	}
}

// TestAnswers has two processes answer a question at once: one answer is used, the other process gets an error.
func TestAnswers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	h, other := newHost(t, p), newHost(t, p)
	h.work(t, h.agent)
	h.send(t, "a", "one", agent.Say("ask:1"))
	h.ended(t, "a", 1)
	pending, err := other.Pending(t.Context(), "a")
	if err != nil || len(pending) != 1 {
		t.Fatalf("pending %v, %v", pending, err)
	}
	q := pending[0].(*event.Approval)
	var errs [2]error
	var answering sync.WaitGroup
	for i, from := range []*host{h, other} {
		answering.Go(func() { errs[i] = from.Answer(t.Context(), "a", fmt.Sprintf("answer-%d", i), q.Allow()) })
	}
	answering.Wait()
	if errs[0] != nil {
		errs[0], errs[1] = errs[1], errs[0]
	}
	if errs[0] != nil || !errors.Is(errs[1], temporal.ErrRefused) {
		t.Errorf("the answers: %v; %v", errs[0], errs[1])
	}
	h.ended(t, "a", 2)
	if got := h.done(t, "a"); got != "model:0 ask:1 model:1" {
		t.Errorf("done: %s", got)
	}
	err = h.Answer(t.Context(), "a", "late", q.Allow())
	if !errors.Is(err, temporal.ErrRefused) || !strings.Contains(err.Error(), "does not wait for an answer") {
		t.Errorf("an answer after the end: %v", err)
	}
}

// TestTakeover kills workers in the middle of a run: each time another one continues. Only idempotent calls
// are repeated, and no answer of the model is requested again.
func TestTakeover(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	h := newHost(t, p)
	first := startWorker(t, p)
	h.send(t, "a", "one", agent.Say("pay:1 sleep:60000 book:2 sleep:1 pay:3"))
	for !strings.HasSuffix(h.done(t, "a"), "model:1") {
		time.Sleep(10 * time.Millisecond)
	}
	h.until(t, "a", isStart("sleep"))
	killed := time.Now()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	startWorker(t, p)
	startWorker(t, p)
	end := h.ended(t, "a", 1)
	took := time.Since(killed)
	t.Logf("ended %v after the kill, with heartbeats within %v", took, p.Heartbeat)
	if end.Reason != event.EndCompleted {
		t.Errorf("ended with %+v", end)
	}
	if got := h.done(t, "a"); got != "model:0 pay:1 model:1 model:2 book:2 model:3 sleep:1 model:4 pay:3 model:5" {
		t.Errorf("done: %s", got)
	}
	if took > 2*p.Heartbeat+10*time.Second { // the machine may be busy
		t.Errorf("another worker took over only after %v", took)
	}
	st, _, err := session.Read(t.Context(), h.store, "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := ""
	for _, m := range st.Messages {
		for _, r := range m.ToolResults() {
			outcomes += " " + string(r.Outcome)
		}
	}
	if outcomes != " success interrupted success success success" {
		t.Errorf("the results are%s", outcomes)
	}
}

func isStart(name string) func(event.Event) bool {
	return func(ev event.Event) bool {
		start, ok := ev.(*event.ToolStart)
		return ok && start.Name == name
	}
}

// TestDrain stops a worker with SIGTERM in the middle of a tool call, which ends; another worker continues after
// it, and nothing is lost or repeated.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	h := newHost(t, p)
	first := startWorker(t, p)
	h.send(t, "a", "one", agent.Say("sleep:1500 pay:1 pay:2"))
	h.until(t, "a", isStart("sleep"))
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("the worker ends with %v", err)
	}
	if got := h.done(t, "a"); got != "model:0 sleep:1500" {
		t.Errorf("the first worker has done: %s", got)
	}
	startWorker(t, p)
	if end := h.ended(t, "a", 1); end.Reason != event.EndCompleted {
		t.Errorf("ended with %+v", end)
	}
	if got := h.done(t, "a"); got != "model:0 sleep:1500 model:1 pay:1 model:2 pay:2 model:3" {
		t.Errorf("done: %s", got)
	}
}

// TestDrainEnds stops a worker that does not wait for a tool call that is too long.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.Drain = 500 * time.Millisecond
	h := newHost(t, p)
	first := startWorker(t, p)
	h.send(t, "a", "one", agent.Say("sleep:60000 pay:1"))
	h.until(t, "a", isStart("sleep"))
	if err := errors.Join(first.Process.Signal(syscall.SIGTERM), first.Wait()); err != nil {
		t.Errorf("the worker ends with %v", err)
	}
	startWorker(t, p)
	h.ended(t, "a", 1)
	if got := h.done(t, "a"); got != "model:0 model:1 pay:1 model:2" {
		t.Errorf("done: %s", got)
	}
}

// TestSlices gives a session back after every step.
func TestSlices(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.Slice = time.Nanosecond
	h := newHost(t, p)
	h.work(t, h.agent)
	h.send(t, "a", "one", agent.Say("sleep:50 pay:1 sleep:50 book:2"))
	if end := h.ended(t, "a", 1); end.Reason != event.EndCompleted {
		t.Errorf("ended with %+v", end)
	}
	if got := h.done(t, "a"); got != "model:0 sleep:50 model:1 pay:1 model:2 sleep:50 model:3 book:2 model:4" {
		t.Errorf("done: %s", got)
	}
	if n := advances(h.history(t, "a", "")); n < 3 || n > 30 { // once for each record
		t.Errorf("it was advanced %d times", n)
	}
	seq := int64(0)
	for _, ev := range h.until(t, "a", func(ev event.Event) bool { _, end := ev.(*event.End); return end }) {
		if ev.Head().Seq <= seq {
			t.Errorf("event %d after event %d", ev.Head().Seq, seq)
		}
		seq = ev.Head().Seq
	}
}

// TestInterrupt interrupts runs: by an input, by cancelling the workflow, and because no one answers.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.WaitFor = time.Second
	h := newHost(t, p)
	h.work(t, h.agent)
	ends := map[string]func(){
		"input":    func() { h.send(t, "input", "stop", agent.Interrupt{}) },
		"workflow": func() { _ = h.client.CancelWorkflow(t.Context(), h.Queue+"/workflow", "") },
	}
	for id, interrupt := range ends {
		h.send(t, id, "one", agent.Say("sleep:60000"))
		h.until(t, id, isStart("sleep"))
		interrupt()
		if end := h.ended(t, id, 1); end.Reason != event.EndInterrupted {
			t.Errorf("%s: ended with %+v", id, end)
		}
		keep(t, "interrupt-"+id, h.history(t, id, ""))
	}
	h.send(t, "asks", "one", agent.Say("ask:1"))
	if end := h.ended(t, "asks", 1); end.Reason != event.EndWaiting {
		t.Errorf("ended with %+v", end)
	}
	h.send(t, "asks", "two", agent.Say("pay:2"))
	if end := h.ended(t, "asks", 2); end.Reason != event.EndInterrupted {
		t.Errorf("a session without an answer ended with %+v", end)
	}
	if end := h.ended(t, "asks", 3); end.Reason != event.EndCompleted { // has the message that was waiting
		t.Errorf("ended with %+v", end)
	}
	keep(t, "expired", h.history(t, "asks", ""))
	h.send(t, "asks", "three", agent.Say("pay:1")) // it can continue
	if end := h.ended(t, "asks", 4); end.Reason != event.EndCompleted {
		t.Errorf("ended with %+v", end)
	}
	h.send(t, "in-time", "one", agent.Say("ask:1"))
	h.ended(t, "in-time", 1)
	pending, err := h.Pending(t.Context(), "in-time")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Answer(t.Context(), "in-time", "yes", pending[0].(*event.Approval).Allow()); err != nil {
		t.Error(err)
	}
	if end := h.ended(t, "in-time", 2); end.Reason != event.EndCompleted {
		t.Errorf("ended with %+v", end)
	}
}

// TestFailed has a run fail: the workflow ends, and the next input continues.
func TestFailed(t *testing.T) {
	t.Parallel()
	h := newHost(t, newPlace(t))
	h.work(t, h.agent)
	h.send(t, "a", "one", agent.Say("fail"))
	if end := h.ended(t, "a", 1); end.Reason != event.EndError {
		t.Errorf("ended with %+v", end)
	}
	h.history(t, "a", "")
	h.send(t, "a", "two", agent.Say("pay:1"))
	for h.done(t, "a") != "model:0 model:0 pay:1 model:1" {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestNewerState runs an old and a new worker: the old one refuses a session of a newer version, and the new one
// gets it.
func TestNewerState(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	old, h := newHost(t, p), newHost(t, p)
	refused := make(chan struct{})
	var once sync.Once
	stop := old.work(t, func(context.Context, *session.Session) (*agent.Agent, error) {
		once.Do(func() { close(refused) })
		return nil, fmt.Errorf("read it: %w", agent.ErrNewerState)
	})
	h.send(t, "a", "one", agent.Say("pay:1"))
	<-refused
	h.work(t, h.agent)
	go stop()
	h.ended(t, "a", 1)
	if got := h.done(t, "a"); got != "model:0 pay:1 model:1" {
		t.Errorf("done: %s", got)
	}
}

// TestErrors checks that errors have a remedy.
func TestErrors(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	h := newHost(t, p)
	check := func(err error, is error, words string) {
		t.Helper()
		if err == nil || is != nil && !errors.Is(err, is) || !strings.Contains(err.Error(), words) {
			t.Errorf("the error is %v, want %q", err, words)
		}
	}
	accepted, err := h.Send(t.Context(), "a", "one", agent.Say("pay:1"))
	check(err, temporal.ErrNoWorkers, "call Engine.Work in a process, or check Config.Queue")
	if !accepted {
		t.Error("the input was not accepted")
	}
	check(h.Answer(t.Context(), "a", "two", agent.Say("pay:2")), temporal.ErrNoWorkers, "the input is stored")
	_, err = h.Pending(t.Context(), "none")
	check(err, nil, "send an input to create it")
	_, err = h.Send(t.Context(), "a b", "one", agent.Say("x"))
	check(err, nil, "must be 1 to 128 letters")

	c, err := client.DialContext(t.Context(), client.Options{HostPort: p.Temporal, Namespace: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	e, err := temporal.New(temporal.Config{Client: c, Queue: p.Queue, Store: h.store})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Send(t.Context(), "a", "three", agent.Say("x"))
	check(err, nil, "create the namespace")
	check(e.Work(t.Context(), h.agent), nil, "create the namespace")

	for _, row := range []struct {
		cfg   temporal.Config
		words string
	}{
		{temporal.Config{Queue: "q", Store: h.store}, "client.Dial"},
		{temporal.Config{Client: c, Store: h.store}, "name a task queue"},
		{temporal.Config{Client: c, Queue: "q"}, "package pgsession"},
		{temporal.Config{Client: c, Queue: "q", Store: plain{}}, "package pgsession"},
		{temporal.Config{Client: c, Queue: "q", Store: h.store, Heartbeat: time.Millisecond}, "100ms or more"},
		{temporal.Config{Client: c, Queue: "q", Store: h.store, Slice: -1}, "must not be negative"},
	} {
		_, err := temporal.New(row.cfg)
		check(err, nil, row.words)
	}
	h.work(t, h.agent) // the inputs were not lost
	h.ended(t, "a", 1)
	st, _, err := session.Read(t.Context(), h.store, "a", 0)
	if err != nil || st.Messages[0].Role != message.RoleUser {
		t.Errorf("%v, %v", st, err)
	}
}

type plain struct{ session.Store }
