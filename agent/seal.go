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

// ErrTampered is wrapped by the error of a run whose State has a seal that does not match; see [Config.Key].
var ErrTampered = errors.New("the session was changed outside of kitbag, or Config.Key, the policy or a tool with an open call has changed")

// sealedData is what a seal covers: the whole state, and what users were asked with: the policy, and the schemas of the
// tools of the open calls.
type sealedData struct {
	State   stateJSON
	Policy  permission.Policy
	Schemas []json.RawMessage
}

// sealOf computes the seal of the current state, without its secrets: a loaded state does not have them.
func (r *run) sealOf() (string, error) {
	state, err := r.st.toJSON(0)
	if err != nil {
		return "", err
	}
	state.Seal = ""
	s := sealedData{State: state, Policy: r.cfg.Policy}
	for _, c := range r.st.loop.Open {
		if c.Status == decide.Done || c.Tool == finalName { // each run chooses the schema of final_answer
			continue
		}
		if _, err := r.currentView(); err != nil { // r.tool would return this error, too
			return "", err
		}
		var schema json.RawMessage // nil for a tool that no longer exists
		if t, err := r.tool(c); err == nil {
			schema = t.Info().Input
		}
		s.Schemas = append(s.Schemas, schema)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	// json.Marshal writes invalid UTF-8 as \ufffd, but after loading, the same text has the character itself.
	data = bytes.ReplaceAll(data, []byte("\uFFFD"), []byte(`\ufffd`))
	mac := hmac.New(sha256.New, r.cfg.Key)
	mac.Write(data)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

// checkSeal returns an error if the state was not saved with Config.Key, or has been changed since. An unsealed state is
// accepted if it is fresh.
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
	if !hmac.Equal([]byte(want), []byte(r.st.seal)) {
		return fmt.Errorf("%w; begin a new session, or restore the key, the policy and the tools with which this session was saved", ErrTampered)
	}
	r.st.loop.SetUnverified(false)
	return nil
}

// isFresh reports whether st is a new conversation. In a State that the program has made itself, groups may be open; a
// State that was loaded may contain only an id.
func (st *State) isFresh() (bool, error) {
	if !st.loaded {
		return st.seal == "" && len(st.Messages) == 0 && len(st.Rules) == 0, nil
	}
	got, err := json.Marshal(st)
	if err != nil {
		return false, err
	}
	want, err := json.Marshal(&State{ID: st.ID, Messages: st.Messages[:0]}) // nil if st.Messages is: both are encoded alike
	return bytes.Equal(got, want), err
}
