package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

// A Variant is how a copy runs differently from other sessions. It is stored in the State of the copy.
type Variant struct {
	Model    string             // "" for the usual one
	Settings *permission.Policy // the mode and rules; nil for the usual ones
}

// A storedVariant is a Variant as it is stored. Settings is the settings file that the user gave.
type storedVariant struct {
	Model    string `json:"model,omitempty"`
	Settings string `json:"settings,omitempty"`
}

const variantName = "inspect.variant"

var variantKey = toolstate.NewKey[storedVariant](variantName)

// VariantOf returns how a session runs: the zero Variant unless it is a copy that the page made with another model or
// policy. A program that runs a session of such a store must not run it differently: the policy may be a stricter one.
// After an error it must not run the session at all.
func VariantOf(st *agent.State) (Variant, error) {
	kept, err := storedIn(st)
	if err != nil {
		return Variant{}, err
	}
	return kept.variant()
}

func storedIn(st *agent.State) (kept storedVariant, err error) {
	if !slices.Contains(st.Tools.Keys(), variantName) { // Update would add it
		return kept, nil
	}
	err = variantKey.Update(toolstate.With(context.Background(), &st.Tools), func(s *storedVariant) error { kept = *s; return nil })
	return kept, err
}

func (s storedVariant) variant() (Variant, error) {
	with := Variant{Model: s.Model}
	if s.Settings != "" {
		parsed, err := permission.ParseSettings("the settings", []byte(s.Settings))
		if err != nil {
			return Variant{}, err
		}
		with.Settings = &parsed.Policy
	}
	return with, nil
}

// note says how the session of st runs, "" if as usual.
func (s storedVariant) note() string {
	var parts []string
	if s.Model != "" {
		parts = append(parts, "the model "+s.Model)
	}
	if s.Settings != "" {
		parts = append(parts, "the mode and rules of these settings: "+s.Settings)
	}
	if parts == nil {
		return ""
	}
	return "This copy always runs with " + strings.Join(parts, ", and with ") + "."
}

// A forkStore is a store in which a copy is stored together with its Variant.
type forkStore struct {
	session.Store
	session.Reader
	session.Watcher // nil if the store is not one
	with            storedVariant
}

func (c forkStore) Open(ctx context.Context, id string) (session.Log, error) {
	log, err := c.Store.Open(ctx, id)
	return copyLog{log, c.with}, err
}

// A copyLog puts a Variant into the State that is appended. What the session had stays where it is not replaced.
type copyLog struct {
	session.Log
	with storedVariant
}

func (l copyLog) Append(ctx context.Context, rec session.Record) error {
	if l.with != (storedVariant{}) {
		st := new(agent.State)
		err := json.Unmarshal(rec.Data, st)
		if err == nil {
			err = variantKey.Update(toolstate.With(ctx, &st.Tools), func(s *storedVariant) error {
				if l.with.Model != "" {
					s.Model = l.with.Model
				}
				if l.with.Settings != "" {
					s.Settings = l.with.Settings
				}
				return nil
			})
		}
		if err == nil {
			rec.Data, err = st.MarshalJSON()
		}
		if err != nil {
			return fmt.Errorf("store how the copy runs: %w", err)
		}
	}
	return l.Log.Append(ctx, rec)
}
