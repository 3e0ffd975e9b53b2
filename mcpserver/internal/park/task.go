package park

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// A task is the part of a Call that is used once the client polls for the result (SEP-2663).
type task struct {
	nonce, id        string
	created, updated time.Time
	cancelled        bool
	keys             map[string]bool // of all questions so far

	// Guarded by Lot.mu.
	until  time.Time   // when the identities of all requests about the task so far have expired
	expiry *time.Timer // cancels the call at until; nil if one of the identities does not expire
}

// pollInterval is how often clients are advised to ask for the state of a task.
const pollInterval = time.Second

// BecomeTask makes a call a task if it has not ended within the time after: its request is then answered, and the client
// polls for the result, until ttl has passed. The call does not become a task if its owner has too many tasks, or if stop
// is called first.
func (c *Call) BecomeTask(after, ttl time.Duration) (stop func() bool) {
	makeDue := func() { c.taskDue <- ttl }
	if after <= 0 {
		makeDue() // before the call can ask a question
		return func() bool { return false }
	}
	return time.AfterFunc(after, makeDue).Stop
}

// startTask makes the call a task, and returns the answer to its request. It returns nil if the call cannot become a task;
// then the request waits for the call.
func (c *Call) startTask(ctx context.Context, ttl time.Duration) any {
	now := time.Now()
	t := &task{nonce: rand.Text(), created: now, updated: now, keys: map[string]bool{}}
	l := c.lot
	var err error
	if t.id, err = l.Issue(ctx, Ticket{Nonce: t.nonce, Parked: l.id}); err != nil {
		return nil // the store has failed, which Issue has logged
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || c.owner.tasks.Load() >= int64(c.owner.Max) {
		return nil
	}
	c.owner.tasks.Add(1)
	c.mu.Lock()
	c.task, c.current, c.ttl = t, Request{}, ttl
	for _, q := range c.pending {
		t.keys[q.key] = true
	}
	state := c.commonState()
	c.mu.Unlock()
	time.AfterFunc(ttl, func() { l.forget(c) })
	if end, expires := ctx.Deadline(); expires {
		t.until, t.expiry = end, time.AfterFunc(time.Until(end), func() { c.cancel(errExpired) })
	}
	l.tasks[t.nonce] = c
	l.work.Go(c.collect)
	state["resultType"] = "task"
	state["status"] = mcp.TaskStatusWorking // a question is only in the answer to tasks/get
	return state
}

var errExpired = errors.New("the access token of the client has expired, and the client has not asked for the task with a new token")

// extend lets a task run until the identity of a later request expires, which is the deadline of ctx. Lot.mu is held.
func (t *task) extend(ctx context.Context) {
	end, expires := ctx.Deadline()
	switch {
	case t.expiry == nil:
	case !expires:
		t.expiry.Stop()
		t.expiry = nil
	case end.After(t.until):
		t.until = end
		t.expiry.Reset(time.Until(end))
	}
}

// forget removes a task whose ttl has passed, and cancels its call.
func (l *Lot) forget(c *Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tasks, c.task.nonce)
	c.owner.tasks.Add(-1)
	if c.task.expiry != nil {
		c.task.expiry.Stop()
	}
	c.cancel(errors.New("the task has expired"))
}

// collect collects the questions of a task until its call has ended.
func (c *Call) collect() {
	for {
		select {
		case all := <-c.asked:
			c.mu.Lock()
			for _, q := range all {
				if c.task.keys[q.key] { // a key must not be used twice
					q.key = fmt.Sprintf("%s-%d", q.key, len(c.task.keys))
				}
				c.task.keys[q.key] = true
			}
			c.pending, c.task.updated = append(c.pending, all...), time.Now()
			c.mu.Unlock()
		case <-c.done:
			c.mu.Lock()
			c.task.updated = time.Now()
			c.mu.Unlock()
			return
		}
	}
}

