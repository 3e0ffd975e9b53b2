package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
)

// The keys that answer a question about a call.
const (
	answerOnce    = "y"
	answerSession = "s"
	answerProject = "p"
	answerEdit    = "e"
	answerNo      = "n"
)

// askApproval asks the user for approval of a call, which the caller has shown, and returns the decision.
func (p *prompt) askApproval(ctx context.Context, q *event.Approval) (event.Confirm, error) {
	p.discardTyped()
	rules := q.Suggest
	for {
		answer, reason, err := p.chooseAnswer(ctx, rules)
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
			if reason == "" && p.screen != nil { // a screen has read only the key
				if reason, err = p.readLine(ctx, "  no, because (Enter for no reason):"); err != nil {
					return event.Confirm{}, err
				}
			}
			return q.Deny(reason), nil
		}
	}
}

// chooseAnswer asks for one of the answers. Without a screen a reason may follow the answer on its line.
func (p *prompt) chooseAnswer(ctx context.Context, rules []permission.Rule) (answer, reason string, err error) {
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
		question = strings.Join(breakLines("  rule for this session or project: "+ruleList(rules)), "\n    ") + "\n" + question
	}
	if p.screen != nil {
		answer, err = p.screen.Key(ctx, question, keys)
		return answer, "", err
	}
	// An empty line is not an answer, so that pressing Enter too early allows nothing.
	for {
		line, err := p.readTrimmed(ctx, question)
		if err != nil {
			return "", "", err
		}
		word, reason, _ := strings.Cut(line, " ")
		word = strings.ToLower(word)
		for _, name := range []string{"yes", "session", "project", "edit", "no"} {
			if key := name[:1]; (word == name || word == key) && strings.Contains(keys, key) {
				return key, strings.TrimSpace(reason), nil
			}
		}
		fmt.Fprintln(p.out, "  answer y or n; words after n are passed to the model as the reason")
	}
}

func ruleList(rules []permission.Rule) string { return plainLine(strings.Join(ruleTexts(rules), ", ")) }

func ruleTexts(rules []permission.Rule) (texts []string) {
	for _, r := range rules {
		texts = append(texts, r.String())
	}
	return texts
}

// editRules lets the user change the suggested rules. They must still allow the call.
func (p *prompt) editRules(ctx context.Context, q *event.Approval, rules []permission.Rule) ([]permission.Rule, error) {
	texts := ruleTexts(rules)
	for {
		for i, text := range texts {
			var err error
			if texts[i], err = p.readLineOr(ctx, "  allow:", text); err != nil {
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

// parseAllowed parses edited rules. Rules that do not allow the call are an error, as they are probably a mistake.
func parseAllowed(q *event.Approval, texts []string) (rules []permission.Rule, err error) {
	for _, text := range texts {
		r, err := permission.ParseRule(text, permission.Allow)
		if err != nil {
			return nil, err
		}
		r.Source = "edited"
		rules = append(rules, r)
		if r.Tool != q.Name { // the agent would refuse the answer
			return nil, fmt.Errorf("%s is not only about %s; keep the name of the tool", r, shorten(q.Name, maxName))
		}
	}
	cwd, err := currentDir()
	if err != nil {
		return nil, err
	}
	d := permission.Decide(&permission.Policy{Rules: rules, Dirs: []string{cwd}}, new(builtins).describe(q.Name, q.Input, cwd))
	if d.Behavior != permission.Allow {
		return nil, fmt.Errorf("%s does not allow this call: %s; write a rule that matches it", ruleList(rules), d.Reason)
	}
	return rules, nil
}

// readLineOr asks for a line of text. On a screen the user edits the default; else an empty line means the default.
func (p *prompt) readLineOr(ctx context.Context, question, defaultText string) (string, error) {
	if p.screen != nil {
		return p.screen.Line(ctx, question, defaultText)
	}
	line, err := p.readTrimmed(ctx, fmt.Sprintf("%s [%s] ", question, plainLine(defaultText)))
	return cmp.Or(line, defaultText), err
}

// parseAnswer reads the value of --answer: CALL_ID[.QUESTION]=allow or CALL_ID[.QUESTION]=deny[:reason].
func parseAnswer(s string) (event.Confirm, error) {
	id, reason, ok := strings.Cut(s, "=deny") // before "=allow", which may be the end of a reason
	if ok && id != "" && (reason == "" || reason[0] == ':') {
		call, question := parseQuestion(id)
		return event.Confirm{Call: call, Question: question, Reason: strings.TrimPrefix(reason, ":")}, nil
	}
	if id, ok := strings.CutSuffix(s, "=allow"); ok && id != "" {
		call, question := parseQuestion(id)
		return event.Confirm{Call: call, Question: question, Allow: true}, nil
	}
	return event.Confirm{}, usage("--answer %q: write CALL_ID.QUESTION=allow or CALL_ID.QUESTION=deny[:reason]", s)
}

// parseQuestion splits CALL_ID.QUESTION, as questionID joins them; question is 0 if id does not end in a number. The id of
// a call that itself ends in a dot and a number can only be given with its question.
func parseQuestion(id string) (call string, question int64) {
	if i := strings.LastIndexByte(id, '.'); i > 0 {
		if n, err := strconv.ParseInt(id[i+1:], 10, 64); err == nil && n > 0 && questionID(id[:i], n) == id { // without leading zeros
			return id[:i], n
		}
	}
	return id, 0
}

// questionID joins the id of a call and the number of the question about the call.
func questionID(call string, question int64) string {
	if question == 0 { // the session was written by an older version
		return call
	}
	return fmt.Sprintf("%s.%d", call, question)
}
