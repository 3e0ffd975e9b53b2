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
	if len(programs) == 0 {
		for i, op := range p.ops {
			if !op.opt {
				programs = append(programs, op.arg)
				p.ops = slices.Delete(p.ops, i, i+1)
				break
			}
		}
	}
	// gawk(1), "Special File Names": /inet/tcp/0/host/port is a connection, including as an operand and in -v.
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
	if a.target != "" {
		p.ops = append(p.ops, roleArg{arg: literal(a.target), kind: 'w'})
	}
	return why
}

// An awkLexer scans a program's tokens. It rejects programs that versions of awk interpret differently.
type awkLexer struct {
	text   string
	pos    int
	prev   string   // the last token: a keyword, "id", "num", "str", "re", an operator, or a state such as ">sink": a file to write follows
	parens []string // the token before each open parenthesis
	target string   // a file that the program writes
	prints int      // number of parentheses around the current print statement, or -1
}

// The text after an ARGV that is only compared, if it is the left and the right operand of a comparison.
var (
	awkArgvLeft  = lazy.Regexp(`^\[[0-9]+\]\s*(==|!=)`)
	awkArgvRight = lazy.Regexp(`^\[[0-9]+\]\s*([){};\n]|&&|\|\||$)`)
)

// comparesArgv reports whether the program only compares the ARGV before the current position: any other use
// may assign to it, and names a file to read.
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
			why = a.str()
		case c == '/':
			why = a.slash()
		case isWordByte(c):
			why = a.ident()
		default:
			why = a.operator(c)
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func (a *awkLexer) str() string {
	start := a.pos
	for a.pos++; a.pos < len(a.text); a.pos++ {
		switch a.text[a.pos] {
		case '\\':
			a.pos++
		case '\n':
			return "the awk program has an unclosed string"
		case '"':
			a.pos++
			if a.prev == ">sink" && !slices.Contains([]string{`"/dev/stderr"`, `"/dev/stdout"`, `"/dev/null"`}, a.text[start:a.pos]) {
				a.target = strings.Trim(a.text[start:a.pos], `"`)
				return "the awk program writes a file"
			}
			if strings.Contains(a.text[start:a.pos], "/inet") {
				return "the awk program may open a network connection"
			}
			switch a.prev {
			case "<getline":
				a.prev = "input"
				return ""
			case "input":
				return "the name of a file that the awk program reads is not literal"
			case "sunk":
				return "the awk program writes a file"
			case ">sink":
				a.prev = "sunk"
			default:
				a.prev = "str"
			}
			return ""
		}
	}
	return "the awk program has an unclosed string"
}

// slash decides whether a slash is a regular expression or a division.
func (a *awkLexer) slash() string {
	// A division follows a value, a regular expression follows an operator. Cases in which versions of awk differ
	// ("a++ /x/", "$/x/") are rejected.
	switch a.prev {
	case ">sink", "sunk":
		return "the awk program writes a file"
	case "id", "num", ")", "]", "str":
		a.pos++
		a.prev = "/"
		return ""
	case "++", "--", "re", "$", "then", "getline", "getline id", "length":
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
			a.pos++
			a.prev = "re"
			return ""
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

func (a *awkLexer) ident() string {
	start := a.pos
	for a.pos < len(a.text) && (isWordByte(a.text[a.pos]) || a.text[a.pos] == '.' && a.text[start] <= '9') {
		a.pos++
	}
	word := a.text[start:a.pos]
	if word[0] <= '9' && !awkNumber().MatchString(word) {
		return "the awk program has syntax that is not supported" // a name may directly follow a number
	}
	if a.prev == ">sink" || a.prev == "sunk" {
		return "the awk program writes a file"
	}
	if a.prev == "<getline" || a.prev == "input" || word == "ARGV" && !a.comparesArgv() {
		// gawk opens a connection for a file name /inet/…, wherever it expects a file.
		return "the name of a file that the awk program reads is not literal"
	}
	switch {
	case word == "system":
		return "the awk program runs a program"
	case word == "length": // a function that may be called without parentheses
		a.prev = word
	case a.prev == "getline":
		a.prev = "getline id"
	case word[0] <= '9':
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

func (a *awkLexer) operator(c byte) string {
	two := ""
	if a.pos+1 < len(a.text) {
		two = a.text[a.pos : a.pos+2]
	}
	if a.prev == ">sink" {
		return "the awk program writes a file"
	}
	if a.prev == "<getline" || a.prev == "input" && strings.IndexByte(")};\n \t>=!&|,#", c) < 0 {
		return "the name of a file that the awk program reads is not literal"
	}
	if c == '<' && two != "<=" && strings.HasPrefix(a.prev, "getline") {
		a.pos++
		a.prev = "<getline"
		return ""
	}
	if done, why := a.special(c, two); done || why != "" {
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
				a.pos++
				a.prev = "then"
				return ""
			}
		}
	case c == '\n' && slices.Contains([]string{",", "&&", "||", "?", ":"}, a.prev):
		a.pos++ // the statement continues
		return ""
	case c == ';' || c == '\n' || c == '{' || c == '}':
		a.prints = -1
	case a.prev == "sunk", c < ' ' || c > '~':
		return "the awk program has syntax that is not supported"
	}
	a.pos++
	a.prev = string(c)
	return ""
}

// special handles operators of two characters, and operators that redirect or run something. It reports whether
// it has consumed the operator, or returns why the program is rejected.
func (a *awkLexer) special(c byte, two string) (done bool, why string) {
	switch {
	case two == "||" || two == "&&" || two == "++" || two == "--" || two == ">=" || two == "<=" || two == "==" || two == "!=":
		a.pos += 2
		a.prev = two
	case c == '|': // print | cmd, cmd | getline, and gawk's |&
		return false, "the awk program runs a program"
	case c == '@': // gawk: @include, @load, and f = "system"; @f(x)
		return false, "the awk program includes another program, or calls a function by name"
	// Outside parentheses a ">" after print redirects, inside parentheses it compares.
	case c == '>' && a.prints >= 0 && len(a.parens) <= a.prints:
		if a.pos++; a.pos < len(a.text) && a.text[a.pos] == '>' {
			a.pos++
		}
		a.prev = ">sink"
	default:
		return false, ""
	}
	return true, ""
}
