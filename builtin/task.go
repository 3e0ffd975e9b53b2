package builtin

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

var (
	//go:embed text/task_create.md
	taskCreateText string
	//go:embed text/task_get.md
	taskGetText string
	//go:embed text/task_list.md
	taskListText string
	//go:embed text/task_update.md
	taskUpdateText string
)

// A TaskStatus is the progress of a task.
type TaskStatus string

// The statuses.
const (
	TaskPending    TaskStatus = "pending"
	TaskInProgress TaskStatus = "in_progress"
	TaskCompleted  TaskStatus = "completed"
)

// A Task is an entry of the task list of a session.
type Task struct {
	ID          string                     `json:"id"` // "1", "2", …; never reused
	Subject     string                     `json:"subject"`
	Description string                     `json:"description"`
	Status      TaskStatus                 `json:"state"`
	Owner       string                     `json:"owner,omitempty"`
	Blocks      []string                   `json:"blocks,omitempty"`     // ids of tasks that wait for this one
	BlockedBy   []string                   `json:"blocked_by,omitempty"` // ids of tasks that this one waits for
	Metadata    map[string]json.RawMessage `json:"metadata,omitempty"`
}

// A taskList is the task list in a session's state.
type taskList struct {
	Last  int     `json:"last"` // the last id that was assigned
	Tasks []*Task `json:"tasks"`
}

var taskKey = toolstate.NewKey[taskList]("tasks")

// Tasks returns a copy of the task list of the session that ctx carries, in the order of creation. It fails if
// ctx has no [toolstate.State].
func Tasks(ctx context.Context) ([]Task, error) {
	var all []Task
	err := taskKey.Update(ctx, func(l *taskList) error {
		for _, t := range l.Tasks {
			clone := *t
			clone.Blocks, clone.BlockedBy = slices.Clone(t.Blocks), slices.Clone(t.BlockedBy)
			clone.Metadata = mergeMetadata(nil, t.Metadata)
			all = append(all, clone)
		}
		return nil
	})
	return all, err
}

type taskCreateIn struct {
	Subject     string                     `json:"subject" jsonschema:"minLength=1" jsonschema_description:"the task in a few words"`
	Description string                     `json:"description" jsonschema_description:"what to do, and how to check that it is done"`
	Metadata    map[string]json.RawMessage `json:"metadata,omitempty" jsonschema_description:"anything to remember with the task"`
}

// TaskCreate returns the tool that adds a task to the list.
func TaskCreate(Config) (tool.Tool, error) {
	return taskTool("TaskCreate", taskCreateText, func(l *taskList, in taskCreateIn) (string, error) {
		l.Last++
		t := &Task{ID: strconv.Itoa(l.Last), Subject: in.Subject, Description: in.Description,
			Status: TaskPending, Metadata: mergeMetadata(nil, in.Metadata)}
		l.Tasks = append(l.Tasks, t)
		return fmt.Sprintf("Created task %s: %s", t.ID, t.Subject), nil
	})
}

type taskGetIn struct {
	ID string `json:"task_id" jsonschema:"minLength=1" jsonschema_description:"id of the task"`
}

// TaskGet returns the tool that shows one task.
func TaskGet(Config) (tool.Tool, error) {
	return taskTool("TaskGet", taskGetText, func(l *taskList, in taskGetIn) (string, error) {
		t, err := l.find(in.ID)
		if err != nil {
			return "", err
		}
		var b strings.Builder
		fmt.Fprintf(&b, "Task %s: %s\nStatus: %s\nDescription: %s", t.ID, t.Subject, t.Status, t.Description)
		for _, line := range []struct{ name, value string }{
			{"Owner", t.Owner},
			{"Blocked by", strings.Join(l.openOnly(t.BlockedBy), ", ")},
			{"Blocks", strings.Join(t.Blocks, ", ")},
		} {
			if line.value != "" {
				fmt.Fprintf(&b, "\n%s: %s", line.name, line.value)
			}
		}
		if len(t.Metadata) > 0 {
			fmt.Fprintf(&b, "\nMetadata: %s", encode(t.Metadata))
		}
		return b.String(), nil
	})
}

