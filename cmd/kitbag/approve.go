package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
)

// The answers to a question about a call.
const (
	answerOnce    = "y"
	answerSession = "s"
	answerProject = "p"
	answerEdit    = "e"
	answerNo      = "n"
)

// ask asks the user for approval of a call and returns the decision.
func (p *prompt) ask(ctx context.Context, q *event.Approval) (event.Confirm, error) {
	p.discardTyped()
	rules := q.Suggest
	for {
		answer, rest, err := p.choose(ctx, rules)
		if err != nil {
			return event.Confirm{}, err
		}
		switch answer {
		case answerOnce:
			return q.Allow(), nil
		case answerSession:
			return q.Allow(rules...), nil
		case answerProject:
			if err := p.keepRules(ctx, rules); err != nil {
				fmt.Fprintf(p.out, "  ! %s\n", indented(err.Error()))
				continue
			}
			return q.Allow(rules...), nil
		case answerEdit:
			if rules, err = p.editRules(ctx, q, rules); err != nil {
				return event.Confirm{}, err
			}
		case answerNo:
			if rest == "" && p.screen != nil {
				if rest, err = p.line(ctx, "  no, because (Enter for no reason):"); err != nil {
					return event.Confirm{}, err
				}
			}
			return q.Deny(rest), nil
		}
	}
}

// choose asks for one of the answers. rest is the text after the answer on its line.
func (p *prompt) choose(ctx context.Context, rules []permission.Rule) (answer, rest string, err error) {
	keys := answerOnce + answerNo
	choices := []string{"[y]es, once"}
	if len(rules) > 0 {
		keys += answerSession + answerEdit
		choices = append(choices, "this [s]ession")
		if p.keepRules != nil {
			keys += answerProject
			choices = append(choices, "this [p]roject")
		}
		choices = append(choices, "[e]dit the rule")
	}
	question := "  " + strings.Join(append(choices, "[n]o: "), " / ")
	if len(rules) > 0 {
		question = strings.Join(rows("  rule for this session or project: "+ruleList(rules)), "\n    ") + "\n" + question
	}
	if p.screen != nil {
		answer, err = p.screen.Key(ctx, question, keys)
		return answer, "", err
	}
	// An empty line is not an answer, so that pressing Enter too early allows nothing.
	for {
		line, err := p.read(ctx, question)
		if err != nil {
			return "", "", err
		}
		word, rest, _ := strings.Cut(line, " ")
		for _, full := range []string{"yes", "session", "project", "edit", "no"} {
			if word = strings.ToLower(word); (word == full || word == full[:1]) && strings.Contains(keys, full[:1]) {
				return full[:1], strings.TrimSpace(rest), nil
			}
		}
		fmt.Fprintln(p.out, "  answer y or n; words after n are passed to the model as the reason")
	}
}

func ruleList(rules []permission.Rule) string {
	var out []string
	for _, r := range rules {
		out = append(out, r.String())
	}
	return plainLine(strings.Join(out, ", "))
}

// editRules lets the user change the suggested rules. They must still allow the call.
func (p *prompt) editRules(ctx context.Context, q *event.Approval, rules []permission.Rule) ([]permission.Rule, error) {
	var texts []string
	for _, r := range rules {
		texts = append(texts, r.String())
	}
	for {
		for i, text := range texts {
			var err error
			if texts[i], err = p.lineWith(ctx, "  allow:", text); err != nil {
				return nil, err
			}
		}
		edited, err := parseAllowed(q, texts)
		if err == nil {
			return edited, nil
		}
		fmt.Fprintf(p.out, "  ! %s\n", indented(err.Error()))
	}
}

// parseAllowed parses rules, which together must allow the call: a rule that does not is probably a mistake.
func parseAllowed(q *event.Approval, texts []string) (rules []permission.Rule, err error) {
	for _, text := range texts {
		r, err := permission.ParseRule(text, permission.Allow)
		if err != nil {
			return nil, err
		}
		r.Source = "edited"
		rules = append(rules, r)
		if !r.Names(q.Name) {
			return nil, fmt.Errorf("%s is not about %s; keep the name of the tool", r, shorten(q.Name, maxName))
		}
	}
	cwd, err := currentDir()
	if err != nil {
		return nil, err
	}
	d := permission.Decide(&permission.Policy{Rules: rules, Dirs: []string{cwd}}, new(builtins).call(q.Name, q.Input, cwd))
	if d.Behavior != permission.Allow {
		return nil, fmt.Errorf("%s does not allow this call: %s; write a rule that matches it", ruleList(rules), d.Reason)
	}
	return rules, nil
}

// lineWith asks for a line of text. Its default is text.
func (p *prompt) lineWith(ctx context.Context, question, text string) (string, error) {
	if p.screen != nil {
		return p.screen.Line(ctx, question, text)
	}
	got, err := p.read(ctx, fmt.Sprintf("%s [%s] ", question, plainLine(text)))
	if got == "" {
		got = text
	}
	return got, err
}
