package park

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
)

// A Ticket is the signed state that a client without sessions sends back with its answer. It is valid for one
// call, with one credential, once, and for a limited time.
type Ticket struct {
	Call    []byte `json:"call"` // digest of the credential, the tool and the arguments
	Nonce   string `json:"nonce"`
	Parked  bool   `json:"parked,omitempty"` // the call is parked under the nonce; otherwise it has not started
	Expires int64  `json:"expires"`          // Unix seconds; set by Issue
}

// Issue signs a ticket.
func (l *Lot) Issue(t Ticket) string {
	t.Expires = time.Now().Add(l.limit).Unix()
	body := rpc.Encode(t)
	return base64.RawURLEncoding.EncodeToString(append(l.sign(body), body...))
}

// sign returns the authentication code of a ticket. The key is random for each Lot, so tickets become invalid
// when the server ends.
func (l *Lot) sign(body []byte) []byte {
	h := hmac.New(sha256.New, l.secret[:])
	h.Write(body)
	return h.Sum(nil)
}

// Verify decodes a ticket that this Lot has issued.
func (l *Lot) Verify(state string) (t Ticket, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], l.sign(raw[sha256.Size:])) {
		return t, errors.New("requestState is not from this server")
	}
	return t, json.Unmarshal(raw[sha256.Size:], &t)
}

// Redeem checks a ticket for a call that has not started, and invalidates it.
func (l *Lot) Redeem(state string, call []byte) error {
	t, err := l.Verify(state)
	if err != nil {
		return err
	}
	switch {
	case !hmac.Equal(t.Call, call):
		return errors.New("requestState belongs to another call")
	case time.Now().Unix() > t.Expires:
		return errors.New("requestState has expired; call again")
	case !l.spent.add(t.Nonce, t.Expires):
		return errors.New("requestState was used before; call again")
	}
	return nil
}

// nonces are the used nonces that have not expired.
type nonces struct {
	mu   sync.Mutex
	used map[string]int64
}

// add reports whether the nonce is new.
func (n *nonces) add(nonce string, expires int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, used := n.used[nonce]; used {
		return false
	}
	if n.used == nil {
		n.used = map[string]int64{}
	}
	now := time.Now().Unix()
	for k, e := range n.used {
		if e < now {
			delete(n.used, k)
		}
	}
	n.used[nonce] = expires
	return true
}
