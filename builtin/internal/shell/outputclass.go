package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// A class describes the output of commands that always print the same kind of text.
type class uint8

const (
	anyText class = iota
	names         // words, none of which begins with "-"
	atoms         // words, no part of which begins with "-" after word splitting: hashes, identifiers
	digits        // at most one number, without a sign
)

// outputClass returns the class of the output of a list of statements.
func outputClass(stmts []*syntax.Stmt) class {
	if len(stmts) != 1 {
		return anyText
	}
	s := stmts[0]
	if s.Negated || s.Background || s.Coprocess || s.Disown {
		return anyText
	}
	for _, r := range s.Redirs {
		quiet := r.Op == syntax.RdrOut && r.N != nil && r.N.Value == "2" && r.Word.Lit() == "/dev/null"
		if r.Op != syntax.RdrIn && !quiet {
			return anyText
		}
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if args := plainArgs(c); args != nil {
			return callClass(args)
		}
	case *syntax.BinaryCmd:
		switch c.Op {
		case syntax.Pipe:
			return filtered(c)
		case syntax.OrStmt: // grep -c x f || true
			y, ok := c.Y.Cmd.(*syntax.CallExpr)
			if ok && len(c.Y.Redirs) == 0 && slices.Contains([]string{"true", ":", "echo 0", "echo 1"}, strings.Join(plainArgs(y), " ")) {
				class := outputClass([]*syntax.Stmt{c.X})
				if plainArgs(y)[0] == "echo" { // after the number of a grep -c that finds nothing
					class = min(class, atoms)
				}
				return class
			}
		}
	}
	return anyText
}

// filtered returns the class of a pipe's output. Its last command may print parts of its input, which have the input's class.
func filtered(c *syntax.BinaryCmd) class {
	y, ok := c.Y.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Y.Redirs) > 0 {
		return anyText
	}
	args := plainArgs(y)
	if args == nil {
		return anyText
	}
	text := strings.Join(args, " ")
	switch {
	case firstLines().MatchString(text), text == "tr -d  " || text == "tr -d [:space:]" || text == "xargs":
		return outputClass([]*syntax.Stmt{c.X})
	case text == "awk {print $1}" || text == "cut -d  -f1" || text == "cut -d -f1":
		return firstColumn(c.X)
	}
	return callClass(args)
}

var firstLines = lazy.Regexp(`^((head|tail)( -n)? ?-?\d*|sort( -u)?|uniq|cat)$`)

// firstColumn returns the class of the first words of the lines in s's output.
func firstColumn(s *syntax.Stmt) class {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if pipe, isPipe := s.Cmd.(*syntax.BinaryCmd); isPipe && pipe.Op == syntax.Pipe {
		if y, ok := pipe.Y.Cmd.(*syntax.CallExpr); ok && firstLines().MatchString(strings.Join(plainArgs(y), " ")) {
			return firstColumn(pipe.X)
		}
	}
	if !ok || len(s.Redirs) > 0 {
		return anyText
	}
	args := plainArgs(call)
	switch {
	case len(args) == 0:
		return anyText
	case args[0] == "wc" || args[0] == "md5sum" || args[0] == "sha256sum":
		return atoms
	case len(args) > 2 && args[0] == "git" && args[1] == "log" && slices.Contains(args, "--oneline"):
		rest := slices.DeleteFunc(slices.Clone(args[2:]), func(a string) bool { return a == "--oneline" })
		return gitHashes(append(rest, "--format=%h"))
	}
	return outputClass([]*syntax.Stmt{s})
}

// plainArgs returns the words of a call; a word with an expansion is a hole, after its first
// letter if that is known. It is nil for a call with assignments.
func plainArgs(c *syntax.CallExpr) []string {
	if len(c.Assigns) > 0 || len(c.Args) == 0 {
		return nil
	}
	args := make([]string, len(c.Args))
	for i, word := range c.Args {
		if text := plainText(word); text != "" && !braced(word) && !strings.ContainsAny(text, "*?[\\") && text[0] != '~' {
			args[i] = text
			continue
		}
		args[i] = hole
		if len(word.Parts) == 0 {
			continue
		}
		if lit, ok := word.Parts[0].(*syntax.Lit); ok && lit.Value != "" && strings.IndexByte(`-~\*?[{`, lit.Value[0]) < 0 {
			args[i] = lit.Value[:1] + hole
		}
	}
	return args
}

