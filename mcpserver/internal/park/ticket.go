package park

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
)

// A Ticket is the sealed state that a client without sessions sends back: the requestState of a question, which is valid
// for one request, with one credential, once, and for a limited time; or the id of a task, which has no Call.
type Ticket struct {
	Call    []byte `json:"call"` // digest of the credential, the tool and the arguments
	Nonce   string `json:"nonce"`
	Parked  string `json:"parked,omitempty"` // the id of the replica that has the call; empty if the call has not started
	Expires int64  `json:"expires"`          // Unix seconds; set by Issue, checked only by Redeem
}

// Tickets seals tickets, which every replica can verify.
type Tickets struct {
	limit time.Duration // how long a client may take to answer
	keys  *replica.Keys
	store replica.Store
	id    string // of this replica
}

const purpose = "ticket" // see replica.Keys.Seal

// Issue seals a ticket.
func (s *Tickets) Issue(ctx context.Context, t Ticket) (string, error) {
	t.Expires = time.Now().Add(s.limit).Unix()
	return s.keys.Seal(ctx, purpose, t)
}

// Verify decodes a ticket that a replica of this server has issued.
func (s *Tickets) Verify(ctx context.Context, sealed string) (t Ticket, err error) {
	if err := s.keys.Open(ctx, purpose, sealed, &t); err != nil {
		return t, fmt.Errorf("requestState is not from this server: %w", err)
	}
	return t, nil
}

// Redeem checks a ticket for a call that has not started, and invalidates it for all replicas.
func (s *Tickets) Redeem(ctx context.Context, sealed string, call []byte) error {
	t, err := s.Verify(ctx, sealed)
	left := time.Until(time.Unix(t.Expires+1, 0)) // until the end of the second Expires
	switch {
	case err != nil:
		return err
	case !bytes.Equal(t.Call, call):
		return errors.New("requestState belongs to another call")
	case left <= 0:
		return errors.New("requestState has expired; call again")
	}
	// The nonce is kept for a minute more, in case another replica's clock is slow and the ticket has not expired there.
	isNew, err := s.store.Swap(ctx, "nonce/"+t.Nonce, nil, []byte("spent"), left+time.Minute)
	switch {
	case err != nil:
		return replica.Unavailable(ctx, err)
	case !isNew:
		return errors.New("requestState was used before; call again")
	}
	return nil
}
