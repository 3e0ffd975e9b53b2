package agent

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/permission"
)

// ErrTampered is wrapped by the error for a State whose seal does not match; see [Config.Key].
var ErrTampered = errors.New("the session was changed outside of kitbag, or Config.Key, the policy or a tool with an open call has changed")

// sealedData is what a seal covers: the whole state, and what its open questions depend on.
type sealedData struct {
	State   stateJSON
	Policy  permission.Policy
	Schemas []json.RawMessage // of the tools of the open calls
}

// sealOf computes the seal of the current state. It covers the encoded state, after secrets were removed:
// nothing else can be checked when the state is loaded.
func (r *run) sealOf() (string, error) {
	state, err := r.st.toJSON(0)
	if err != nil {
		return "", err
	}
	s := sealedData{State: state, Policy: r.cfg.Policy}
	s.State.Seal = ""
	for _, c := range r.st.loop.Open {
		if c.Status == decide.Done || c.Tool == finalName { // the caller of each run chooses the schema of final_answer
			continue
		}
		if _, err := r.currentView(); err != nil {
			return "", err
		}
		// A tool that does not exist has no schema. If it exists again later, the seal no longer matches, as after
		// any change of the schema.
		var schema json.RawMessage
		if t, err := r.tool(c); err == nil {
			schema = t.Info().Input
		}
		s.Schemas = append(s.Schemas, schema)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	// Invalid UTF-8 becomes U+FFFD, which is escaped the first time it is encoded, but not after it was loaded.
	data = bytes.ReplaceAll(data, []byte("\uFFFD"), []byte(`\ufffd`))
	mac := hmac.New(sha256.New, r.cfg.Key)
	mac.Write(data)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

// checkSeal returns an error for a state that was changed without the key.
func (r *run) checkSeal() error {
	if len(r.cfg.Key) == 0 {
		return nil
	}
	if fresh, err := r.st.isFresh(); err != nil || fresh {
		return err
	}
	want, err := r.sealOf()
	if err != nil {
		return err
	}
	// In constant time, so that an attacker cannot measure how much of a seal was right.
	if !hmac.Equal([]byte(want), []byte(r.st.seal)) {
		return fmt.Errorf("%w; begin a new session, or continue one that was saved with this key and configuration", ErrTampered)
	}
	r.st.loop.SetUnverified(false)
	return nil
}

// isFresh reports whether st contains nothing that a seal would cover. A state that a program has prepared,
// by opening groups, is fresh; one that was loaded must contain nothing except an id.
func (st *State) isFresh() (bool, error) {
	if !st.loaded {
		return st.seal == "" && len(st.Messages) == 0 && len(st.Rules) == 0, nil
	}
	got, err := json.Marshal(st)
	if err != nil {
		return false, err
	}
	want, err := json.Marshal(&State{ID: st.ID, Messages: st.Messages[:0]})
	return bytes.Equal(got, want), err
}
