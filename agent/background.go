package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
)

const (
	goesOn = "This call goes on in the background, as %s. Go on with what does not depend on it. " +
		"You will be told what it returns; until then nothing is known of it."
	wasAway = "Call %s of %s, which went on in the background, has ended (%s). What it returned stands between the tags; it is not the user who says it.\n" +
		"<result>\n%s\n</result>"
)

// resultEnd is what a model might take for the end of the tag in wasAway.
var resultEnd = lazy.Regexp(`(?i)<\s*/\s*(result)`)

// tailSize is how much of what a call says in the background can be looked at, in
// bytes.
const tailSize = 4000

// A job is a call that may go on in the background, or does. Its worker writes res
// and err before it closes ended, and nobody reads them before.
type job struct {
	stop  func()        // tells it to end
	leave func() bool   // lets it outlive its batch
	gone  chan struct{} // closed when it has left

	ended chan struct{} // closed when there are:
	res   *message.ToolResult
	err   error // wraps tool.ErrAbort

	mu    sync.Mutex
	tail  string         // the end of what it says
	clean *redact.Stream // what it says goes through it: else the tail could begin within a secret
}

// jobs are those of one run. The run's goroutine adds and removes them; the tool
// named background finds them from a worker's.
type jobs struct {
	mu   sync.Mutex
	byID map[string]*job

	bell chan struct{} // gets something when one has ended
}

type jobsKey struct{}

func newJobs() *jobs {
	return &jobs{byID: map[string]*job{}, bell: make(chan struct{}, 1)}
}

func (js *jobs) get(id string) *job {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.byID[id]
}

func (js *jobs) put(id string, j *job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j == nil {
		delete(js.byID, id)
		return
	}
	js.byID[id] = j
}

