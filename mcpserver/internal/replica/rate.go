package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A Rate limits how often something may happen, on all replicas together: a bucket of tokens in the store, which holds Max
// tokens and is filled evenly in the time Every. A replica takes several tokens at once for its own, local bucket.
type Rate struct {
	store Store
	key   string
	max   int64
	every time.Duration

	mu    sync.Mutex
	local int64     // tokens that this replica has taken
	empty time.Time // until when the common bucket is empty
}

// A bucket is the stored part of a Rate. If there is none, it is full.
type bucket struct {
	Tokens float64 `json:"tokens"`
	At     int64   `json:"at"` // Unix microseconds, of the latest clock of all replicas
}

// NewRate returns a rate with a key in the store.
func NewRate(store Store, key string, max int, every time.Duration) *Rate {
	return &Rate{store: store, key: "rate/" + key, max: int64(max), every: every}
}

// Batch returns how many tokens a replica takes at once: of max.
func Batch(max int) int { return (max + 9) / 10 }

// Take takes a token. If there is none, it returns how long it takes until there is one, without waiting.
func (r *Rate) Take(ctx context.Context) (wait time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait = time.Until(r.empty); r.local == 0 && wait > 0 {
		return wait, nil
	}
	if r.local == 0 {
		if wait, err = r.fetch(ctx); wait > 0 || err != nil {
			return wait, err
		}
	}
	r.local--
	return 0, nil
}

// fetch takes tokens from the common bucket. The caller holds r.mu.
func (r *Rate) fetch(ctx context.Context) (wait time.Duration, err error) {
	for range maxTries {
		raw, err := r.store.Get(ctx, r.key)
		if err != nil {
			return 0, Unavailable(ctx, err)
		}
		now := time.Now().UnixMicro()
		b := bucket{float64(r.max), now}
		if raw != nil {
			if err := json.Unmarshal(raw, &b); err != nil {
				return 0, fmt.Errorf("read the bucket of a rate: %w", err)
			}
		}
		if now > b.At { // not if another replica's clock is ahead
			b.Tokens = min(float64(r.max), b.Tokens+float64(now-b.At)*float64(r.max)/float64(r.every.Microseconds()))
			b.At = now
		}
		if b.Tokens < 1 {
			wait = time.Duration((1-b.Tokens)*float64(r.every)/float64(r.max)).Truncate(time.Microsecond) + time.Microsecond
			r.empty = time.Now().Add(wait)
			return wait, nil
		}
		n := min(int64(b.Tokens), int64(Batch(int(r.max))))
		b.Tokens -= float64(n)
		changed, err := json.Marshal(b)
		if err != nil {
			return 0, err
		}
		ok, err := r.store.Swap(ctx, r.key, raw, changed, 2*r.every+time.Minute)
		if err != nil {
			return 0, Unavailable(ctx, err)
		}
		if ok {
			r.local = n
			return 0, nil
		}
		time.Sleep(rand.N(5 * time.Millisecond)) // another replica has changed it
	}
	return 0, errors.New("the bucket of a rate could not be changed, because other replicas changed it at the same time; try again")
}
