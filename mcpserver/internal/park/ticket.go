package park

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
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

// Tickets signs tickets. The key is random, so tickets become invalid when the server ends.
type Tickets struct {
	limit  time.Duration // how long a client may take to answer
	secret [32]byte

	mu    sync.Mutex
	spent map[string]int64 // the used nonces that have not expired, and when they expire
}

// Issue signs a ticket.
func (k *Tickets) Issue(t Ticket) string {
	t.Expires = time.Now().Add(k.limit).Unix()
	body := rpc.Encode(t)
	return base64.RawURLEncoding.EncodeToString(append(k.sign(body), body...))
}

// sign returns the authentication code of a ticket.
func (k *Tickets) sign(body []byte) []byte {
	h := hmac.New(sha256.New, k.secret[:])
	h.Write(body)
	return h.Sum(nil)
}

// Verify decodes a ticket that these Tickets have issued.
func (k *Tickets) Verify(state string) (t Ticket, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], k.sign(raw[sha256.Size:])) {
		return t, errors.New("requestState is not from this server")
	}
	return t, json.Unmarshal(raw[sha256.Size:], &t)
}

// Redeem checks a ticket for a call that has not started, and invalidates it.
func (k *Tickets) Redeem(state string, call []byte) error {
	t, err := k.Verify(state)
	if err != nil {
		return err
	}
	switch {
	case !hmac.Equal(t.Call, call):
		return errors.New("requestState belongs to another call")
	case time.Now().Unix() > t.Expires:
		return errors.New("requestState has expired; call again")
	case !k.spend(t.Nonce, t.Expires):
		return errors.New("requestState was used before; call again")
	}
	return nil
}

// spend reports whether the nonce is new, and makes it used.
func (k *Tickets) spend(nonce string, expires int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, used := k.spent[nonce]; used {
		return false
	}
	now := time.Now().Unix()
	maps.DeleteFunc(k.spent, func(_ string, e int64) bool { return e < now })
	k.spent[nonce] = expires
	return true
}
