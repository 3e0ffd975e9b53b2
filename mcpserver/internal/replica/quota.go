package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

const (
	// divideEvery is how often unused parts are given back. growEvery is the shortest interval between requests for
	// a larger part: clients can cause such requests, and each one reads the store.
	divideEvery = time.Second
	growEvery   = 20 * time.Millisecond

	quotaTTL = 24 * time.Hour
)

// A Limit applies to all replicas together. Budget is the part of it that this replica may use.
type Limit struct {
	Name   string
	Max    int64
	Budget *wire.Budget
}

// Quotas divides limits among the replicas. The store has each replica's part of a limit. Together the parts are never
// larger than the limit, so no replica needs to ask the others. A replica requests a part when it needs one, and gives back
// what it does not use.
type Quotas struct {
	store   Store
	members *Members

	mu   sync.Mutex
	held map[*quota]bool // the quotas of which this replica has a part
}

// NewQuotas returns the Quotas of the replica members.ID.
func NewQuotas(store Store, members *Members) *Quotas {
	return &Quotas{store: store, members: members, held: map[*quota]bool{}}
}

// A quota is several limits whose parts are in one value of the store.
type quota struct {
	*Quotas
	key    string
	limits []Limit
	keep   bool // this replica keeps a part that it does not use

	needsMore atomic.Bool // a part was used up since the last change

	mu       sync.Mutex // held during an attempt to change the parts
	changed  time.Time  // when the parts were last stored
	lastGrow time.Time  // when grow last requested a larger part; zero after a change without such a request
}

// parts are the parts of the replicas, by the replica's id and the name of the limit.
type parts map[string]map[string]int64

// Add divides limits from now on; the store has their parts in one value. With keep this replica has a part even if it does
// not use it, so that its first requests need not wait for the store. Without keep Add does not use the store and cannot fail.
func (q *Quotas) Add(ctx context.Context, key string, keep bool, limits ...Limit) error {
	o := q.add(key, keep, limits)
	if !keep {
		return nil
	}
	return o.divide(ctx)
}

func (q *Quotas) add(key string, keep bool, limits []Limit) *quota {
	o := &quota{Quotas: q, key: "quota/" + key, limits: limits, keep: keep}
	for _, l := range limits {
		l.Budget.Max.Store(0)
		l.Budget.More = o.grow
	}
	return o
}

// Run gives back unused parts, until ctx ends.
func (q *Quotas) Run(ctx context.Context) {
	tick := time.NewTicker(divideEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, o := range q.all() {
				if err := o.refresh(ctx); err != nil && ctx.Err() == nil {
					slog.WarnContext(ctx, "this replica cannot change its part of a limit", "err", err)
					break // the other quotas would fail, too
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// Reset forgets this replica's parts. Other replicas have taken them after they had removed this replica.
func (q *Quotas) Reset() {
	for _, o := range q.all() {
		for _, l := range o.limits {
			l.Budget.Max.Store(0)
		}
		o.needsMore.Store(true)
	}
}

func (q *Quotas) all() (all []*quota) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for o := range q.held {
		all = append(all, o)
	}
	return all
}

// grow is [wire.Budget.More].
func (o *quota) grow(ctx context.Context) {
	o.needsMore.Store(true)
	o.mu.Lock()
	due := time.Since(o.lastGrow) > growEvery
	if due {
		o.lastGrow = time.Now()
	}
	o.mu.Unlock()
	if due {
		_ = o.divide(ctx) // on failure the parts stay the same
	}
}

// refresh changes the parts if that may make a difference.
func (o *quota) refresh(ctx context.Context) error {
	due := o.keep || o.needsMore.Load() // a kept part depends on the number of replicas
	for _, l := range o.limits {
		due = due || l.Budget.Used() != l.Budget.Max.Load()
	}
	o.mu.Lock()
	due = due || time.Since(o.changed) > quotaTTL/4 // before the value expires
	o.mu.Unlock()
	if !due {
		return nil
	}
	return o.divide(ctx)
}

// divide changes this replica's parts, and removes those of dead replicas.
func (o *quota) divide(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	more := o.needsMore.Swap(false)
	if !more {
		o.lastGrow = time.Time{}
	}
	for range maxTries {
		raw, err := o.store.Get(ctx, o.key)
		if err != nil {
			return err
		}
		all := parts{}
		if raw != nil {
			if err := json.Unmarshal(raw, &all); err != nil {
				return fmt.Errorf("read the parts of a limit: %w", err)
			}
		}
		ok, err := o.change(ctx, raw, all, more)
		if ok || err != nil {
			return err
		}
		pause(&o.mu)
	}
	return fmt.Errorf("a part of a limit could not be changed in %d attempts, because other replicas changed theirs at the same time", maxTries)
}

// change computes this replica's parts from all, which is raw decoded, and stores them. With more they are larger than
// what is used. It returns false if another replica has replaced raw at the same time. The caller holds o.mu.
func (o *quota) change(ctx context.Context, raw []byte, all parts, more bool) (bool, error) {
	id := o.members.ID
	for other := range maps.Clone(all) {
		if url, err := o.members.URL(ctx, other); err != nil {
			return false, err
		} else if url == "" && other != id {
			delete(all, other)
		}
	}
	before := make([]int64, len(o.limits))
	for i, l := range o.limits {
		before[i] = l.Budget.Max.Load()
	}
	own := o.shares(all, more)
	if delete(all, id); len(own) > 0 {
		all[id] = own
	}
	var changed []byte
	if len(all) > 0 {
		var err error
		if changed, err = json.Marshal(all); err != nil {
			return false, err
		}
	}
	ok, err := true, error(nil)
	if !bytes.Equal(raw, changed) || time.Since(o.changed) > quotaTTL/4 {
		ok, err = o.store.Swap(ctx, o.key, raw, changed, quotaTTL)
	}
	for i, l := range o.limits {
		switch {
		case ok:
			l.Budget.Max.Store(own[l.Name])
		case err == nil: // shares may have lowered Max; after an error it stays, because the lower part may have been stored
			l.Budget.Max.Store(before[i])
		}
	}
	if ok {
		o.changed = time.Now()
		o.Quotas.mu.Lock()
		defer o.Quotas.mu.Unlock()
		if o.held[o] = true; len(own) == 0 {
			delete(o.held, o)
		}
	}
	return ok, err
}

// shares returns this replica's parts: what it uses and, if it needs more or keeps a part, a share of what no replica has. One
// share is left over, so that a new replica need not wait until the others give theirs back. shares lowers the Max of a
// part that gets smaller before the part is stored, so that it is not used while another replica takes it.
func (o *quota) shares(all parts, more bool) map[string]int64 {
	own := map[string]int64{}
	for _, l := range o.limits {
		left := l.Max
		for id, part := range all {
			if id != o.members.ID {
				left -= part[l.Name]
			}
		}
		used, share := l.Budget.Used(), int64(0)
		if more || o.keep {
			share = max(0, left-used) / int64(o.members.Count()+1)
		}
		if more {
			share = max(1, share)
		}
		n := max(0, min(left, used+share))
		if n < l.Budget.Max.Load() {
			l.Budget.Max.Store(n)
			n = max(n, min(left, l.Budget.Used())) // requests may have begun before Max was lowered
		}
		if n > 0 {
			own[l.Name] = n
		}
	}
	return own
}