// Commands whose output has a class, with their words. A word with an expansion has a hole.
var (
	printsNumber = lazy.Regexp(`^(wc -[lwcmL]|git rev-list (--no-merges |--first-parent |--all )*--count( [\w.@/~^]+| HEAD)*|date (-u )?\+%[sYHMSdmj]|date \+%s%N|nproc|id -[ug]|grep -[iEFvwx]*c[iEFvwx]* [^-\s\x00]\S*( [\w./]+)?|awk END ?\{ ?print NR ?\}|tput (cols|lines))$`)
	printsAtoms  = lazy.Regexp(`^(git merge-base .*|git rev-parse (--verify |--short |--short=\d+ |-q |--quiet )*[\w.@/~^{}]+|(docker|podman) (ps|images|container ls|image ls|network ls|volume ls)( -a| --all)* (-q|-aq|-qa|--quiet)( -a| --no-trunc)*|jq (-r )?length( [\w./]+)?|seq( \d+)+|(stat -c|stat --format) %[sYXi] \S+)$`)
	printsNames  = lazy.Regexp(`^kubectl get [a-z,]+( -n [a-z0-9-]+| -A| --all-namespaces| -l [\w=./-]+)* -o name$`)
)

// callClass returns the class of the output of a command with these words.
func callClass(args []string) class {
	if !slices.Contains(classified, args[0]) {
		return anyText
	}
	text := strings.Join(args, " ")
	switch {
	case printsNumber().MatchString(text):
		return digits
	case printsAtoms().MatchString(text):
		return atoms
	case printsNames().MatchString(text):
		return names
	case strings.HasPrefix(text, "git log ") || strings.HasPrefix(text, "git rev-list "):
		if args[1] == "rev-list" {
			args = append(args[:2:2], append([]string{"--format=%H"}, args[2:]...)...)
		}
		return gitHashes(args[2:])
	}
	return anyText
}

var gitHashOption = lazy.Regexp(`^(-n|-\d+|-n\d+|--max-count=\d+|--no-merges|--merges|--first-parent|--reverse|--all|--since=.*|--until=.*|--after=.*|--before=.*|--author=.*|--grep=.*|--diff-filter=[A-Za-z]+|--follow|--skip=\d+)$`)

// gitHashes returns atoms if git log or git rev-list prints hashes, or times, with these
// arguments.
func gitHashes(args []string) class {
	printed := anyText
	for _, a := range args {
		switch {
		case a == "--":
			return printed
		case a == "--format=%H", a == "--format=%h", a == "--format=%ct", a == "--format=%at", a == "--pretty=%H", a == "--pretty=%h", a == "--pretty=format:%H", a == "--pretty=format:%h", a == "--pretty=tformat:%H", a == "--pretty=tformat:%h":
			printed = atoms
		case strings.HasPrefix(a, hole):
			return anyText
		case strings.HasPrefix(a, "-") && !gitHashOption().MatchString(a):
			return anyText
		}
	}
	return printed
}

// classified lists the first words that the expressions above match: other commands need not be matched.
var classified = strings.Fields("wc git date nproc id grep awk jq tput docker podman seq stat kubectl")

// onlySafeSplits reports whether none of the words that an unquoted part of a word may expand to
// begins with a dash.
func (w *walker) onlySafeSplits(parts []syntax.WordPart, quoted bool) bool {
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit, *syntax.SglQuoted, *syntax.ArithmExp, *syntax.ProcSubst:
		case *syntax.DblQuoted:
			if !w.onlySafeSplits(p.Parts, true) {
				return false
			}
		case *syntax.CmdSubst:
			if !quoted && outputClass(p.Stmts) == anyText {
				return false
			}
		case *syntax.ParamExp:
			if p.Param == nil || p.Param.Value == "@" || p.Index != nil && allElements(p) {
				return false
			}
			b := w.lookup(p.Param.Value)
			simple := p.Exp == nil && p.Slice == nil && p.Repl == nil && p.Index == nil
			if !quoted && !p.Length && !(simple && (b.staysOneWord() || b.identifiers)) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// takesInput reports whether a statement's standard input is redirected.
func takesInput(s *syntax.Stmt) bool {
	return slices.ContainsFunc(s.Redirs, changesInput)
}

// findsBelow reports whether a statement is find with null bytes after names: all of these begin
// with one of its starting points, and not with a sign that is special for a program, as in @file and +command.
func findsBelow(s *syntax.Stmt) bool {
	if s == nil {
		return false
	}
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(s.Redirs) > 0 {
		return false
	}
	args := plainArgs(call)
	otherAction := func(a string) bool { // find also prints or runs something else
		return slices.Contains(findActions, a) || slices.Contains([]string{"-print", "-printf", "-ls", "-files0-from"}, a)
	}
	if len(args) == 0 || args[0] != "find" || !slices.Contains(args, "-print0") || slices.ContainsFunc(args, otherAction) {
		return false
	}
	for _, a := range args[1:] {
		switch {
		case a == "-H" || a == "-L" || a == "-P":
		case strings.HasPrefix(a, "-"), a == "(", a == "!":
			return true
		case strings.HasPrefix(a, hole), strings.HasPrefix(a, "@"), strings.HasPrefix(a, "+"):
			return false
		}
	}
	return true
}

// inputClass returns the class of the standard input.
func (w *walker) inputClass() class {
	if w.in.fed == nil {
		return anyText
	}
	return outputClass([]*syntax.Stmt{w.in.fed})
}
