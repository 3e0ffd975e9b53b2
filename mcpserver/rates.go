package mcpserver

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
)

// A Rate limits how often tools run. It is a bucket of Calls tokens, which is filled evenly in the time Every; an
// allowed call takes a token, and fails if there is none. So in a time T at most Calls × (1 + T/Every) calls run. All
// replicas share one bucket, from which each takes a tenth at a time: up to a tenth of Calls more can run on each
// replica, and, if their clocks differ, as many as fill up in the difference. Calls fail while the replicas' Shared
// cannot be reached.
type Rate struct {
	Tools string // a glob over names of tools, as in path.Match: a tool, or "github__*" for those of a server of a gateway
	Calls int
	Every time.Duration
	Each  bool // a bucket for each credential and each identity, instead of one for all clients
}

// Check reports a mistake in the rate.
func (r Rate) Check() error {
	if _, err := path.Match(r.Tools, ""); err != nil || r.Tools == "" {
		return fmt.Errorf("tools is %q; it must be a glob over names of tools, such as github__*", r.Tools)
	}
	if r.Calls <= 0 || r.Every < time.Second {
		return fmt.Errorf("the rate of %q is %d calls every %v; it must be at least 1 call, and every at least 1s", r.Tools, r.Calls, r.Every)
	}
	return nil
}

// buckets returns the buckets of an account, in the order of Config.Rates. Unless common is nil, the account shares those
// of its buckets whose Rate has not set Each.
func (c *Config) buckets(store replica.Store, key string, common []*replica.Rate) []*replica.Rate {
	out := make([]*replica.Rate, len(c.Rates))
	for i, r := range c.Rates {
		name := hash(fmt.Sprint(r))
		switch {
		case r.Each:
			out[i] = replica.NewRate(store, name+"/"+hash(key), r.Calls, r.Every)
		case common != nil:
			out[i] = common[i]
		default:
			out[i] = replica.NewRate(store, name, r.Calls, r.Every)
		}
	}
	return out
}

// withinRates takes a token for a call of a tool from each bucket that applies. It returns the result of a call that must not
// run, or nil.
func (r *request) withinRates(ctx context.Context, tool string) object {
	for i, rate := range r.cat.cfg.Rates {
		if ok, _ := path.Match(rate.Tools, tool); !ok {
			continue
		}
		wait, err := r.account.rates[i].Take(ctx)
		if wait == 0 && err == nil {
			continue
		}
		if err != nil {
			r.rec.Reason = fmt.Sprintf("the rate of %s cannot be checked: %v", rate.Tools, err)
			return failure(fmt.Sprintf("The call of %s was not run, because its rate cannot be checked: %v.", tool, err))
		}
		r.rec.Reason = fmt.Sprintf("more than %d calls of %s in %v", rate.Calls, rate.Tools, rate.Every)
		atLeast := wait.Round(time.Second) + time.Second // so that the next call is not too early
		return failure(fmt.Sprintf("The call of %s was not run: there were %s. Call it again in %v.", tool, r.rec.Reason, atLeast))
	}
	return nil
}
