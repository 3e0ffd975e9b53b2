package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/permission"
)

// A callLine is a line that explain --json reads. The decision depends on nothing else. The format must not change, since
// other programs write it.
type callLine struct {
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

// A decisionLine is a line that explain --json writes. Every member is present; lists are empty, not null.
type decisionLine struct {
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

// explainLines writes a decision for each line.
func explainLines(in io.Reader, out io.Writer) error {
	tools := new(builtins)
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	r := bufio.NewReader(in)
	for n := 1; ; n++ {
		if r.Buffered() == 0 { // the program that writes the lines may wait for the decisions
			if err := w.Flush(); err != nil {
				return err
			}
		}
		line, err := r.ReadBytes('\n')
		if len(line) == 0 && err == io.EOF {
			return nil
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if strings.TrimSpace(string(line)) == "" {
			continue
		}
		d := decisionLine{Behavior: permission.Deny, Suggest: []string{}, Commands: []command{}}
		if c, err := readCallLine(line); err != nil {
			d.Reason = fmt.Sprintf("line %d cannot be read: %v; kitbag permission explain --help shows a line", n, err)
		} else {
			d = c.explain(tools)
		}
		if err := enc.Encode(d); err != nil {
			return err
		}
	}
}

// readCallLine reads a line. An unknown or a second key is an error: an allow rule whose pattern has a wrong key would
// allow every call of the tool, and a deny rule below a wrong key would not count.
func readCallLine(line []byte) (*callLine, error) {
	c := new(callLine)
	if err := cmp.Or(strictjson.Members(line), json.Unmarshal(line, new(callLine))); err != nil { // also of a second value
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(c); err != nil {
		return nil, err
	}
	if c.Tool == "" {
		return nil, errors.New(`"tool" is missing`)
	}
	return c, nil
}

// explain decides the call. Invalid parts make the decision stricter instead of failing, so that each line has a decision.
func (c *callLine) explain(tools *builtins) decisionLine {
	p := &permission.Policy{Dirs: c.Dirs, TrustReadOnly: c.TrustReadOnly, Mode: permission.Mode(c.Mode)} // an unknown mode denies
	if m, err := permission.ParseMode(c.Mode); err == nil {
		p.Mode = m
	}
	for _, r := range c.Rules {
		rule := permission.Rule{Tool: r.Tool, Behavior: r.Behavior}
		if r.Pattern != nil {
			if rule.Pattern = *r.Pattern; rule.Pattern == "" {
				rule.Pattern = " " // an invalid pattern, not a rule for every call
			}
		}
		p.Rules = append(p.Rules, rule)
	}
	e := permission.Explain(p, tools.describe(c.Tool, c.Input, c.Cwd))
	d := decisionLine{Behavior: e.Behavior, Safety: e.Safety, ReadOnly: e.ReadOnly, Reason: e.Reason, Suggest: []string{}, Commands: []command{}}
	if e.Rule != nil {
		text := e.Rule.String()
		d.Rule = &text
	}
	d.Suggest = append(d.Suggest, ruleTexts(e.Suggest)...)
	for _, part := range e.Parts {
		d.Commands = append(d.Commands, command{part.Argv, part.Effects})
	}
	return d
}
