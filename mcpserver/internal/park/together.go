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
	reply       chan json.RawMessage // gets the answer; buffered, because Ask may have given up
}

// Together runs functions of a call in parallel and returns their joined errors, in the order of the functions.
// Their questions are sent together: a question waits until every other function has asked a question or ended.
func Together(ctx context.Context, fns ...func(context.Context) error) error {
	b := &batch{running: len(fns), cancelled: ctx.Done()}
	ctx = context.WithValue(ctx, batchKey{}, b)
	errs := make([]error, len(fns))
	var work sync.WaitGroup
	for i, fn := range fns {
		work.Go(func() {
			defer b.leave()
			errs[i] = fn(ctx)
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

type batchKey struct{}

// A batch collects the questions of functions that run together.
type batch struct {
	cancelled <-chan struct{} // closed when all functions are cancelled

	mu      sync.Mutex
	running int               // functions that have not ended
	waiting []*question       // not sent yet
	send    func([]*question) // of the last question
}

// add adds the question of a function, which then waits for the answer.
func (b *batch) add(q *question, send func([]*question)) {
	b.mu.Lock()
	b.waiting, b.send = append(b.waiting, q), send
	b.unlockAndFlush()
}

// leave is called when a function has ended.
func (b *batch) leave() {
	b.mu.Lock()
	b.running--
	b.unlockAndFlush()
}

// unlockAndFlush sends the questions once every function that has not ended has asked one. It unlocks b.mu first, because
// sending may block until the client's next request.
func (b *batch) unlockAndFlush() {
	all, send := b.waiting, b.send
	if len(all) == 0 || len(all) < b.running {
		b.mu.Unlock()
		return
	}
	b.waiting = nil
	b.mu.Unlock()
	send(all)
}
