package browser

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// look is a tool that only reads, and write one that asks.
func look(t *testing.T, name, result string) tool.Tool {
	t.Helper()
	f, err := tool.New(name, "Looks.", func(context.Context, map[string]string) (string, error) {
		time.Sleep(20 * time.Millisecond) // so that there is something to see in the timeline
		return result, nil
	}, tool.Options{ReadOnly: true, Parallel: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t *testing.T, name, result string) tool.Tool {
	t.Helper()
	f, err := tool.New(name, "Writes.", func(context.Context, map[string]string) (string, error) { return result, nil }, tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// newAgent makes an agent that saves to the session of the context.
func newAgent(t *testing.T, tools []tool.Tool, turns ...scripted.Turn) *agent.Agent {
	t.Helper()
	a, err := agent.New(agent.Config{Model: scripted.New(turns...), Toolkit: toolkit.Of(tools...), Save: session.Save,
		Policy: permission.Policy{TrustReadOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// converse runs an agent on a message, in a session.
func converse(t *testing.T, store session.Store, id string, a *agent.Agent, labels map[string]string, said string) {
	t.Helper()
	s, err := session.Open(t.Context(), store, id)
	if err != nil {
		t.Fatal(err)
	}
	s.Labels = labels
	for _, err := range a.Run(s.Context(t.Context()), s.State, agent.Say(said)) {
		if err != nil {
			t.Log(err) // the session has it, too
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// resume returns a function for inspect.Options.Resume.
func resume(store session.Store, a *agent.Agent) func(context.Context, string, inspect.Variant) error {
	return func(ctx context.Context, id string, _ inspect.Variant) error {
		s, err := session.Open(ctx, store, id)
		if err != nil {
			return err
		}
		defer s.Close()
		for _, err := range s.Run(ctx, a) {
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// stored returns a session as one record with all its events.
func stored(t *testing.T, store session.Store, id string) session.Record {
	t.Helper()
	st, in, err := session.Read(t.Context(), store, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	data, err := st.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	rec := session.Record{Seq: 1, Whole: true, Data: data, Status: in.Status, Labels: in.Labels}
	for ev, err := range store.(session.Watcher).Watch(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Events = append(rec.Events, ev); ev.Seq == in.Event {
			break
		}
	}
	return rec
}

// replaced returns data with a text in place of another, both as they are within a JSON string.
func replaced(t *testing.T, data json.RawMessage, old, text string) json.RawMessage {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return json.RawMessage(strings.ReplaceAll(string(data), old, string(quoted[1:len(quoted)-1])))
}

// put stores records as a session.
func put(t *testing.T, store session.Store, id string, recs ...session.Record) {
	t.Helper()
	log, err := store.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		if err := log.Append(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
