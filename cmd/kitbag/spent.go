package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
)

// spent is the usage and time of a task so far, without the time in which it waited for answers.
type spent struct {
	price func(model string, u message.Usage) float64 // without a model's name, at the price of the first model; nil if unknown

	steps int
	usage message.Usage
	cost  float64
	time  time.Duration
	since time.Time // the start of the current run
}

// add counts an event of the task.
func (s *spent) add(ev event.Event) {
	switch ev := ev.(type) {
	case *event.RunStart:
		s.since = ev.Time
	case *event.Message:
		if u := ev.Message.Usage; u != nil && s.price != nil {
			s.cost += s.price(ev.Message.Model, *u)
		}
	case *event.Compaction:
		if s.price != nil {
			s.cost += s.price("", ev.Usage)
		}
	case *event.End:
		s.steps = ev.Steps
		s.usage.Add(ev.Usage)
		s.time += ev.Time.Sub(s.since)
	}
}

// String returns one line, such as "3 steps in 14s: 12345 tokens in (8000 cached), 567 out, about $0.0213".
func (s *spent) String() string {
	var b strings.Builder
	steps := "steps"
	if s.steps == 1 {
		steps = "step"
	}
	fmt.Fprintf(&b, "%d %s in %v: %d tokens in", s.steps, steps, s.time.Round(time.Second), s.usage.Input)
	if s.usage.Cached > 0 {
		fmt.Fprintf(&b, " (%d cached)", s.usage.Cached)
	}
	fmt.Fprintf(&b, ", %d out", s.usage.Output)
	if s.price != nil {
		fmt.Fprintf(&b, ", about $%.4f", s.cost)
	}
	return b.String()
}
