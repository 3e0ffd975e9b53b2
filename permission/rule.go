package permission

import (
	"fmt"
	"strings"
)

// A Rule allows, asks about or denies calls of a tool. Tool is a tool's name
// or a pattern with "*" ("mcp__github__*"). Pattern is the tool's own language
// ("git commit:*" for Bash, "src/**" for Edit); empty covers every call.
type Rule struct {
	Tool     string   `json:"tool"`
	Pattern  string   `json:"pattern,omitempty"`
	Behavior Behavior `json:"behavior"`
	Source   string   `json:"source,omitempty"` // its origin: a file, "suggested", …
}

// String returns the rule in its text form: Tool or Tool(pattern).
func (r Rule) String() string {
	if r.Pattern == "" {
		return r.Tool
	}
	return r.Tool + "(" + r.Pattern + ")"
}

// ParseRule parses Tool or Tool(pattern). "Tool()" is an error: an empty pattern would match everything, which is
// hardly intended.
func ParseRule(text string, b Behavior) (Rule, error) {
	bad := func(why string) (Rule, error) {
		return Rule{}, fmt.Errorf("rule %q: %s; write Tool or Tool(pattern), such as Bash(git commit:*)", text, why)
	}
	if b != Allow && b != Ask && b != Deny {
		return Rule{}, fmt.Errorf("rule %q: its behavior is %q; set it to allow, ask or deny", text, b)
	}
	s := strings.TrimSpace(text)
	name, rest, paren := strings.Cut(s, "(")
	switch {
	case name == "":
		return bad("no tool name")
	case strings.ContainsAny(name, " \t\n),"):
		return bad(fmt.Sprintf("%q is not a tool name", name))
	case !paren:
		return Rule{Tool: name, Behavior: b}, nil
	case !strings.HasSuffix(rest, ")"):
		return bad("no closing parenthesis at the end")
	case strings.TrimSpace(rest[:len(rest)-1]) == "":
		return bad("empty pattern")
	}
	return Rule{Tool: name, Pattern: rest[:len(rest)-1], Behavior: b}, nil
}

// Names reports whether the tool part of r covers the tool called name.
func (r Rule) Names(name string) bool {
	head, tail, star := strings.Cut(r.Tool, "*")
	if !star {
		return r.Tool == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for {
		part, rest, more := strings.Cut(tail, "*")
		if !more {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, tail = name[i+len(part):], rest
	}
}

// effect returns the effect of r. An unknown behavior denies, like an unknown mode: it may be a misspelled deny.
func (r *Rule) effect() Behavior {
	if r.Behavior == Allow || r.Behavior == Ask {
		return r.Behavior
	}
	return Deny
}

// matches reports whether r covers c: by the name of its tool, or by a name in c.Borrows. Allow rules are not borrowed:
// a user who allows reading a file has not allowed searching it, or running a program on it. The error says why the
// pattern is invalid.
func (r Rule) matches(p *Policy, c *Call) (bool, error) {
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
			as := r
			as.Tool = name
			if ok, err := as.covers(p, c); ok {
				return true, err
			}
		}
	}
	return false, nil
}

// covers reports whether the pattern of r covers c. An invalid pattern covers everything for deny and ask, nothing
// for allow.
func (r Rule) covers(p *Policy, c *Call) (bool, error) {
	if r.Pattern == "" {
		return true, nil
	}
	ok, err := c.match(p, r)
	return ok && err == nil || err != nil && r.Behavior != Allow, err
}