// TaskList returns the tool that lists the tasks. The tool is also a [tool.Reminder], so that the model still knows
// open tasks after compaction.
func TaskList(Config) (tool.Tool, error) {
	t, err := taskTool("TaskList", taskListText, func(l *taskList, _ struct{}) (string, error) {
		if len(l.Tasks) == 0 {
			return "There are no tasks; add one with TaskCreate.", nil
		}
		return l.lines(func(*Task) bool { return true }), nil
	})
	return openTasks{t}, err
}

// openTasks implements [tool.Reminder].
type openTasks struct{ tool.Tool }

func (o openTasks) Unwrap() tool.Tool { return o.Tool }

// Remind lists the tasks that are not completed; "" if there are none.
func (openTasks) Remind(ctx context.Context) (text string) {
	err := taskKey.Update(ctx, func(l *taskList) error {
		text = l.lines(func(t *Task) bool { return t.Status != TaskCompleted })
		return nil
	})
	if err != nil || text == "" {
		return "" // without a readable state there is nothing to list
	}
	return "Open tasks:\n" + text
}

// lines returns a line for each task that show selects.
func (l *taskList) lines(show func(*Task) bool) string {
	var b strings.Builder
	for _, t := range l.Tasks {
		if !show(t) {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s [%s] %s", t.ID, t.Status, t.Subject)
		if t.Owner != "" {
			fmt.Fprintf(&b, " (%s)", t.Owner)
		}
		if open := l.openOnly(t.BlockedBy); len(open) > 0 {
			fmt.Fprintf(&b, " [blocked by %s]", strings.Join(open, ", "))
		}
	}
	return b.String()
}

type taskUpdateIn struct {
	ID           string                     `json:"task_id" jsonschema:"minLength=1" jsonschema_description:"id of the task"`
	Subject      string                     `json:"subject,omitempty" jsonschema_description:"new subject"`
	Description  *string                    `json:"description,omitempty" jsonschema_description:"new description"`
	Status       string                     `json:"status,omitempty" jsonschema:"enum=pending,enum=in_progress,enum=completed,enum=deleted" jsonschema_description:"new status"`
	AddBlocks    []string                   `json:"add_blocks,omitempty" jsonschema_description:"ids of tasks that can begin only after this one"`
	AddBlockedBy []string                   `json:"add_blocked_by,omitempty" jsonschema_description:"ids of tasks that must be done before this one"`
	Owner        *string                    `json:"owner,omitempty" jsonschema_description:"who works on it; empty for no one"`
	Metadata     map[string]json.RawMessage `json:"metadata,omitempty" jsonschema_description:"keys to set; null removes a key"`
}

// TaskUpdate returns the tool that changes and removes tasks.
func TaskUpdate(Config) (tool.Tool, error) {
	return taskTool("TaskUpdate", taskUpdateText, func(l *taskList, in taskUpdateIn) (string, error) {
		t, err := l.find(in.ID)
		if err != nil {
			return "", err
		}
		if in.Status == "deleted" {
			l.remove(t)
			return fmt.Sprintf("Deleted task %s.", t.ID), nil
		}
		// Only link can fail; it comes first, so that an error changes nothing.
		linked, unknown, err := l.link(t, in.AddBlocks, in.AddBlockedBy)
		if err != nil {
			return "", err
		}
		changed := t.update(in)
		if linked {
			changed = append(changed, "dependencies")
		}
		answer := fmt.Sprintf("Task %s: nothing changed.", t.ID)
		if len(changed) > 0 {
			answer = fmt.Sprintf("Updated task %s: %s.", t.ID, strings.Join(changed, ", "))
		}
		if len(unknown) > 0 {
			answer += fmt.Sprintf(" Unknown tasks: %s; TaskList shows the ids.", strings.Join(unknown, ", "))
		}
		if in.Status == string(TaskCompleted) {
			answer += " TaskList shows what to do next."
		}
		return answer, nil
	})
}

// update sets the fields, except dependencies, for which in has a value, and returns the names of those that changed.
func (t *Task) update(in taskUpdateIn) (changed []string) {
	if in.Subject != "" && in.Subject != t.Subject {
		t.Subject = in.Subject
		changed = append(changed, "subject")
	}
	if in.Description != nil && *in.Description != t.Description {
		t.Description = *in.Description
		changed = append(changed, "description")
	}
	if in.Status != "" && TaskStatus(in.Status) != t.Status {
		t.Status = TaskStatus(in.Status)
		changed = append(changed, "status "+in.Status)
	}
	if in.Owner != nil && *in.Owner != t.Owner {
		t.Owner = *in.Owner
		changed = append(changed, "owner")
	}
	if len(in.Metadata) > 0 {
		t.Metadata = mergeMetadata(t.Metadata, in.Metadata)
		changed = append(changed, "metadata")
	}
	return changed
}

// mergeMetadata returns old with the keys of add set, or removed if their value is null. It changes neither map.
func mergeMetadata(old, add map[string]json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	maps.Copy(all, old)
	for k, v := range add {
		if string(v) == "null" {
			delete(all, k)
		} else {
			all[k] = slices.Clone(v)
		}
	}
	return all
}

// taskTool makes a tool of a function on the session's list. If fn fails, it must not have changed the list.
func taskTool[In any](name, text string, fn func(*taskList, In) (answer string, err error)) (tool.Tool, error) {
	return tool.New(name, text, func(ctx context.Context, in In) (answer string, err error) {
		err = taskKey.Update(ctx, func(l *taskList) error {
			answer, err = fn(l, in)
			return err
		})
		return answer, err
	}, tool.Options{Control: true})
}

func (l *taskList) find(id string) (*Task, error) {
	for _, t := range l.Tasks {
		if t.ID == id {
			return t, nil
		}
	}
	return nil, fmt.Errorf("task %q does not exist; TaskList shows the ids", id)
}

// openOnly returns the ids whose tasks exist and are not completed.
func (l *taskList) openOnly(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		t, err := l.find(id)
		return err != nil || t.Status == TaskCompleted
	})
}

