package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/tool/host"
)

// elicit asks the user a server's question. Every line of the server's text is marked, so that it cannot
// imitate a line of kitbag.
func (p *prompt) elicit(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	fields, question := p.showElicitation(q)
	ok, err := p.askYesNo(ctx, question)
	if err != nil || !ok {
		return host.Answer{Action: host.ActionDecline}, err
	}
	for {
		content, err := p.askFields(ctx, fields)
		if err != nil {
			return host.Answer{}, err
		}
		answer, err := q.Accept(content)
		if err != nil { // ask all fields again: two answers may contradict each other
			fmt.Fprintf(p.out, "  this answer is not valid: %s\n", indented(err.Error()))
			continue
		}
		if len(fields) == 0 { // the yes was the answer
			return answer, nil
		}
		for _, f := range fields {
			if v, given := answer.Content[f.name]; given {
				fmt.Fprintf(p.out, "  %s = %s\n", plainLine(f.name), plainLine(fmt.Sprint(v))) // typed, or the server's default
			}
		}
		p.discardTyped()
		ok, err := p.askYesNo(ctx, fmt.Sprintf("  Send this to %q? [y]es / [n]o: ", q.Server))
		if err != nil || !ok {
			return host.Answer{Action: host.ActionDecline}, err
		}
		return answer, nil
	}
}

// showElicitation shows the question. It returns the form's fields, and the yes-or-no question to ask before them.
func (p *prompt) showElicitation(q host.Elicitation) (fields []formField, question string) {
	p.discardTyped()
	if q.Server == "" { // kitbag itself asks; no server's question can look like this
		fmt.Fprintf(p.out, "? %s\n", strings.ReplaceAll(plain(q.Message), "\n", "\n    "))
	} else {
		fmt.Fprintf(p.out, "? the MCP server %q asks:\n    | %s\n", q.Server, strings.ReplaceAll(plain(q.Message), "\n", "\n    | "))
	}
	for _, w := range q.Warnings() {
		fmt.Fprintf(p.out, "  ! %s\n", plainLine(w))
	}
	if q.URL != "" {
		fmt.Fprintf(p.out, "  You are asked to visit a page at %s:\n    %s\n  kitbag does not open it. ", plainLine(q.Site()), plainLine(q.URL))
		return nil, "Visit it? [y]es / [n]o: "
	}
	if fields = formFields(q.Schema); len(fields) > 0 {
		return fields, fmt.Sprintf("  Fill in a form of %d fields? [y]es / [n]o: ", len(fields))
	}
	return nil, "  [y]es / [n]o: "
}

// askYesNo asks until the user answers. An empty line is not an answer, as it may be typed by habit.
func (p *prompt) askYesNo(ctx context.Context, question string) (bool, error) {
	for {
		line, err := p.readTrimmed(ctx, question)
		if err != nil {
			return false, err
		}
		switch strings.ToLower(line) {
		case "y", "yes":
			return true, nil
		case "n", "no":
			return false, nil
		}
		question = "  answer y or n: "
	}
}

// A formField is a field of a form, for input at a terminal.
type formField struct {
	name     string
	required bool

	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Default     any      `json:"default"`
	Enum        []string `json:"enum"`
	OneOf       []choice `json:"oneOf"`
	Items       struct {
		Enum  []string `json:"enum"`
		AnyOf []choice `json:"anyOf"`
	} `json:"items"`
}

// A choice is a value with its title for the user.
type choice struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// formFields reads the fields of a form. Required fields come first, so that the user can skip the rest.
func formFields(schema json.RawMessage) []formField {
	var s struct {
		Properties map[string]formField `json:"properties"`
		Required   []string             `json:"required"`
	}
	_ = json.Unmarshal(schema, &s) // the host has validated the schema
	var fields []formField
	for _, required := range []bool{true, false} {
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if f := s.Properties[name]; slices.Contains(s.Required, name) == required {
				f.name, f.required = name, required
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// question returns the name of the field with what can be typed, and in brackets what an empty line means.
func (f *formField) question() string {
	question := "  " + plainLine(f.name)
	if f.Title != "" && f.Title != f.name {
		question += " (" + shorten(f.Title, maxName) + ")"
	}
	if f.Description != "" {
		question += ", " + shorten(f.Description, 2*maxName)
	}
	choices := slices.Concat(f.Enum, f.Items.Enum)
	for _, c := range slices.Concat(f.OneOf, f.Items.AnyOf) {
		if c.Title != "" && c.Title != c.Const {
			c.Const += " (" + c.Title + ")"
		}
		choices = append(choices, c.Const)
	}
	list := shorten(strings.Join(choices, ", "), 5*maxName)
	switch {
	case f.Type == "array":
		question += ", any of " + list + ", separated by commas"
	case len(choices) > 0:
		question += ", one of " + list
	case f.Type == "boolean":
		question += ", y or n"
	case f.Type != "string":
		question += ", " + plainLine(f.Type)
	}
	switch {
	case f.Default != nil:
		question += fmt.Sprintf(" [%s]", shorten(fmt.Sprint(f.Default), maxName))
	case !f.required:
		question += " [skip]"
	}
	return question + ": "
}

// value converts the typed text to the field's type. Text that does not fit stays text, which the form's check
// then rejects with the reason.
func (f *formField) value(typed string) any {
	switch f.Type {
	case "integer", "number":
		if json.Valid([]byte(typed)) && strings.Trim(typed, "+-0123456789.eE") == "" { // JSON, and a number
			return json.Number(typed) // with all digits, unlike a float64
		}
	case "boolean":
		switch strings.ToLower(typed) {
		case "y", "yes", "true":
			return true
		case "n", "no", "false":
			return false
		}
	case "array": // of choices; a choice with a comma cannot be typed
		list := []any{}
		for s := range strings.SplitSeq(typed, ",") {
			list = append(list, strings.TrimSpace(s))
		}
		return list
	}
	return typed
}

// askFields asks for the fields, one after the other. An empty line skips a field.
func (p *prompt) askFields(ctx context.Context, fields []formField) (map[string]any, error) {
	content := map[string]any{}
	for _, f := range fields {
		typed, err := p.readTrimmed(ctx, f.question())
		if err != nil {
			return nil, err
		}
		if typed != "" {
			content[f.name] = f.value(typed)
		}
	}
	return content, nil
}
