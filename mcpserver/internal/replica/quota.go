package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

const (
	// refreshEvery is how often unused parts are given back. growEvery is the shortest interval between requests for
	// a larger part: clients can cause such requests, and each request reads the store.
	refreshEvery = time.Second
	growEvery    = 20 * time.Millisecond

	quotaTTL   = 24 * time.Hour // of the stored parts
	storeAgain = quotaTTL / 4   // after this time parts that have not changed are stored again, so that they do not expire
)

// A Limit applies to all replicas together. Budget is this replica's part of the limit.
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
	held map[*quota]bool // the quotas in which this replica has a part
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

	needsMore atomic.Bool // a part was used up since the last call of divide

	mu       sync.Mutex // held during an attempt to change the parts
	stored   time.Time  // when the parts were last stored
	lastGrow time.Time  // when grow last requested a larger part; zero if a call of divide since then needed no larger part
}

// parts are the parts of the replicas, by the replica's id and the name of the limit.
type parts map[string]map[string]int64

// Add divides limits, whose parts are stored under the key. With keep this replica has a part even if it does not use the
// part, so that its first requests need not wait for the store. Without keep Add does not use the store and cannot fail.
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
	tick := time.NewTicker(refreshEvery)
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

// Reset forgets this replica's parts, because other replicas have removed this replica and its parts.
func (q *Quotas) Reset() {
	for _, o := range q.all() {
		for _, l := range o.limits {
			l.Budget.Max.Store(0)
		}
		o.needsMore.Store(true) // so that refresh takes new parts
	}
}

func (q *Quotas) all() []*quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.held))
}

// grow requests larger parts. It is the More of the budgets.
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

// refresh calls divide if that may change the parts, and before the stored parts expire.
func (o *quota) refresh(ctx context.Context) error {
	due := o.keep || o.needsMore.Load() // a kept part depends on the number of replicas
	for _, l := range o.limits {
		due = due || l.Budget.Used() != l.Budget.Max.Load()
	}
	o.mu.Lock()
	due = due || time.Since(o.stored) > storeAgain
	o.mu.Unlock()
	if !due {
		return nil
	}
	return o.divide(ctx)
}

// divide changes this replica's parts, and removes the parts of dead replicas.
func (o *quota) divide(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	more := o.needsMore.Swap(false)
	if !more {
		o.lastGrow = time.Time{} // the next request for a larger part need not wait
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

// change computes this replica's parts from all, which is raw decoded, and stores them. With more the parts are larger than
// what is used. ok is false if another replica has replaced raw at the same time. The caller holds o.mu.
func (o *quota) change(ctx context.Context, raw []byte, all parts, more bool) (ok bool, err error) {
	id := o.members.ID
	for other := range all {
		if url, err := o.members.URL(ctx, other); err != nil {
			return false, err
		} else if url == "" && other != id { // dead
			delete(all, other)
		}
	}
	oldMax := make([]int64, len(o.limits))
	for i, l := range o.limits {
		oldMax[i] = l.Budget.Max.Load()
	}
	own := o.shares(all, more)
	delete(all, id)
	if len(own) > 0 {
		all[id] = own
	}
	var changed []byte // nil removes the value
	if len(all) > 0 {
		if changed, err = json.Marshal(all); err != nil {
			return false, err
		}
	}
	ok = bytes.Equal(raw, changed) && time.Since(o.stored) <= storeAgain // nothing to store
	if !ok {
		ok, err = o.store.Swap(ctx, o.key, raw, changed, quotaTTL)
	}
	for i, l := range o.limits {
		switch {
		case ok:
			l.Budget.Max.Store(own[l.Name])
		case err == nil: // shares may have lowered Max; after an error it stays, because the lower part may have been stored
			l.Budget.Max.Store(oldMax[i])
		}
	}
	if ok {
		o.stored = time.Now()
		o.Quotas.mu.Lock()
		defer o.Quotas.mu.Unlock()
		delete(o.held, o)
		if len(own) > 0 {
			o.held[o] = true
		}
	}
	return ok, err
}

// shares returns this replica's parts, by the names of the limits. A part is what the replica uses and, with more or keep, an
// equal share of what is free. One share stays free for a new replica. If a part gets smaller, shares lowers the Max of the
// budget before the part is stored, so that this replica does not use what another replica takes.
func (o *quota) shares(all parts, more bool) map[string]int64 {
	own := map[string]int64{}
	for _, l := range o.limits {
		available := l.Max
		for id, part := range all {
			if id != o.members.ID {
				available -= part[l.Name]
			}
		}
		used, share := l.Budget.Used(), int64(0)
		if more || o.keep {
			share = max(0, available-used) / int64(o.members.Count()+1)
		}
		if more {
			share = max(1, share)
		}
		part := max(0, min(available, used+share))
		if part < l.Budget.Max.Load() {
			l.Budget.Max.Store(part)
			part = max(part, min(available, l.Budget.Used())) // requests may have begun before Max was lowered
		}
		if part > 0 {
			own[l.Name] = part
		}
	}
	return own
}
