package builtin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"pgregory.net/rapid"
)

func taskTools(t testing.TB) map[string]tool.Tool {
	t.Helper()
	all, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	tools := map[string]tool.Tool{}
	for _, tl := range all {
		tools[tl.Info().Name] = tl
	}
	return tools
}

// TestTaskListStaysSound checks that after any calls ids are new, relations are consistent and acyclic, and the
// list can be saved and loaded.
func TestTaskListStaysSound(t *testing.T) {
	tools := taskTools(t)
	rapid.Check(t, func(t *rapid.T) {
		state := &toolstate.State{}
		last := 0
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			id := func() string { return strconv.Itoa(rapid.IntRange(1, 6).Draw(t, "id")) }
			ctx := toolstate.With(t.Context(), state)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				call(ctx, tools["TaskCreate"], args("subject", "s", "description", "d"))
			case 1:
				call(ctx, tools["TaskUpdate"], args("task_id", id(), "add_blocks", []string{id(), id()}))
			case 2:
				call(ctx, tools["TaskUpdate"], args("task_id", id(), "add_blocked_by", []string{id()}, "status", "completed"))
			case 3:
				call(ctx, tools["TaskUpdate"], args("task_id", id(), "status", "deleted"))
			case 4: // save and load
				raw, err := json.Marshal(state)
				if err != nil {
					t.Fatal(err)
				}
				state = &toolstate.State{}
				if err := json.Unmarshal(raw, state); err != nil {
					t.Fatal(err)
				}
			}
			tasks, err := Tasks(toolstate.With(t.Context(), state))
			if err != nil {
				t.Fatal(err)
			}
			if err := checkTasks(tasks, &last); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// checkTasks checks the invariants of a list; last is the highest id seen so far.
func checkTasks(tasks []Task, last *int) error {
	byID := map[string]Task{}
	for i, t := range tasks {
		n, err := strconv.Atoi(t.ID)
		if err != nil || byID[t.ID].ID != "" {
			return fmt.Errorf("id %q is not a number or is used twice", t.ID)
		}
		if i > 0 && t.ID <= tasks[i-1].ID && len(t.ID) == len(tasks[i-1].ID) {
			return fmt.Errorf("ids out of order: %q", t.ID)
		}
		*last = max(*last, n)
		byID[t.ID] = t
	}
	done := map[string]bool{}
	for range tasks { // remove tasks without open blockers until none is left
		for _, t := range tasks {
			for _, id := range t.Blocks {
				if !slices.Contains(byID[id].BlockedBy, t.ID) {
					return fmt.Errorf("%s blocks %s, which is not blocked by it", t.ID, id)
				}
			}
			if !slices.ContainsFunc(t.BlockedBy, func(id string) bool { return !done[id] }) {
				done[t.ID] = true
			}
		}
	}
	if len(done) != len(tasks) {
		return fmt.Errorf("a cycle in %+v", tasks)
	}
	return nil
}

func TestTaskIDsAreNotReused(t *testing.T) {
	tools := taskTools(t)
	ctx := toolstate.With(t.Context(), &toolstate.State{})
	for _, want := range []string{"1", "2", "3"} {
		call(ctx, tools["TaskCreate"], args("subject", "s", "description", "d"))
		tasks, err := Tasks(ctx)
		if err != nil || len(tasks) != 1 || tasks[0].ID != want {
			t.Fatalf("%+v (%v), want one task with id %s", tasks, err, want)
		}
		call(ctx, tools["TaskUpdate"], args("task_id", want, "status", "deleted"))
	}
}

// TestTaskListShowsOpenBlockers checks that a completed task is not listed as a blocker.
func TestTaskListShowsOpenBlockers(t *testing.T) {
	tools := taskTools(t)
	ctx := toolstate.With(t.Context(), &toolstate.State{})
	call(ctx, tools["TaskCreate"], args("subject", "first", "description", "d"))
	call(ctx, tools["TaskCreate"], args("subject", "then", "description", "d"))
	call(ctx, tools["TaskUpdate"], args("task_id", "1", "add_blocks", []string{"2"}, "owner", "me"))
	want(t, call(ctx, tools["TaskList"], "{}"), "success", "1 [pending] first (me)\n2 [pending] then [blocked by 1]")
	want(t, call(ctx, tools["TaskGet"], args("task_id", "2")), "success", "Blocked by: 1")
	call(ctx, tools["TaskUpdate"], args("task_id", "1", "status", "completed"))
	want(t, call(ctx, tools["TaskList"], "{}"), "success", "1 [completed] first (me)\n2 [pending] then")
}

// TestTaskListReminds checks that the reminder after a compaction lists only open tasks.
func TestTaskListReminds(t *testing.T) {
	tools := taskTools(t)
	remind, ok := tool.As[tool.Reminder](tools["TaskList"])
	if !ok {
		t.Fatal("TaskList has no reminder")
	}
	if got := remind.Remind(t.Context()); got != "" {
		t.Errorf("without a state: %q", got)
	}
	ctx := toolstate.With(t.Context(), new(toolstate.State))
	if got := remind.Remind(ctx); got != "" {
		t.Errorf("without tasks: %q", got)
	}
	for _, subject := range []string{"first", "second", "third"} {
		call(ctx, tools["TaskCreate"], args("subject", subject, "description", "d"))
	}
	call(ctx, tools["TaskUpdate"], args("task_id", "1", "status", "completed"))
	call(ctx, tools["TaskUpdate"], args("task_id", "3", "add_blocked_by", []string{"1", "2"}))
	if got, want := remind.Remind(ctx), "Open tasks:\n2 [pending] second\n3 [pending] third [blocked by 2]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTaskWithoutState(t *testing.T) {
	want(t, call(t.Context(), taskTools(t)["TaskList"], "{}"), "error", "toolstate.State")
}

func TestTaskPermission(t *testing.T) {
	for name, tl := range taskTools(t) {
		if name[:4] != "Task" {
			continue
		}
		for _, mode := range []permission.Mode{permission.ModeDefault, permission.ModeAcceptEdits, permission.ModeExplore, permission.ModeBypass, permission.ModeDontAsk} {
			d := permission.Decide(&permission.Policy{Mode: mode}, tool.PermissionCall(tl, []byte("{}")))
			if d.Behavior != permission.Allow {
				t.Errorf("%s in %s: %+v", name, mode, d)
			}
		}
	}
}
