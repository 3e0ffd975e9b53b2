package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// workers are the sessions, and what they have counted.
type workers struct {
	url     string
	pause   time.Duration
	killing atomic.Bool // gateways are being killed, not stopped as in a deployment

	stopped sync.Once
	end     context.CancelFunc
	all     sync.WaitGroup
	clients []*mcpclient.Client

	count struct{ Calls, Lost, FailedAndTold, InDeployment, Asked, Answered atomic.Int64 }

	mu     sync.Mutex
	tokens map[string]bool // of calls of mark and sign; true if the answer said that the call was made
}

const (
	callTimeout = 60 * time.Second

	// countingSessions is how many sessions call count, whose server is a separate process for each session.
	countingSessions = 20
)

func (w *workers) start(ctx context.Context, sessions int) error {
	w.tokens = map[string]bool{}
	ctx, w.end = context.WithCancel(ctx)
	for i := range sessions {
		protocol := "2025-11-25"
		if i%2 == 1 {
			protocol = "2026-07-28"
		}
		c, err := mcpclient.New("gateway", mcpclient.HTTP{URL: w.url}, &mcpclient.Options{NoPrefix: true, Protocol: protocol, Elicitation: w.answer})
		if err != nil {
			return err
		}
		w.clients = append(w.clients, c)
		s := &worker{workers: w, name: fmt.Sprint("s", i), client: c, opens: i%2 == 0, counts: i%2 == 0 && i < 2*countingSessions}
		w.all.Go(func() { s.work(ctx, time.Duration(i)*w.pause/time.Duration(sessions)) })
	}
	return nil
}

func (w *workers) stop() {
	w.stopped.Do(func() {
		w.end()
		w.all.Wait()
		for _, c := range w.clients {
			w.all.Go(func() { _ = c.Close() })
		}
		w.all.Wait()
	})
}

// answer allows every call, after a while in which a gateway may be restarted.
func (w *workers) answer(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	w.count.Asked.Add(1)
	select {
	case <-time.After(w.pause / 2):
	case <-ctx.Done():
	}
	return host.Answer{Action: host.ActionAccept, Content: map[string]any{}}, nil
}

// result compares what was answered with what was done.
func (w *workers) result(marks string) (result, error) {
	done, err := countMarks(marks)
	if err != nil {
		return result{}, err
	}
	lost := w.count.Lost.Load()
	for token, ok := range w.tokens {
		if n := done[token]; n > 1 || ok && n == 0 {
			fmt.Fprintf(os.Stderr, "%s was done %d times; answered: %v\n", token, n, ok)
			lost++
		}
	}
	return result{Sessions: len(w.clients), Calls: w.count.Calls.Load(), LostSilently: lost, FailedAndTold: w.count.FailedAndTold.Load(),
		Asked: w.count.Asked.Load(), Answered: w.count.Answered.Load(), InDeployment: w.count.InDeployment.Load()}, nil
}

// A worker is a session.
type worker struct {
	*workers
	name   string
	client *mcpclient.Client
	opens  bool // it opens groups, because its MCP revision has sessions
	counts bool // it calls count
	last   int  // the last answer of count; -1 if it is not known
}

// work opens the groups, once, and calls tools until ctx ends. A call that was begun is completed.
func (s *worker) work(ctx context.Context, delay time.Duration) {
	for opened, i := !s.opens, 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay = s.pause
		if !opened {
			_, err := s.call("reset_tools", map[string]any{"work": true, "state": true})
			if opened = err == nil; !opened {
				s.failed("reset_tools", err)
			}
			continue
		}
		switch {
		case s.counts && i%4 == 3:
			s.callCount()
		case i%4 == 1:
			s.callMark("work__sign", i)
		default:
			s.callMark("work__mark", i)
		}
	}
}

func (s *worker) callMark(name string, i int) {
	token := fmt.Sprintf("%s-%d", s.name, i)
	text, err := s.callGrouped(name, map[string]any{"token": token})
	s.mu.Lock()
	s.tokens[token] = err == nil
	s.mu.Unlock()
	switch {
	case err != nil:
		s.failed(name, err)
	case !strings.Contains(text, "marked "+token):
		s.lost(name, text)
	case name == "work__sign":
		s.count.Answered.Add(1)
	}
}

// callCount checks that count returns one more than before, unless the error says that the state of its process is lost.
func (s *worker) callCount() {
	text, err := s.callGrouped("state__count", map[string]any{})
	n := 0
	switch _, bad := fmt.Sscanf(text, "count %d", &n); {
	case err != nil && strings.Contains(err.Error(), "its state is lost"):
		s.count.FailedAndTold.Add(1)
		s.last = 0
	case err != nil:
		s.failed("state__count", err)
		s.last = -1 // the call may have been made
	case bad != nil || s.last >= 0 && n != s.last+1:
		s.lost("state__count", fmt.Sprintf("%s after %d", text, s.last))
	default:
		s.last = n
	}
}

// callGrouped calls a tool that is in a group: directly if the group is open, or by call_tool.
func (s *worker) callGrouped(name string, input map[string]any) (string, error) {
	s.count.Calls.Add(1)
	if !s.opens {
		name, input = "call_tool", map[string]any{"name": name, "arguments": input}
	}
	return s.call(name, input)
}

// call returns the text of the answer. The text of a failed call is the error.
func (s *worker) call(name string, input map[string]any) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var list []tool.Tool
	var err error
	at := -1
	for at < 0 { // the list changes after a group was opened
		if list, err = s.client.Tools(ctx); err != nil {
			return "", err
		}
		at = slices.IndexFunc(list, func(t tool.Tool) bool { return t.Info().Name == name })
		if at < 0 {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return "", fmt.Errorf("unknown tool %s", name)
			}
		}
	}
	raw, err := json.Marshal(input)
	if err != nil {
		return "", err
	}
	call := tool.Call{ID: "1", Name: name, Input: raw}
	results := tool.NewCollector(call)
	for chunk, err := range tool.Run(ctx, list[at], call) {
		if err != nil {
			return "", err
		}
		results.Add(chunk)
	}
	res := results.Result()
	if res.Outcome != message.OutcomeSuccess {
		return "", fmt.Errorf("%s", res.Text())
	}
	return res.Text(), nil
}

// failed counts a call that has failed. It was lost silently if the error does not say what happened, or if the tool is
// unknown because the session's open groups were lost.
func (s *worker) failed(name string, err error) {
	text := err.Error()
	if text == "" || strings.Contains(text, "unknown tool") || strings.Contains(text, context.DeadlineExceeded.Error()) {
		s.lost(name, text)
		return
	}
	s.count.FailedAndTold.Add(1)
	if !s.killing.Load() {
		s.count.InDeployment.Add(1)
		fmt.Fprintf(os.Stderr, "%s of %s failed in a deployment: %s\n", name, s.name, text)
	}
}

func (s *worker) lost(name, text string) {
	s.count.Lost.Add(1)
	fmt.Fprintf(os.Stderr, "%s of %s was lost: %s\n", name, s.name, text)
}
