package session_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestForkBefore forks a session before a message, to edit the message or to get another answer.
func TestForkBefore(t *testing.T) {
	dir, err := session.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range []session.Store{session.Memory(), dir} {
		a, err := agent.New(agent.Config{Model: scripted.New(scripted.Say("one"), scripted.Say("two"), scripted.Repeat(scripted.Say("other"))), Toolkit: toolkit.Of(), Save: session.Save})
		if err != nil {
			t.Fatal(err)
		}
		run := func(id string, inputs ...agent.Input) (texts string) {
			t.Helper()
			s, err := session.Open(t.Context(), store, id)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := a.Reply(s.Context(context.Background()), s.State, inputs...); err != nil {
				t.Fatal(err)
			}
			for _, m := range s.State.Messages {
				texts += m.Text() + " "
			}
			return texts
		}
		run("s", agent.Say("first"))
		run("s", agent.Say("second"))
		st, _, err := session.Read(t.Context(), store, "s", 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range []struct {
			to     string
			inputs []agent.Input
			want   string
		}{
			{"edit-first", []agent.Input{agent.Say("edited")}, "edited other "},
			{"again-first", nil, "first other "},
			{"edit-second", []agent.Input{agent.Say("edited")}, "first one edited other "},
			{"again-second", nil, "first one second other "},
		} {
			if err := session.ForkBefore(t.Context(), store, "s", row.to, st.Messages[i].ID); err != nil {
				t.Fatal(err)
			}
			if got := run(row.to, row.inputs...); got != row.want {
				t.Errorf("%T: %s is %q, want %q", store, row.to, got, row.want)
			}
		}
		for id, want := range map[string]string{"s": "msg_none", "none": "none"} {
			if err := session.ForkBefore(t.Context(), store, id, "x", "msg_none"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want) {
				t.Errorf("%T: %v", store, err)
			}
		}
	}
}
