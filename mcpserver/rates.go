package mcpserver

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
)

// A Rate limits how often tools run. It is a bucket of Calls tokens, which is full at first and is filled evenly in the time
// Every. A call that the policy allows takes a token, and fails if there is none. So in a time T at most Calls × (1 + T/Every)
// calls run.
//
// Replicas share the bucket. A replica takes a tenth of Calls tokens at once and keeps the tokens that it has not used yet, so
// each replica adds up to a tenth of Calls to that limit. A difference between the replicas' clocks adds the tokens that the
// bucket gets in that time. Calls fail while [Replicas.Shared] cannot be reached.
type Rate struct {
	Tools string        // a glob over names of tools, as in path.Match, such as "github__*" for the tools of a gateway's server github
	Calls int           // at least 1
	Every time.Duration // at least 1s
	Each  bool          // a bucket for each credential and each identity, instead of one for all clients
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

// newBuckets returns the buckets of the account with the key, in the order of Config.Rates. Rates without Each have one bucket
// for all accounts: that of registry.anonymous, which is the first account.
func (g *registry) newBuckets(key string) []*replica.Rate {
	buckets := make([]*replica.Rate, len(g.cat.cfg.Rates))
	for i, r := range g.cat.cfg.Rates {
		name := hash(fmt.Sprint(r)) // the same on all replicas; a changed rate has a new bucket
		if r.Each {
			name += "/" + hash(key)
		} else if g.anonymous != nil {
			buckets[i] = g.anonymous.buckets[i]
			continue
		}
		buckets[i] = replica.NewRate(g.store, name, r.Calls, r.Every)
	}
	return buckets
}

// takeRateTokens takes a token for a call of a tool from each bucket that applies. If a bucket is empty, the call must not
// run, and takeRateTokens returns its result; otherwise nil.
func (r *request) takeRateTokens(ctx context.Context, tool string) object {
	for i, rate := range r.cat.cfg.Rates {
		if applies, _ := path.Match(rate.Tools, tool); !applies { // no error, because Rate.Check has checked the pattern
			continue
		}
		switch wait, err := r.account.buckets[i].Take(ctx); {
		case err != nil:
			r.rec.Reason = fmt.Sprintf("the rate of %s cannot be checked: %v", rate.Tools, err)
			return failure(fmt.Sprintf("The call of %s was not run, because its rate cannot be checked: %v.", tool, err))
		case wait > 0:
			r.rec.Reason = fmt.Sprintf("more than %d calls of %s in %v", rate.Calls, rate.Tools, rate.Every)
			wait = wait.Round(time.Second) + time.Second // so that the next call is not too early
			return failure(fmt.Sprintf("The call of %s was not run: there were %s. Call it again in %v.", tool, r.rec.Reason, wait))
		}
	}
	return nil
}