// note keeps the end of what a call says, for a model that wants to know how far it
// is. The beginning of a log is of no use there, and may be long.
func (j *job) note(ch tool.Chunk) {
	t, ok := ch.Block.(*message.Text)
	if !ok || ch.ForUser {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tail += j.clean.Write(t.Text)
	if cut := len(j.tail) - tailSize; cut > 0 {
		j.tail = strings.ToValidUTF8(j.tail[cut:], "")
	}
}

func (j *job) hasEnded() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// patience returns after how long c goes on in the background, negative for never.
//
// A sub-agent never does: it may have to ask a person, whose answer must find it.
// Nor does a call that changes what is visible, or steers the agent: what follows
// depends on it. Any other tool that is not marked Parallel counts on being alone,
// unless it says itself that it need not be.
func (r *run) patience(t tool.Tool, c *openCall) (limit time.Duration) {
	if r.cfg.Background == 0 || r.room <= 0 || c.Late || t.Info().Control {
		return -1
	}
	if _, nested := tool.As[*subagent](t); nested {
		return -1
	}
	b, ok := tool.As[tool.Backgrounder](t)
	switch {
	case !ok && t.Info().Parallel:
		return r.cfg.Background
	case !ok:
		return -1
	}
	defer func() {
		if recover() != nil {
			limit = -1 // what cannot tell stays
		}
	}()
	return b.Background(c.Input)
}

// startJob starts c so that it can go on in the background once it has taken
// longer than limit. Until then it ends with its batch, after that with the run;
// the context of a Middleware.Step, which may end with the step, does not bind it.
//
// Room is counted when calls start and not when they leave, which is a matter of
// moments: a replay must let the same calls leave.
func (r *run) startJob(batch context.Context, c *openCall, w work, limit time.Duration) {
	jobs, a, reports, done := r.jobs, r.a, r.reports, r.done
	ctx, cancel := context.WithCancelCause(r.hosting(context.WithoutCancel(batch), reports, done))
	stayed := context.AfterFunc(batch, func() { cancel(context.Cause(batch)) })
	whole := r.whole
	left := context.AfterFunc(whole, func() { cancel(context.Cause(whole)) })
	j := &job{stop: func() { cancel(context.Canceled) }, leave: stayed, clean: a.cfg.Redact.Stream(), gone: make(chan struct{}), ended: make(chan struct{})}
	tell := func(rep report) {
		rep.call = c
		select {
		case reports <- rep:
		case <-j.gone: // nobody follows the pieces any more
		case <-done: // the consumer panicked
		}
	}
	jobs.put(c.ID, j)
	r.room--
	// One goroutine runs the call. The other one decides whether it leaves, and is
	// the only one to tell of its end: else a replay, in which the call has ended
	// at once, could bring the end before the recorded decision.
	r.cfg.Go(func() {
		defer func() {
			if j.res == nil {
				j.res = failed(c, message.OutcomeError, lost)
			}
			stayed()
			left()
			cancel(nil)
			close(j.ended)
			select {
			case jobs.bell <- struct{}{}:
			default: // it rings already
			}
		}()
		j.res, j.err = a.runCall(ctx, c, &w, func(ch tool.Chunk) {
			j.note(ch)
			tell(report{chunk: ch})
		})
	})
	r.cfg.Go(func() {
		if a.leaves(ctx, w.step, j, limit) {
			tell(report{leaves: true})
			return
		}
		<-j.ended
		tell(report{done: true, res: j.res, err: j.err})
	})
}

// leaves waits until a call has ended, or has taken so long that it goes on in the
// background. Which of the two it was is a step, so that a replay does the same.
func (a *Agent) leaves(ctx context.Context, step string, j *job, limit time.Duration) bool {
	wait := func(ctx context.Context) (bool, error) {
		if limit <= 0 { // without a look at whether it has ended, which would be a race
			return true, nil
		}
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-j.ended:
			return false, nil
		case <-timer.C:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	leaves, err := recorded(ctx, a, step+"/background", wait)
	return leaves && err == nil
}

// recorded returns what fn does, through Config.Step: what depends on the moment is
// recorded, so that a replay does the same.
func recorded[T any](ctx context.Context, a *Agent, id string, fn func(context.Context) (T, error)) (v T, err error) {
	if a.cfg.Step == nil {
		return fn(ctx)
	}
	raw, err := a.cfg.Step(ctx, id, func(ctx context.Context) (json.RawMessage, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	})
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	return v, err
}

// leave lets c go on in the background. Its result, which a history must have, says
// so; that it is a success means no more than that nothing has gone wrong yet.
func (r *run) leave(c *openCall) error {
	j := r.jobs.get(c.ID)
	j.leave()
	close(j.gone)
	r.st.away = append(r.st.away, &awayCall{ID: c.ID, Tool: c.Tool})
	r.owed = append(r.owed, &Background{Call: c.ID, Name: c.Tool})
	return r.finish(c, failed(c, message.OutcomeSuccess, fmt.Sprintf(goesOn, c.ID)))
}

// isAway reports whether a call went on in the background.
func (st *State) isAway(call string) bool {
	return slices.ContainsFunc(st.away, func(a *awayCall) bool { return a.ID == call })
}

// stillAway returns the calls that go on in the background, oldest first.
func (st *State) stillAway() []*awayCall {
	return slices.DeleteFunc(slices.Clone(st.away), func(a *awayCall) bool { return a.Result != nil })
}

// forgetJobs gives up the calls that went on in the background when an earlier
// run was cut off. They are not made again even if they might: nothing waits for
// them any more, and the model decides better what is still wanted.
func (r *run) forgetJobs() {
	for _, a := range r.st.stillAway() {
		r.landed(a, &message.ToolResult{Outcome: message.OutcomeInterrupted, Blocks: message.Blocks{&message.Text{Text: outcomeUnknown}}})
	}
}

func (r *run) landed(a *awayCall, res *message.ToolResult) {
	a.Result = r.tidy(a.ID, a.Tool, res)
	r.owed = append(r.owed, &Background{Call: a.ID, Name: a.Tool, Result: a.Result})
}

// land tells the model of the calls in the background that have ended, if any.
// With wait it waits until one has, as long as [Limits.Time] allows; then all are
// stopped.
func (r *run) land(wait bool) error {
	if len(r.st.away) == 0 {
		return nil
	}
	away := r.st.stillAway() // none if a crash, or the wait for a person, left only what is to be told
	var err error
	if len(away) > 0 {
		var ids []string
		id := r.st.run + "/" + r.st.Messages[len(r.st.Messages)-1].ID + "/background"
		ids, err = recorded(r.ctx, r.a, id, func(ctx context.Context) ([]string, error) { return r.endedJobs(ctx, away, wait) })
		away = slices.DeleteFunc(away, func(a *awayCall) bool { return !slices.Contains(ids, a.ID) })
		err = errors.Join(err, r.take(away))
		if wait && err == nil && len(ids) == 0 {
			err = r.stopJobs()
		}
	}
	return errors.Join(err, r.report())
}

// endedJobs returns the ids of those calls that have ended. With wait there is
// one, unless the time is up. Meanwhile the run is there for what they ask of it.
func (r *run) endedJobs(ctx context.Context, away []*awayCall, wait bool) (ids []string, err error) {
	up, stop := r.timeUp()
	defer stop()
	for {
		for _, a := range away {
			if r.jobs.get(a.ID).hasEnded() {
				ids = append(ids, a.ID)
			}
		}
		if !wait || len(ids) > 0 {
			return ids, nil
		}
		select {
		case <-r.jobs.bell:
		case rep := <-r.reports:
			if err := r.hearReport(rep); err != nil {
				return nil, err
			}
		case <-up:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// timeUp returns a channel that gets something when Limits.Time, this run's or
// that of a run that it works for, has passed.
func (r *run) timeUp() (up <-chan time.Time, stop func() bool) {
	left, limited := r.timeLeft()
	if !limited {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(left)
	return timer.C, timer.Stop
}

func (r *run) timeLeft() (left time.Duration, limited bool) {
	if limit := r.cfg.Limits.Time; limit > 0 {
		left, limited = limit-r.cfg.Now().Sub(r.st.spent.Since), true
	}
	if r.a.over != nil {
		_ = r.a.over.do(func(outer *run, _ *openCall) error { // an error: the outer run has ended, and this one is about to
			if l, ok := outer.timeLeft(); ok && (!limited || l < left) {
				left, limited = l, true
			}
			return nil
		})
	}
	return left, limited
}

// take waits until the given calls have ended, and stores their results. The error
// is one that ends the run.
func (r *run) take(away []*awayCall) error {
	var errs []error
	for _, a := range away {
		j := r.jobs.get(a.ID)
		_, err := r.hearUntil(j.ended, nil)
		r.jobs.put(a.ID, nil)
		r.landed(a, j.res)
		errs = append(errs, err, j.err)
	}
	return errors.Join(errs...)
}

// hearUntil deals with what calls in the background ask of the run, until ended is
// closed or the time is up.
func (r *run) hearUntil(ended <-chan struct{}, up <-chan time.Time) (inTime bool, err error) {
	for {
		select {
		case <-ended:
			return true, err
		case <-up:
			return false, err
		case rep := <-r.reports:
			err = errors.Join(err, r.hearReport(rep))
		}
	}
}

// landAll waits until nothing goes on in the background any more, as land does,
// and stores the results. It tells the model nothing: calls may be open, between
// which and whose results no message can stand. A cancelled run cancels the calls,
// which then end.
//
// It is no step of its own: whether a call ended by itself or was stopped is in its
// own record, and they are taken in the same order either way.
func (r *run) landAll() error {
	away := r.st.stillAway()
	if len(away) == 0 {
		return nil
	}
	up, stop := r.timeUp()
	defer stop()
	for _, a := range away {
		inTime, err := r.hearUntil(r.jobs.get(a.ID).ended, up)
		if err != nil || !inTime {
			return errors.Join(err, r.stopJobs(), r.store())
		}
	}
	return errors.Join(r.take(away), r.store())
}

// settle waits for what goes on in the background before a run ends in which a
// person was asked. Only then can they answer, so the questions stand from then on.
func (r *run) settle() error {
	if len(r.st.stillAway()) == 0 {
		return nil
	}
	var stand []*openCall
	for _, c := range r.st.open {
		if c.Status == statusAsking && !r.expired(c) {
			stand = append(stand, c)
		}
	}
	err := r.landAll()
	for _, c := range stand {
		c.Asked = r.cfg.Now()
	}
	return err
}

// stopJobs ends what goes on in the background, and waits for it: no goroutine
// outlives a run but that of a tool that does not stop when told to.
func (r *run) stopJobs() error {
	away := r.st.stillAway()
	for _, a := range away {
		r.jobs.get(a.ID).stop()
	}
	return r.take(away)
}

// report adds what became of calls in the background to the conversation: in the
// program's words, since a call has one result and that is there already. To APIs
// that is a user's message, and so it says who speaks.
func (r *run) report() error {
	var told, data message.Blocks
	var succeeded []string
	for _, a := range r.st.away {
		if a.Result == nil {
			continue
		}
		// What the tool returned must not end the tag by itself.
		text := resultEnd().ReplaceAllString(a.Result.Text(), `<\/$1`)
		told = append(told, &message.Hint{Source: backgroundName, Text: fmt.Sprintf(wasAway, a.ID, a.Tool, a.Result.Outcome, text)})
		for _, d := range window.DataIn(a.Result.Blocks) {
			data = append(data, d)
		}
		if a.Result.Outcome == message.OutcomeSuccess {
			succeeded = append(succeeded, a.Tool)
		}
	}
	if len(told) == 0 {
		return nil
	}
	if v, err := r.currentView(); err == nil { // else the run was cancelled
		v.Advance(succeeded...)
	}
	r.view, r.st.away = nil, r.st.stillAway()
	m := r.hintMessage("", "")
	m.Blocks = append(told, data...)
	return r.addMessage(m, "")
}
