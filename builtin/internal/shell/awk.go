package shell

import (
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// awkArgs checks awk's program, which may write files and run programs.
func awkArgs(_ *walker, _ *command, p *parsed) string {
	var programs []arg
	for _, o := range p.given {
		if o.name == "-e" || o.name == "--source" {
			programs = append(programs, o.value)
		}
	}
	if first := slices.IndexFunc(p.ops, func(op roleArg) bool { return !op.ofOption }); len(programs) == 0 && first >= 0 {
		programs = append(programs, p.ops[first].arg)
		p.ops = slices.Delete(p.ops, first, first+1)
	}
	// gawk(1), "Special File Names": /inet/tcp/0/host/port is a connection, also as an operand or in a variable set by -v.
	for _, op := range p.ops {
		if strings.Contains(op.text, "/inet") {
			return "awk may open a network connection"
		}
	}
	// Several texts form one program, which is not checked across their boundaries.
	if len(programs) != 1 {
		return "it does not have exactly one program"
	}
	if !programs[0].known {
		return "the program is not literal"
	}
	a := awkLexer{text: programs[0].text}
	why := a.check()
	for _, name := range a.reads {
		op := roleArg{arg: literal(name), kind: 'r', ofOption: true}
		if strings.Contains(name, `\`) {
			op.arg = anything(name)
		}
		p.ops = append(p.ops, op)
	}
	if a.target != "" {
		p.ops = append(p.ops, roleArg{arg: literal(a.target), kind: 'w'})
	}
	return why
}

// An awkLexer scans a program's tokens. It rejects programs that versions of awk interpret differently.
type awkLexer struct {
	text   string
	pos    int
	prev   string   // the last token: a keyword, "id", "num", "str", "re", an operator, or one of the following states
	parens []string // the token before each open parenthesis
	reads  []string // names of files that the program reads, as written
	target string   // a file that the program writes
	prints int      // number of parentheses around the current print statement, or -1
}

// Values of awkLexer.prev that are not tokens.
const (
	needsOutput = ">file"        // after the ">" of a print: the name of a file to write follows
	hasOutput   = "output"       // after that name
	needsInput  = "<file"        // after "getline <": the name of a file to read follows
	hasInput    = "input"        // after that name
	getlineVar  = "getline name" // after the variable of a getline
	condition   = "condition"    // after the ")" of if, while, for or switch
)

// What follows ARGV if it is the left or the right operand of a comparison.
var (
	awkArgvLeft  = lazy.Regexp(`^\[[0-9]+\]\s*(==|!=)`)
	awkArgvRight = lazy.Regexp(`^\[[0-9]+\]\s*([){};\n]|&&|\|\||$)`)
)

// comparesArgv reports whether the program only compares the element of ARGV before the current position. Other uses
// may assign to the element, which awk then reads as the name of a file.
func (a *awkLexer) comparesArgv() bool {
	switch a.prev {
	case "==", "!=":
		return awkArgvRight().MatchString(a.text[a.pos:])
	case "getline", "++", "--": // they assign before the comparison
		return false
	}
	return awkArgvLeft().MatchString(a.text[a.pos:])
}

var awkNumber = lazy.Regexp(`^[0-9.]+([eE][0-9]*)?$`)

var awkKeywords = strings.Fields("print printf return in if else while for do delete getline exit next nextfile BEGIN END function func case default switch break continue")

// check returns why the program is not known to be harmless, or "".
func (a *awkLexer) check() string {
	a.prints = -1
	for a.pos < len(a.text) {
		c := a.text[a.pos]
		var why string
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			a.pos++
		case c == '\\' && a.pos+1 < len(a.text) && a.text[a.pos+1] == '\n':
			a.pos += 2
		case c == '#':
			for a.pos < len(a.text) && a.text[a.pos] != '\n' {
				a.pos++
			}
		case c == '"':
			why = a.scanString()
		case c == '/':
			why = a.scanSlash()
		case isWordByte(c):
			why = a.scanWord()
		default:
			why = a.scanOperator(c)
		}
		if why != "" {
			return why
		}
	}
	return ""
}

// accept consumes n bytes as the token prev. The program is not rejected.
func (a *awkLexer) accept(n int, prev string) (why string) {
	a.pos += n
	a.prev = prev
	return ""
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func (a *awkLexer) scanString() string {
	start := a.pos
	for a.pos++; a.pos < len(a.text); a.pos++ {
		switch a.text[a.pos] {
		case '\\':
			a.pos++
		case '\n':
			return "the awk program has an unclosed string"
		case '"':
			a.pos++
			if a.prev == needsOutput && !slices.Contains([]string{`"/dev/stderr"`, `"/dev/stdout"`, `"/dev/null"`}, a.text[start:a.pos]) {
				a.target = strings.Trim(a.text[start:a.pos], `"`)
				return "the awk program writes a file"
			}
			if strings.Contains(a.text[start:a.pos], "/inet") {
				return "the awk program may open a network connection"
			}
			switch a.prev {
			case needsInput:
				a.reads = append(a.reads, a.text[start+1:a.pos-1])
				return a.accept(0, hasInput)
			case hasInput:
				return "the name of a file that the awk program reads is not literal"
			case hasOutput:
				return "the awk program writes a file"
			case needsOutput:
				return a.accept(0, hasOutput)
			}
			return a.accept(0, "str")
		}
	}
	return "the awk program has an unclosed string"
}

