package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/kitbag-go/kitbag/permission"
)

// A question is a line that explain --json reads. It has everything that the answer depends on. Its format must not
// change, since other programs write it.
type question struct {
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
	Mode  string          `json:"mode"` // as in settings files; "" is the default mode
	Rules []struct {
		Tool string `json:"tool"` // a name or a pattern of names
		// Pattern is nil for a rule about every call of the tool.
		Pattern  *string             `json:"pattern"`
		Behavior permission.Behavior `json:"behavior"`
	} `json:"rules"`

	// Dirs are the working directories, and Cwd is the base of relative paths. They need not exist, since nothing is run.
	Dirs []string `json:"dirs"`
	Cwd  string   `json:"cwd"`

	// TrustReadOnly allows calls of tools that claim to be read-only, without proof.
	TrustReadOnly bool `json:"trust_read_only"`
}

// An explanation is a line that explain --json writes. Every member is present; lists are empty, not null.
type explanation struct {
	Behavior permission.Behavior `json:"behavior"`
	Safety   bool                `json:"safety"`    // no allow rule can avoid the question
	ReadOnly bool                `json:"read_only"` // proved, or claimed by the tool; see permission.Call
	Reason   string              `json:"reason"`
	Rule     *string             `json:"rule"`    // the rule that decided, or null
	Suggest  []string            `json:"suggest"` // rules that would have avoided the question
	Commands []command           `json:"commands"`
}

// A command is a simple command of a shell command, with its effects.
type command struct {
	Argv    []string `json:"argv"`
	Effects []string `json:"effects"`
}

// explainLines writes a decision for each line. It flushes whenever it has read all available input, since a program may
// wait for each answer.
func explainLines(in io.Reader, out io.Writer) error {
	tools := new(builtins)
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	r := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if len(line) == 0 && err == io.EOF {
			return w.Flush()
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if strings.TrimSpace(string(line)) == "" {
			continue
		}
		var q question
		e := explanation{Behavior: permission.Deny, Suggest: []string{}, Commands: []command{}}
		if err := json.Unmarshal(line, &q); err != nil {
			e.Reason = fmt.Sprintf("line %d cannot be read: %v", n, err)
		} else {
			e = q.explain(tools)
		}
		if err := enc.Encode(e); err != nil {
			return err
		}
		if r.Buffered() > 0 {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

// explain decides the call of the line. Invalid parts make the decision stricter instead of failing, so that there is a
// decision for each line.
func (q *question) explain(tools *builtins) explanation {
	p := &permission.Policy{Dirs: q.Dirs, TrustReadOnly: q.TrustReadOnly, Mode: permission.Mode(q.Mode)} // an unknown mode denies
	if m, err := permission.ParseMode(q.Mode); err == nil {
		p.Mode = m
	}
	for _, r := range q.Rules {
		rule := permission.Rule{Tool: r.Tool, Behavior: r.Behavior}
		if r.Pattern != nil {
			if rule.Pattern = *r.Pattern; rule.Pattern == "" {
				rule.Pattern = " " // an invalid pattern, not a rule for every call
			}
		}
		p.Rules = append(p.Rules, rule)
	}
	d := permission.Explain(p, tools.call(q.Tool, q.Input, q.Cwd))
	e := explanation{Behavior: d.Behavior, Safety: d.Safety, ReadOnly: d.ReadOnly, Reason: d.Reason, Suggest: []string{}, Commands: []command{}}
	if d.Rule != nil {
		text := d.Rule.String()
		e.Rule = &text
	}
	for _, r := range d.Suggest {
		e.Suggest = append(e.Suggest, r.String())
	}
	for _, part := range d.Parts {
		e.Commands = append(e.Commands, command{part.Argv, part.Effects})
	}
	return e
}
