package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/message"
)

// toolResult formats the result of a call: of a file that was read only the size, and tasks as a checklist.
func (p *painter) toolResult(ev *event.ToolResult) string {
	name := shorten(ev.Name, maxName)
	if ev.Outcome == message.OutcomeSuccess {
		switch ev.Name {
		case "Read":
			return p.paint(green, "✓ Read") + p.paint(dim, " "+countLines(ev.Text))
		case "TaskCreate", "TaskUpdate":
			if line := p.taskChange(ev.Text); line != "" {
				return line
			}
		case "TaskList":
			if list := checklist(ev.Text); list != "" {
				return p.paint(green, "✓ TaskList") + list
			}
		}
	}
	return p.result(name, ev.Outcome, ev.Text)
}

func countLines(text string) string {
	n := strings.Count(strings.TrimRight(text, "\n"), "\n") + 1
	if n == 1 {
		return "1 line"
	}
	return fmt.Sprintf("%d lines", n)
}

// taskMarks are the marks of the statuses of a task in a checklist.
var taskMarks = map[string]string{"pending": "☐", "in_progress": "◐", "completed": "☑"}

// taskCall reports whether a call changes one task, and remembers the task's subject.
func (p *painter) taskCall(ev *event.ToolCall) bool {
	if ev.Name != "TaskCreate" && ev.Name != "TaskUpdate" {
		return false
	}
	var in struct {
		ID      string `json:"task_id"`
		Subject string `json:"subject"`
	}
	if json.Unmarshal(ev.Input, &in) == nil && in.ID != "" && in.Subject != "" {
		p.nameTask(in.ID, in.Subject)
	}
	return true
}

func (p *painter) nameTask(id, subject string) {
	if p.tasks == nil {
		p.tasks = map[string]string{}
	}
	p.tasks[id] = subject
}

// createdTask and updatedTask match the results of TaskCreate and TaskUpdate.
var (
	createdTask = lazy.Regexp(`^Created task (\d+): (.*)`)
	updatedTask = lazy.Regexp(`^Updated task (\d+): .*status (pending|in_progress|completed)`)
)

// taskChange formats the result of a call that changed a task as a line of a checklist; "" if it is not one.
func (p *painter) taskChange(text string) string {
	if m := createdTask().FindStringSubmatch(text); m != nil {
		p.nameTask(m[1], m[2])
		return "  " + taskMarks["pending"] + " " + shorten(m[1]+" "+m[2], maxArguments)
	}
	if m := updatedTask().FindStringSubmatch(text); m != nil {
		return "  " + taskMarks[m[2]] + " " + shorten(m[1]+" "+p.tasks[m[1]], maxArguments)
	}
	return ""
}

// listedTask matches a line of TaskList.
var listedTask = lazy.Regexp(`^(\d+) \[(pending|in_progress|completed)\] (.*)`)

// checklist formats the result of TaskList, with a line break before each task; "" if it has none.
func checklist(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if m := listedTask().FindStringSubmatch(line); m != nil {
			b.WriteString("\n  " + taskMarks[m[2]] + " " + shorten(m[1]+" "+m[3], maxArguments))
		}
	}
	return b.String()
}
