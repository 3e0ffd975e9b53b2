package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/kitbag-go/kitbag/tool"
)

// isIdempotent reports whether the tool of c allows to make the call again.
func (r *run) isIdempotent(c *openCall) bool {
	t, err := r.tool(c)
	return err == nil && isIdempotent(t, c.Input)
}

func isIdempotent(t tool.Tool, input json.RawMessage) (ok bool) {
	i, has := tool.As[tool.IdempotentChecker](t)
	if !has {
		return false
	}
	defer func() {
		if recover() != nil {
			ok = false // what cannot judge does not vouch
		}
	}()
	return i.CheckIdempotent(input)
}

// idempotencyKey returns the key of c: the same in every process that goes on
// with this State, and another for any other call. The arguments are in it since
// a service refuses a key that comes back with other ones, which a person may
// have given the call in the meantime.
func (r *run) idempotencyKey(c *openCall, answer string) string {
	h := sha256.New()
	for _, part := range []string{r.st.ID, r.stepID(c, answer), string(c.Input)} {
		sum := sha256.Sum256([]byte(part)) // of each, so that no two lists of parts are one text
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
