package park

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
)

// A Ticket is the sealed state that a client without sessions sends back with its answer. It is valid for one
// call, with one credential, once, and for a limited time.
type Ticket struct {
	Call    []byte `json:"call"` // digest of the credential, the tool and the arguments
	Nonce   string `json:"nonce"`
	Parked  string `json:"parked,omitempty"` // the id of the replica that has parked the call under the nonce; empty if the call has not started
	Expires int64  `json:"expires"`          // Unix seconds; set by Issue
}

// Tickets seals tickets, which every replica can redeem.
type Tickets struct {
	limit time.Duration // how long a client may take to answer
	keys  *replica.Keys
	store replica.Store
	id    string // of this replica
}

const purpose = "ticket"

// Issue seals a ticket.
func (k *Tickets) Issue(ctx context.Context, t Ticket) (string, error) {
	t.Expires = time.Now().Add(k.limit).Unix()
	return k.keys.Seal(ctx, purpose, t)
}

// Verify decodes a ticket that these Tickets, or those of another replica, have issued.
func (k *Tickets) Verify(ctx context.Context, state string) (t Ticket, err error) {
	if err := k.keys.Open(ctx, purpose, state, &t); err != nil {
		return t, fmt.Errorf("requestState is not from this server: %w", err)
	}
	return t, nil
}

// Redeem checks a ticket for a call that has not started, and invalidates it for all replicas.
func (k *Tickets) Redeem(ctx context.Context, state string, call []byte) error {
	t, err := k.Verify(ctx, state)
	left := time.Until(time.Unix(t.Expires+1, 0))
	switch {
	case err != nil:
		return err
	case !bytes.Equal(t.Call, call):
		return errors.New("requestState belongs to another call")
	case left <= 0:
		return errors.New("requestState has expired; call again")
	}
	// The value is kept for longer than the ticket is valid on a replica whose clock is a little slow.
	isNew, err := k.store.Swap(ctx, "nonce/"+t.Nonce, nil, []byte("spent"), left+time.Minute)
	switch {
	case err != nil:
		return replica.Unavailable(ctx, err)
	case !isNew:
		return errors.New("requestState was used before; call again")
	}
	return nil
}
