package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Rate limits how often something may happen, on all replicas together: a bucket of tokens in the store, which holds max
// tokens and is filled evenly in the time every. To use the store less often, a replica takes several tokens at once.
type Rate struct {
	store Store
	key   string
	max   int64
	every time.Duration

	mu         sync.Mutex
	local      int64     // tokens that this replica has taken from the bucket and not used
	emptyUntil time.Time // when the bucket has a token again
}

// A bucket is the stored part of a Rate. A bucket that is not stored is full.
type bucket struct {
	Tokens float64 `json:"tokens"`
	At     int64   `json:"at"` // when Tokens was right, in Unix microseconds, by the replica's clock that is furthest ahead
}

// NewRate returns a rate with a key in the store.
func NewRate(store Store, key string, max int, every time.Duration) *Rate {
	return &Rate{store: store, key: "rate/" + key, max: int64(max), every: every}
}

// Batch returns how many tokens a replica takes at once from a bucket that holds max tokens: a tenth, rounded up.
func Batch(max int) int { return (max + 9) / 10 }

// Take takes a token. If there is none, it returns how long it takes until there is one, without waiting.
func (r *Rate) Take(ctx context.Context) (wait time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range maxTries {
		if r.local > 0 {
			r.local--
			return 0, nil
		}
		if wait := time.Until(r.emptyUntil); wait > 0 {
			return wait, nil
		}
		changed, err := r.fetch(ctx)
		if err != nil {
			return 0, err
		}
		if !changed {
			pause(&r.mu)
		}
	}
	return 0, errors.New("the bucket of a rate could not be changed, because other replicas changed it at the same time; try again")
}

// fetch takes tokens from the stored bucket, or sets r.emptyUntil. It returns false if another replica has changed the
// bucket at the same time. The caller holds r.mu.
func (r *Rate) fetch(ctx context.Context) (bool, error) {
	raw, err := r.store.Get(ctx, r.key)
	if err != nil {
		return false, Unavailable(ctx, err)
	}
	now := time.Now()
	b := bucket{float64(r.max), now.UnixMicro()}
	if raw != nil {
		if err := json.Unmarshal(raw, &b); err != nil {
			return false, fmt.Errorf("read the bucket of a rate: %w", err)
		}
	}
	if passed := now.UnixMicro() - b.At; passed > 0 { // not if another replica's clock is ahead
		b.Tokens = min(float64(r.max), b.Tokens+float64(passed)*float64(r.max)/float64(r.every.Microseconds()))
		b.At = now.UnixMicro()
	}
	if b.Tokens < 1 {
		wait := time.Duration((1 - b.Tokens) * float64(r.every) / float64(r.max)).Truncate(time.Microsecond)
		r.emptyUntil = now.Add(wait + time.Microsecond) // not earlier because of the rounding
		return true, nil
	}
	n := min(int64(b.Tokens), int64(Batch(int(r.max))))
	b.Tokens -= float64(n)
	taken, err := json.Marshal(b)
	if err != nil {
		return false, err
	}
	ok, err := r.store.Swap(ctx, r.key, raw, taken, 2*r.every+time.Minute) // until the bucket is full, also by a slower clock
	if err != nil {
		return false, Unavailable(ctx, err)
	}
	if ok {
		r.local = n
	}
	return ok, nil
}
