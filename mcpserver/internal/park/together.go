package park

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
)

// A question is a request that the client must answer.
type question struct {
	key, method string
	params      any
	reply       chan json.RawMessage // buffers one answer
}

// Together runs functions of a call in parallel and returns their joined errors, in the order of the functions.
// Their questions are sent together: a question waits until every other function has asked a question or ended.
func Together(ctx context.Context, ask ...func(context.Context) error) error {
	g := &batch{running: len(ask), done: ctx.Done()}
	ctx = context.WithValue(ctx, batchKey{}, g)
	errs := make([]error, len(ask))
	var all sync.WaitGroup
	for i, fn := range ask {
		all.Go(func() {
			defer g.leave()
			errs[i] = fn(ctx)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

type batchKey struct{}

// A batch collects the questions of functions that run together.
type batch struct {
	done <-chan struct{} // closed when all of the functions are cancelled

	mu      sync.Mutex
	running int
	waiting []*question
	send    func([]*question)
}

// add adds the question of a function, which then waits for the answer.
func (g *batch) add(q *question, send func([]*question)) {
	g.mu.Lock()
	g.waiting, g.send = append(g.waiting, q), send
	g.unlockAndFlush()
}

// leave is called when a function has ended.
func (g *batch) leave() {
	g.mu.Lock()
	g.running--
	g.unlockAndFlush()
}

// unlockAndFlush sends the questions if all running functions wait. It unlocks g.mu first, because
// sending may block until the client's next request.
func (g *batch) unlockAndFlush() {
	all, send := g.waiting, g.send
	if len(all) == 0 || len(all) < g.running {
		g.mu.Unlock()
		return
	}
	g.waiting = nil
	g.mu.Unlock()
	send(all)
}
