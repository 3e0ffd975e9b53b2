package openai

import (
	"sync"
	"time"
)

// An alarm ends an exchange unless it is put off in time. That is done for every
// request and every read of an answer, while it goes off next to never, so the timer
// is not set anew each time, which can wake up a thread: one that fires too early is
// set to what is left. It is safe for concurrent use, as the timer has a goroutine of its
// own.
type alarm struct {
	mu    sync.Mutex
	x     *exchange // nil while the alarm is off
	due   time.Time // when to end it
	timer *time.Timer
	fires time.Time // zero when the timer is not set
}

// in has the alarm go off for x after d, in place of what was set before.
func (a *alarm) in(d time.Duration, x *exchange) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.x, a.due = x, now.Add(d)
	if a.fires.IsZero() || a.due.Before(a.fires) {
		a.set(d)
	}
}

// off has the alarm go off no more. Once it has returned, x is not ended any more.
func (a *alarm) off() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.x = nil
}

// set sets the timer; a.fires becomes a.due.
func (a *alarm) set(d time.Duration) {
	a.fires = a.due
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.fire)
		return
	}
	a.timer.Reset(d)
}

// fire is called by the timer. It calls x under the lock, so that x cannot be over and its
// alarm in use by another one meanwhile.
func (a *alarm) fire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fires = time.Time{}
	if a.x == nil {
		return
	}
	if left := time.Until(a.due); left > 0 {
		a.set(left)
		return
	}
	a.x.giveUp()
	a.x = nil
}

// alarms are those of a model that are off. They keep their timers as they are, for
// the next request. There are as many as requests have been made at the same time.
type alarms struct {
	mu   sync.Mutex
	free []*alarm
}

func (as *alarms) take() *alarm {
	as.mu.Lock()
	defer as.mu.Unlock()
	n := len(as.free)
	if n == 0 {
		return new(alarm)
	}
	a := as.free[n-1]
	as.free = as.free[:n-1]
	return a
}

// put takes back an alarm that is off.
func (as *alarms) put(a *alarm) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.free = append(as.free, a)
}
