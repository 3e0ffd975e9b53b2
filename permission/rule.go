package permission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// A Rule allows, asks about or denies calls of a tool. Tool is a tool's name
// or a pattern with "*" ("mcp__github__*"). Pattern is in the tool's own language
// ("git commit:*" for Bash, "src/**" for Edit); "" covers every call.
type Rule struct {
	Tool     string   `json:"tool"`
	Pattern  string   `json:"pattern,omitempty"`
	Behavior Behavior `json:"behavior"`
	Source   string   `json:"source,omitempty"` // where the rule is from: a file, "suggested", …
}

// UnmarshalJSON rejects unknown members: a rule with a misspelt "pattern" would cover every call of its tool.
func (r *Rule) UnmarshalJSON(data []byte) error {
	type plain Rule
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(r)); err != nil {
		return fmt.Errorf("a rule, which has the members tool, pattern, behavior and source: %w", err)
	}
	return nil
}

// String returns the rule in its text form: Tool or Tool(pattern).
func (r Rule) String() string {
	if r.Pattern == "" {
		return r.Tool
	}
	return r.Tool + "(" + r.Pattern + ")"
}

// ParseRule parses Tool or Tool(pattern). "Tool()" is an error: the author hardly meant every call, which an
// empty pattern covers.
func ParseRule(text string, b Behavior) (Rule, error) {
	invalid := func(why string) (Rule, error) {
		return Rule{}, fmt.Errorf("rule %q: %s; write Tool or Tool(pattern), such as Bash(git commit:*)", text, why)
	}
	if b != Allow && b != Ask && b != Deny {
		return Rule{}, fmt.Errorf("rule %q: its behavior is %q; set it to allow, ask or deny", text, b)
	}
	name, rest, hasParen := strings.Cut(strings.TrimSpace(text), "(")
	pattern, isClosed := strings.CutSuffix(rest, ")")
	switch {
	case name == "":
		return invalid("no tool name")
	case strings.ContainsAny(name, " ),"), strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return invalid(fmt.Sprintf("%q is not a tool name", name))
	case !hasParen:
		return Rule{Tool: name, Behavior: b}, nil
	case !isClosed:
		return invalid("no closing parenthesis at the end")
	case strings.TrimSpace(pattern) == "":
		return invalid("empty pattern")
	}
	return Rule{Tool: name, Pattern: pattern, Behavior: b}, nil
}

// Names reports whether r.Tool, in which "*" stands for any text, covers the tool called name.
func (r Rule) Names(name string) bool {
	head, tail, hasStar := strings.Cut(r.Tool, "*")
	if !hasStar {
		return r.Tool == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for {
		part, rest, hasStar := strings.Cut(tail, "*")
		if !hasStar {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, tail = name[i+len(part):], rest
	}
}

// effect returns the behavior of r, and Deny for an unknown behavior, which may be a misspelled deny.
func (r *Rule) effect() Behavior {
	if r.Behavior == Allow || r.Behavior == Ask {
		return r.Behavior
	}
	return Deny
}

// matches reports whether r covers c: by the name of c's tool, or by a name in c.Borrows. Allow rules are not borrowed:
// a user who allows reading a file has not allowed searching it, or running a program on it. For a match by an invalid
// pattern it also returns the pattern's error.
func (r Rule) matches(p *Policy, c *Call) (matched bool, invalid error) {
	if r.Names(c.Tool) {
		if ok, err := r.covers(p, c); ok {
			return true, err
		}
	}
	if r.Pattern == "" || r.effect() == Allow {
		return false, nil
	}
	for _, name := range c.Borrows {
		if r.Names(name) {
			borrowed := r
			borrowed.Tool = name
			if ok, err := borrowed.covers(p, c); ok {
				return true, err
			}
		}
	}
	return false, nil
}

// covers reports whether the pattern of r covers c. An invalid pattern of an allow rule covers nothing, of any other
// rule everything.
func (r Rule) covers(p *Policy, c *Call) (covered bool, invalid error) {
	if r.Pattern == "" {
		return true, nil
	}
	covered, invalid = c.match(p, r)
	if invalid != nil {
		covered = r.effect() != Allow
	}
	return covered, invalid
}