// scanSlash scans a division, which follows a value, or a regular expression, which follows an operator. It rejects
// cases in which versions of awk differ ("a++ /x/", "$/x/").
func (a *awkLexer) scanSlash() string {
	switch a.prev {
	case needsOutput, hasOutput:
		return "the awk program writes a file"
	case "id", "num", ")", "]", "str":
		return a.accept(1, "/")
	case "++", "--", "re", "$", condition, "getline", getlineVar, "length":
		return "the awk program has syntax that is not supported"
	}
	for a.pos++; a.pos < len(a.text); a.pos++ {
		switch a.text[a.pos] {
		case '\\':
			if a.pos++; a.pos < len(a.text) && a.text[a.pos] == '\n' {
				return "the awk program has an unclosed regular expression"
			}
		case '\n':
			return "the awk program has an unclosed regular expression"
		case '[':
			end := plainBracket(a.text, a.pos, '/')
			if end < 0 {
				return "the awk program has a bracket that versions of awk read differently"
			}
			a.pos = end
		case '/':
			return a.accept(1, "re")
		}
	}
	return "the awk program has an unclosed regular expression"
}

// plainBracket returns the index of the "]" that ends the bracket expression at i, or -1 if
// versions of awk differ: some end it at the delimiter, some do not support classes or take
// "]" for a member at the beginning, and some support escapes.
func plainBracket(text string, i int, delimiter byte) int {
	i++
	if i < len(text) && text[i] == '^' {
		i++
	}
	for first := i; i < len(text); i++ {
		switch c := text[i]; {
		case c == ']' && i == first, c == delimiter, c == '\n', c == '"':
			return -1
		case c == ']':
			return i
		case c == '\\':
			if i++; i == len(text) || text[i] == ']' || text[i] == '[' || text[i] == '\n' {
				return -1
			}
		case c == '[':
			n := len(className().FindString(text[i:]))
			if n == 0 {
				return -1
			}
			i += n - 1
		}
	}
	return -1
}

var className = lazy.Regexp(`^\[:[a-z]+:\]`)

// scanWord scans a number, a keyword or the name of a variable or function.
func (a *awkLexer) scanWord() string {
	start := a.pos
	number := a.text[start] <= '9'
	for a.pos < len(a.text) && (isWordByte(a.text[a.pos]) || number && a.text[a.pos] == '.') {
		a.pos++
	}
	word := a.text[start:a.pos]
	if number && !awkNumber().MatchString(word) {
		return "the awk program has syntax that is not supported" // such as 1x, the number 1 followed by the variable x
	}
	if a.prev == needsOutput || a.prev == hasOutput {
		return "the awk program writes a file"
	}
	// The name may be /inet/…, for which gawk opens a connection.
	if a.prev == needsInput || a.prev == hasInput || word == "ARGV" && !a.comparesArgv() {
		return "the name of a file that the awk program reads is not literal"
	}
	switch {
	case word == "system":
		return "the awk program runs a program"
	case word == "length": // a function that may be called without parentheses
		a.prev = word
	case a.prev == "getline":
		a.prev = getlineVar
	case number:
		a.prev = "num"
	case slices.Contains(awkKeywords, word):
		a.prev = word
		if word == "print" || word == "printf" {
			a.prints = len(a.parens)
		}
	default:
		a.prev = "id"
	}
	return ""
}

func (a *awkLexer) scanOperator(c byte) string {
	two := ""
	if a.pos+1 < len(a.text) {
		two = a.text[a.pos : a.pos+2]
	}
	if a.prev == needsOutput {
		return "the awk program writes a file"
	}
	// Only a separator ends the name of a file: anything else may append to it, as in getline < "a" $1.
	if a.prev == needsInput || a.prev == hasInput && strings.IndexByte(")};\n \t>=!&|,#", c) < 0 {
		return "the name of a file that the awk program reads is not literal"
	}
	if c == '<' && two != "<=" && strings.HasPrefix(a.prev, "getline") {
		return a.accept(1, needsInput)
	}
	if done, why := a.special(c, two); done {
		return why
	}
	switch {
	case c == '(':
		a.parens = append(a.parens, a.prev)
	case c == ')':
		if n := len(a.parens); n > 0 {
			before := a.parens[n-1]
			a.parens = a.parens[:n-1]
			if slices.Contains([]string{"if", "while", "for", "switch"}, before) {
				return a.accept(1, condition)
			}
		}
	case c == '\n' && slices.Contains([]string{",", "&&", "||", "?", ":"}, a.prev): // the statement continues
		return a.accept(1, a.prev)
	case c == ';' || c == '\n' || c == '{' || c == '}':
		a.prints = -1
	case a.prev == hasOutput, c < ' ' || c > '~': // the name of the file to write continues, or not printable ASCII
		return "the awk program has syntax that is not supported"
	}
	return a.accept(1, string(c))
}

// special scans operators of two characters, and operators that redirect or run something. It reports whether c begins
// one of these, and why the program is rejected, or "".
func (a *awkLexer) special(c byte, two string) (done bool, why string) {
	switch {
	case slices.Contains([]string{"||", "&&", "++", "--", ">=", "<=", "==", "!="}, two):
		return true, a.accept(2, two)
	case c == '|': // print | cmd, cmd | getline, and gawk's |&
		return true, "the awk program runs a program"
	case c == '@': // gawk: @include, @load, and f = "system"; @f(x)
		return true, "the awk program includes another program, or calls a function by name"
	// Outside parentheses a ">" after print redirects, inside parentheses it compares.
	case c == '>' && a.prints >= 0 && len(a.parens) <= a.prints:
		if two == ">>" {
			a.pos++
		}
		return true, a.accept(1, needsOutput)
	}
	return false, ""
}
