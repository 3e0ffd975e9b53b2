package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/message"
)

// toolResult formats the result of a call: for Read only the number of lines, and for the tools about tasks a checklist.
func (p *painter) toolResult(ev *event.ToolResult) string {
	if ev.Outcome == message.OutcomeSuccess {
		switch ev.Name {
		case "Read":
			return p.paint(green, "✓ Read") + p.paint(dim, " "+lineCount(ev.Text))
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
	return p.result(shorten(ev.Name, maxName), ev.Outcome, ev.Text)
}

func lineCount(text string) string {
	n := strings.Count(strings.TrimRight(text, "\n"), "\n") + 1
	if n == 1 {
		return "1 line"
	}
	return fmt.Sprintf("%d lines", n)
}

// taskMarks are the marks in a checklist, by the status of the task.
var taskMarks = map[string]string{"pending": "☐", "in_progress": "◐", "completed": "☑"}

// noteTaskCall reports whether a call changes one task. It stores a new subject, since results of TaskUpdate have none.
func (p *painter) noteTaskCall(ev *event.ToolCall) bool {
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

// These match the results of the built-in tools TaskCreate and TaskUpdate.
var (
	createdTask = lazy.Regexp(`^Created task (\d+): (.*)`)
	updatedTask = lazy.Regexp(`^Updated task (\d+): .*status (pending|in_progress|completed)`)
)

// taskChange formats the result of TaskCreate or TaskUpdate as a line of a checklist; "" without a change of the status.
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

// listedTask matches a line of the result of TaskList.
var listedTask = lazy.Regexp(`^(\d+) \[(pending|in_progress|completed)\] (.*)`)

// checklist formats the result of TaskList, with a line break before each task; "" without tasks.
func checklist(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if m := listedTask().FindStringSubmatch(line); m != nil {
			b.WriteString("\n  " + taskMarks[m[2]] + " " + shorten(m[1]+" "+m[3], maxArguments))
		}
	}
	return b.String()
}
