package shell

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// The tables describe the effects of commands, one file a family. A line has three fields,
// separated by " : ", and continues on lines that start with a blank:
//
//	names : options : operands
//
// names are alternatives separated by "|"; a subcommand follows its command after a blank ("git
// log|show"). If a name has several lines, a command has the effects of one that accepts all of
// it, preferably a harmless one. A command that no line accepts may do anything.
//
// options:
//
//	-abc     letters that take no value       --name    a long option without a value
//	-k=      a letter that takes a value      --name=   … with a value
//	-k?      … a value that must be attached, --name?   or may be missing
//	-k=w     the value is an operand of this kind, see below; only a text may
//	         look like an option
//	-x!e     an option with the effect e      !e        the command has the effect e
//	-x!named its effect is beyond its command's purpose, as with the effect
//	         exec: only a rule that names the option allows it
//	any      every other option is also harmless, and so is an unknown word
//	dyn      no option, listed or not, is harmful, but unlisted ones are not accepted
//	single   long options have one dash, and letters are not combined
//	stop     options end at the first operand
//	early    options end there in some versions only (GNU permutes, POSIX does not):
//	         an option after the first operand is not accepted
//	-#       numbers such as -20 are options
//	need:x,y one of these options is required, as without them the command does its main
//	         work; with stop or early, before the operands
//	edit     a file edit that accept-edits allows inside the working directories
//	links    may leave a symbolic link where it writes
//	words    any word may name a file that it changes
//	remote   the effect network is expected and harmless
//	pure     reads no file
//	whole    arguments that are not accepted may be a program: only a rule that is the whole
//	         command allows it
//	takes:x,y these files, in the command's directory or above it, may name programs that it
//	         runs: see facts.go. x:a|b means an x that contains a or b, and git the settings
//	         of the repository
//	into:-C  the value of this option is used as the current directory
//	fn:name  a function in Go checks the arguments
//	@name    the options of a line "@name : options"
//
// operands, in order, the one with a star any number of times; "-" means none:
//
//	r reads  w writes  d deletes  t text  + text that starts with "+"
//	x a command follows  s shell source follows  c a subcommand follows
//
//go:embed tables/*.txt
var tableFiles embed.FS

// A spec is one line of a table.
type spec struct {
	names                            []string
	any, dyn, single, minusNum       bool
	stop, early                      bool
	edit, links, remote, pure, words bool
	whole                            bool
	options                          map[string]option
	need                             []string
	takes, into                      []string
	effects                          effects
	roles                            []role
	fn                               func(*walker, *command, *parsed) (why string) // why: "" or the reason for a refusal
	fnName                           string
}

// An option of a command.
type option struct {
	value   byte // '=': takes a value; '?': may have an attached value; 0: no value
	role    role
	effects effects
	named   bool // only a rule with the option as a word allows it
}

// A role is what a command does with an operand.
type role struct {
	kind byte // one of "rwdt+xsc"
	star bool
}

// effects is a set of Effect, with one bit for each, in the order of effectNames.
type effects uint16

var effectNames = []Effect{Read, Write, Delete, Exec, Network, Process, System, Unknown}

// Sets with one effect.
const (
	reading effects = 1 << iota
	writing
	deleting
	executing
	networking
	_
	_
	unknown
)

// list returns the effects in order.
func (e effects) list() []Effect {
	list := []Effect{}
	for i, name := range effectNames {
		if e&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

// specs returns the lines of the tables by their names, such as "git log".
var specs = sync.OnceValue(func() map[string][]*spec {
	table := map[string][]*spec{}
	groups := map[string]string{}
	files, err := tableFiles.ReadDir("tables")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		raw, err := tableFiles.ReadFile("tables/" + f.Name())
		if err != nil {
			panic(err)
		}
		for _, line := range logicalLines(string(raw)) {
			if err := addLine(table, groups, line); err != nil {
				panic(fmt.Sprintf("%s: %s: %v", f.Name(), line, err))
			}
		}
	}
	return table
})

// A family contains the lines of a name and of the longer names that begin with it: "git" with "git log" and
// "git remote show" below it.
type family struct {
	name           string
	lines          []*spec
	subs           map[string]*family // by the next word
	hasSubcommands bool               // whether the second word is a subcommand
}

// families returns the tables as a tree, in which a command is found word by word.
var families = sync.OnceValue(func() map[string]*family {
	root := &family{}
	for name, lines := range specs() {
		f := root
		for word := range strings.FieldsSeq(name) {
			sub := f.subs[word]
			if sub == nil {
				sub = &family{name: strings.TrimSpace(f.name + " " + word)}
				if f.subs == nil {
					f.subs = map[string]*family{}
				}
				f.subs[word] = sub
			}
			f = sub
		}
		f.lines = lines
		f.hasSubcommands = slices.ContainsFunc(lines, func(s *spec) bool { return s.takesSubcommand() })
	}
	return root.subs
})

// takesSubcommand reports whether the last operand is a subcommand.
func (s *spec) takesSubcommand() bool { return len(s.roles) > 0 && s.roles[len(s.roles)-1].kind == 'c' }

// hasSubcommands reports whether a command's second word is a subcommand.
func hasSubcommands(name string) bool {
	f := families()[name]
	return f != nil && f.hasSubcommands
}

func logicalLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\n")
		switch {
		case line == "" || line[0] == '#':
		case (line[0] == ' ' || line[0] == '\t') && len(lines) > 0:
			lines[len(lines)-1] += " " + strings.TrimSpace(line)
		default:
			lines = append(lines, line)
		}
	}
	return lines
}