// Task returns the owner's task with the id, or nil. The deadline of ctx, the context of a request, may extend the task.
func (l *Lot) Task(ctx context.Context, id string, owner *Owner) *Call {
	t, err := l.Verify(ctx, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.tasks[t.Nonce]; err == nil && c != nil && c.owner == owner {
		c.task.extend(ctx)
		return c
	}
	return nil
}

// An endedTask is a task in the store, from a replica that has ended.
type endedTask struct {
	Owner string                     `json:"owner"` // Owner.Key
	State map[string]json.RawMessage `json:"state"`
}

func taskKey(nonce string) string { return "task/" + nonce }

// HandOver stores the tasks that have ended, so that other replicas can answer requests for their results.
func (l *Lot) HandOver(ctx context.Context) (err error) {
	l.mu.Lock()
	tasks := slices.Collect(maps.Values(l.tasks))
	l.mu.Unlock()
	for _, c := range tasks {
		if !c.ended() {
			continue
		}
		raw, taskErr := json.Marshal(map[string]any{"owner": c.owner.Key, "state": c.State()})
		if taskErr == nil {
			_, taskErr = l.store.Swap(ctx, taskKey(c.task.nonce), nil, raw, time.Until(c.task.created.Add(c.ttl)))
		}
		err = errors.Join(err, taskErr)
	}
	return err
}

// Ended returns the state of the owner's task with the id if a replica has stored the task in HandOver. It returns nil
// otherwise, also if the store fails.
func (l *Lot) Ended(ctx context.Context, id string, owner *Owner) map[string]any {
	t, err := l.Verify(ctx, id)
	if err != nil {
		return nil
	}
	var ended endedTask
	raw, err := l.store.Get(ctx, taskKey(t.Nonce))
	if err != nil || raw == nil || json.Unmarshal(raw, &ended) != nil || ended.Owner != owner.Key {
		return nil
	}
	state := map[string]any{} // the type to which the server adds members
	for name, value := range ended.State {
		state[name] = value
	}
	return state
}

// State returns the state of a task, with its result or its open questions.
func (c *Call) State() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.commonState()
	switch {
	case !c.ended() && len(c.pending) > 0 && !c.task.cancelled:
		state["status"], state["inputRequests"] = mcp.TaskStatusInputRequired, requestsOf(c.pending)
	case !c.ended():
		state["status"] = mcp.TaskStatusWorking
	case c.task.cancelled || c.err == nil && c.result == nil: // a call without an outcome was cancelled
		state["status"] = mcp.TaskStatusCancelled
	case c.err != nil:
		state["status"], state["error"], state["statusMessage"] = mcp.TaskStatusFailed, c.err, c.err.Message
	default:
		state["status"], state["result"] = mcp.TaskStatusCompleted, c.result
	}
	return state
}

// commonState returns the members that all states have. c.mu is held.
func (c *Call) commonState() map[string]any {
	return map[string]any{"taskId": c.task.id, "createdAt": c.task.created.UTC().Format(time.RFC3339Nano),
		"lastUpdatedAt": c.task.updated.UTC().Format(time.RFC3339Nano), "ttlMs": c.ttl.Milliseconds(), "pollIntervalMs": pollInterval.Milliseconds()}
}

// Answer passes answers on to the questions of a task, by the keys of the questions. It ignores answers to unknown keys.
func (c *Call) Answer(answers map[string]json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.task.updated = time.Now()
	c.pending = slices.DeleteFunc(c.pending, func(q *question) bool {
		raw := answers[q.key]
		if !isObject(raw) {
			return false
		}
		q.reply <- raw
		return true
	})
}

// Cancel cancels a task that has not ended.
func (c *Call) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended() {
		c.task.cancelled = true
		c.cancel(context.Canceled)
	}
}

func (c *Call) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// requestsOf returns questions as clients get them.
func requestsOf(all []*question) map[string]any {
	requests := map[string]any{}
	for _, q := range all {
		requests[q.key] = map[string]any{"method": q.method, "params": q.params}
	}
	return requests
}
