package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/kitbag-go/kitbag/permission"
)

// A Matcher says which calls of a tool the pattern of a permission rule covers. Make one
// with [Match]. The zero Matcher accepts no patterns.
type Matcher struct {
	argType reflect.Type
	covers  func(in any, pattern string) (bool, error)
}

// Match returns the [Options.Match] of a tool whose arguments are In. The function reports whether a pattern
// covers a call: a rule delete(tmp/*) has the pattern "tmp/*". An error means that the pattern cannot be read: a
// deny or ask rule then covers every call, an allow rule none.
func Match[In any](covers func(in In, pattern string) (bool, error)) Matcher {
	m := Matcher{argType: deref(reflect.TypeFor[In]())}
	if covers != nil {
		m.covers = func(in any, pattern string) (bool, error) { return covers(argument[In](in), pattern) }
	}
	return m
}

// A Suggester names patterns of rules that would have allowed a call. Make one with
// [Suggest]. The zero Suggester suggests a rule without a pattern.
type Suggester struct {
	argType  reflect.Type
	patterns func(in any) []string
}

// Suggest returns the [Options.Suggest] of a tool whose arguments are In. A pattern that
// does not cover the call is not suggested.
func Suggest[In any](patterns func(in In) []string) Suggester {
	s := Suggester{argType: deref(reflect.TypeFor[In]())}
	if patterns != nil {
		s.patterns = func(in any) []string { return patterns(argument[In](in)) }
	}
	return s
}

// argument converts in, a pointer to the decoded struct, to In: the struct or a pointer to it.
func argument[In any](in any) In {
	if p, ok := in.(*In); ok {
		return *p
	}
	return in.(In)
}

// withPatterns returns f with the options' Match and Suggest, if they are set.
func (f *function) withPatterns(o Options) (Tool, error) {
	if o.Match.argType == nil && o.Suggest.argType == nil {
		return f, nil
	}
	if err := o.checkPatterns(f.initialInput.typ); err != nil {
		return nil, fmt.Errorf("tool %q: %w", f.name, err)
	}
	return &patternTool{function: f, match: o.Match, suggest: o.Suggest}, nil
}

func (o *Options) checkPatterns(argType reflect.Type) error {
	switch {
	case o.Match.covers == nil:
		return errors.New("Options.Match has no function; without patterns leave out Match and Suggest")
	case o.Match.argType != argType:
		return fmt.Errorf("Options.Match is for arguments of type %v; the tool's are %v", o.Match.argType, argType)
	case o.Suggest.argType == nil:
		return nil
	case o.Suggest.patterns == nil:
		return errors.New("Options.Suggest has no function")
	case o.Suggest.argType != argType:
		return fmt.Errorf("Options.Suggest is for arguments of type %v; the tool's are %v", o.Suggest.argType, argType)
	}
	return nil
}

// A patternTool is a function tool that accepts patterns in rules.
type patternTool struct {
	*function
	match   Matcher
	suggest Suggester
}

// Judge implements [Judge].
func (p *patternTool) Judge(c *permission.Call) {
	c.Checker = &patternChecker{tool: p, input: c.Input}
}

// A patternChecker is the [permission.Checker] of one call. It decodes the arguments for each use, since the functions of
// Match and Suggest may change them.
type patternChecker struct {
	permission.BaseChecker
	tool  *patternTool
	input json.RawMessage
}

// decode returns a pointer to the decoded arguments.
func (c *patternChecker) decode() (any, error) {
	in := reflect.New(c.tool.initialInput.typ).Interface()
	return in, c.tool.decode(c.input, in)
}

// Match implements [permission.Checker].
func (c *patternChecker) Match(_ *permission.Policy, r permission.Rule) (bool, error) {
	in, err := c.decode()
	if err != nil {
		return false, err
	}
	return c.tool.match.covers(in, r.Pattern)
}

// Suggest implements [permission.Checker].
func (c *patternChecker) Suggest(p *permission.Policy) []permission.Rule {
	if c.tool.suggest.patterns == nil {
		return c.BaseChecker.Suggest(p)
	}
	in, err := c.decode()
	if err != nil {
		return nil
	}
	var rules []permission.Rule
	for _, pattern := range c.tool.suggest.patterns(in) {
		r := permission.Rule{Tool: c.tool.name, Pattern: pattern, Behavior: permission.Allow, Source: "suggested"}
		// A rule without a pattern would allow every call. A rule that does not survive writing and parsing would be
		// another rule in a settings file.
		if parsed, err := permission.ParseRule(r.String(), r.Behavior); err != nil || pattern == "" || parsed.Pattern != pattern {
			continue
		}
		if ok, err := c.Match(p, r); ok && err == nil {
			rules = append(rules, r)
		}
	}
	return rules
}