func addLine(table map[string][]*spec, groups map[string]string, line string) error {
	parts := []string{""}
	for tok := range strings.FieldsSeq(line) {
		if tok == ":" {
			parts = append(parts, "")
			continue
		}
		parts[len(parts)-1] = strings.TrimSpace(parts[len(parts)-1] + " " + tok)
	}
	if strings.HasPrefix(line, "@") && len(parts) == 2 {
		groups[parts[0]] = parts[1]
		return nil
	}
	if len(parts) != 3 {
		return fmt.Errorf("%d fields, want 3", len(parts))
	}
	s := &spec{options: map[string]option{}}
	opts := parts[1]
	for strings.Contains(opts, "@") {
		before, rest, _ := strings.Cut(opts, "@")
		name, after, _ := strings.Cut(rest, " ")
		group, ok := groups["@"+name]
		if !ok {
			return fmt.Errorf("unknown group @%s", name)
		}
		opts = before + group + " " + after
	}
	s.single = slices.Contains(strings.Fields(opts), "single")
	flags := map[string]*bool{"any": &s.any, "dyn": &s.dyn, "single": &s.single, "stop": &s.stop, "early": &s.early, "-#": &s.minusNum,
		"edit": &s.edit, "links": &s.links, "words": &s.words, "remote": &s.remote, "pure": &s.pure, "whole": &s.whole}
	for tok := range strings.FieldsSeq(opts) {
		if flag := flags[tok]; flag != nil {
			*flag = true
		} else if err := s.addToken(tok); err != nil {
			return err
		}
	}
	s.dyn = s.dyn || s.any
	if s.remote {
		s.effects |= networking
	}
	if err := s.addOperands(parts[2]); err != nil {
		return err
	}
	s.names = expandNames(parts[0])
	for _, name := range s.names {
		table[name] = append(table[name], s)
	}
	return nil
}

// expandNames expands "git log|show" to its two names.
func expandNames(field string) []string {
	out := []string{""}
	for word := range strings.FieldsSeq(field) {
		var next []string
		for _, head := range out {
			for alt := range strings.SplitSeq(word, "|") {
				next = append(next, strings.TrimSpace(head+" "+alt))
			}
		}
		out = next
	}
	return out
}

func (s *spec) addToken(tok string) error {
	switch key, list, _ := strings.Cut(tok, ":"); key {
	case "need":
		s.need = strings.Split(list, ",")
		return nil
	case "takes":
		s.takes = append(s.takes, strings.Split(list, ",")...)
		return nil
	case "into":
		s.into = strings.Split(list, ",")
		return nil
	case "fn":
		s.fn, s.fnName = checks()[list], list
		if s.fn == nil {
			return fmt.Errorf("unknown function %q", list)
		}
		return nil
	}
	return s.addOption(tok)
}

// addOption parses a token for an option, or for an effect of the command.
func (s *spec) addOption(tok string) error {
	name, effectList, _ := strings.Cut(tok, "!")
	o, err := parseEffects(effectList)
	if err != nil {
		return err
	}
	if name == "" {
		s.effects |= o.effects
		return nil
	}
	if !strings.HasPrefix(name, "-") && !s.single {
		return fmt.Errorf("invalid token %q", tok)
	}
	if i := strings.IndexAny(name, "=?"); i > 0 {
		o.value = name[i]
		if kind := name[i+1:]; kind != "" {
			o.role = role{kind: kind[0]}
		}
		name = name[:i]
	}
	o.named = o.named || o.effects&executing != 0 || o.role.kind == 's'
	if strings.HasPrefix(name, "--") || s.single || len(name) == 2 {
		s.options[name] = o
		return nil
	}
	if o.value != 0 {
		return fmt.Errorf("token %q: combined letters cannot have a value", tok)
	}
	for _, c := range name[1:] {
		s.options["-"+string(c)] = o
	}
	return nil
}

// parseEffects returns an option with the effects after the "!" of a token.
func parseEffects(list string) (o option, err error) {
	for e := range strings.SplitSeq(list, ",") {
		switch {
		case e == "":
		case e == "named":
			o.named = true
		case slices.Contains(effectNames, Effect(e)):
			o.effects |= 1 << slices.Index(effectNames, Effect(e))
		default:
			return option{}, fmt.Errorf("unknown effect %q", e)
		}
	}
	return o, nil
}

func (s *spec) addOperands(field string) error {
	if field == "-" {
		return nil
	}
	if field == "" {
		s.roles = []role{{kind: 't', star: true}}
		return nil
	}
	for tok := range strings.FieldsSeq(field) {
		r := role{kind: tok[0], star: strings.HasSuffix(tok, "*")}
		if !strings.Contains("rwdt+xsc", tok[:1]) || len(tok) > 2 {
			return fmt.Errorf("invalid operand %q", tok)
		}
		s.roles = append(s.roles, r)
	}
	return nil
}
