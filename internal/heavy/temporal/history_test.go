package temporal_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var update = flag.Bool("update", false, "write the histories in testdata of package temporal")

// history returns the history of a workflow of a session, the newest one if run is empty, once it has ended.
func (h *host) history(t *testing.T, id, run string) *history.History {
	t.Helper()
	_ = h.client.GetWorkflow(t.Context(), h.Queue+"/"+id, run).Get(t.Context(), nil)
	list := &history.History{}
	for it := h.client.GetWorkflowHistory(t.Context(), h.Queue+"/"+id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		ev, err := it.Next()
		if err != nil {
			t.Fatal(err)
		}
		list.Events = append(list.Events, ev)
	}
	return list
}

// advances returns how often an activity has advanced a session.
func advances(list *history.History) (n int) {
	for _, ev := range list.Events {
		if ev.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED {
			n++
		}
	}
	return n
}

var identity = regexp.MustCompile(`"identity": *"[^"]*"`)

// keep writes a history for TestReplay of package temporal, with -update.
func keep(t *testing.T, name string, list *history.History) {
	t.Helper()
	if !*update {
		return
	}
	data, err := protojson.MarshalOptions{Multiline: true}.Marshal(list)
	if err == nil {
		err = os.WriteFile(filepath.Join("../../../agent/temporal/testdata", name+".json"), identity.ReplaceAll(data, []byte(`"identity": "worker"`)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestHistory wakes a session so often that its workflow is continued as new, and then answers it.
func TestHistory(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.WaitFor = time.Hour
	h := newHost(t, p)
	h.work(t, h.agent)
	h.send(t, "a", "one", agent.Say("ask:1"))
	h.ended(t, "a", 1)
	current := func() string {
		d, err := h.client.DescribeWorkflowExecution(t.Context(), p.Queue+"/a", "")
		if err != nil {
			t.Fatal(err)
		}
		return d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	}
	first, wakes := current(), 0
	for ; current() == first; wakes++ {
		if err := h.Wake(t.Context(), "a", "again"); err != nil {
			t.Fatal(err)
		}
	}
	pending, err := h.Pending(t.Context(), "a")
	if err != nil || len(pending) != 1 {
		t.Fatalf("pending %v, %v", pending, err)
	}
	if err := h.Answer(t.Context(), "a", "yes", pending[0].(*event.Approval).Allow()); err != nil {
		t.Error(err)
	}
	h.ended(t, "a", 2)
	list := h.history(t, "a", first)
	t.Logf("after %d wakes the history had %d events", wakes, len(list.Events))
	if len(list.Events) > 2000 {
		t.Errorf("the history had %d events", len(list.Events))
	}
	keep(t, "continued", list)
}

// TestChanged has workers run the same conversations with agents of different instructions and tools, step by step.
func TestChanged(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.Slice = time.Nanosecond
	h, other := newHost(t, p), newHost(t, p)
	h.work(t, h.agent)
	other.work(t, func(_ context.Context, s *session.Session) (*agent.Agent, error) {
		cfg := other.config(s)
		cfg.Instructions = "Be brief."
		extra := tool.Must(tool.New("extra", "Another tool.", func(context.Context, struct{}) (string, error) { return "", nil }))
		cfg.Toolkit = toolkit.Of(append(other.tools(s.State.ID), extra)...)
		return agent.New(cfg)
	})
	const n = 4
	h.each(n, func(id string) { h.send(t, id, "one", agent.Say("pay:1 sleep:50 book:2 sleep:50 pay:3")) })
	h.each(n, func(id string) {
		if end := h.ended(t, id, 1); end.Reason != event.EndCompleted {
			t.Errorf("%s ended with %+v", id, end)
		}
		if got := h.done(t, id); got != "model:0 pay:1 model:1 sleep:50 model:2 book:2 model:3 sleep:50 model:4 pay:3 model:5" {
			t.Errorf("done: %s", got)
		}
		list := h.history(t, id, "")
		if n := advances(list); n < 2 {
			t.Errorf("%s was advanced %d times, not by several workers", id, n)
		}
		for _, ev := range list.Events {
			if ev.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED {
				t.Errorf("%s: %s", id, strings.TrimSpace(ev.String()))
			}
		}
	})
}