func (l *taskList) remove(removed *Task) {
	isRemoved := func(id string) bool { return id == removed.ID }
	l.Tasks = slices.DeleteFunc(l.Tasks, func(t *Task) bool { return t == removed })
	for _, t := range l.Tasks {
		t.Blocks = slices.DeleteFunc(t.Blocks, isRemoved)
		t.BlockedBy = slices.DeleteFunc(t.BlockedBy, isRemoved)
	}
}

// link makes t block, and wait for, the tasks with these ids. It skips and returns ids of unknown tasks. If tasks would
// wait for each other, it fails and changes nothing.
func (l *taskList) link(t *Task, blocks, blockedBy []string) (changed bool, unknown []string, err error) {
	type pair struct{ first, then *Task }
	var pairs []pair
	for i, id := range slices.Concat(blocks, blockedBy) {
		other, err := l.find(id)
		switch {
		case err != nil:
			unknown = append(unknown, id)
		case i < len(blocks):
			pairs = append(pairs, pair{t, other})
		default:
			pairs = append(pairs, pair{other, t})
		}
	}
	var added []pair
	for _, p := range pairs {
		if slices.Contains(p.first.Blocks, p.then.ID) {
			continue
		}
		if l.waits(p.first, p.then) {
			for _, a := range added { // undo
				a.first.Blocks = a.first.Blocks[:len(a.first.Blocks)-1]
				a.then.BlockedBy = a.then.BlockedBy[:len(a.then.BlockedBy)-1]
			}
			return false, nil, fmt.Errorf("task %s cannot wait for task %s, which waits for it; nothing was changed: keep that order, or delete one of them",
				p.then.ID, p.first.ID)
		}
		p.first.Blocks = append(p.first.Blocks, p.then.ID)
		p.then.BlockedBy = append(p.then.BlockedBy, p.first.ID)
		added = append(added, p)
	}
	return len(added) > 0, unknown, nil
}

// waits reports whether t waits for target, directly or indirectly, or is target.
func (l *taskList) waits(t, target *Task) bool {
	seen := map[string]bool{}
	for queue := []*Task{t}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == target {
			return true
		}
		for _, id := range queue[0].BlockedBy {
			if next, err := l.find(id); err == nil && !seen[id] {
				seen[id] = true
				queue = append(queue, next)
			}
		}
	}
	return false
}
