package shell

import (
	"iter"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// The functions of this file check what commands show in addition to their operands: files that options name, and
// the environment, which may contain secrets.

// environmentShown is why a command that shows the whole environment is not read-only.
const environmentShown = "it shows the environment, in which credentials may be"

// grepArgs gives all operands the role of files if the pattern is in an option.
func grepArgs(_ *walker, _ *command, p *parsed) string {
	if p.has("-e", "-f", "--regexp", "--file", "--files", "--type-list") {
		p.textIsOption()
	}
	return ""
}

// textIsOption changes operands with the role of a text, such as the pattern of grep, to files: an option has the text.
func (p *parsed) textIsOption() {
	for i := range p.ops {
		if op := &p.ops[i]; !op.ofOption && op.kind == 't' {
			op.kind = 'r'
		}
	}
}

// jqEnvironment matches a program of jq that reads the environment. Between "$" and the name may be space and comments.
var jqEnvironment = lazy.Regexp(`(^|[^.\w"])(env|ENV|__prog_\w+)\b`)

// jqModule matches a program of jq that loads a module or data. A string follows the keyword, perhaps after a comment
// or a format such as @text.
var jqModule = lazy.Regexp(`(^|[;\s])(import|include)\s*["#@]`)

// jqString matches a string of a program of jq.
var jqString = lazy.Regexp(`"(\\.|[^"\\])*"`)

// jqPairs are the options of jq with a name and a value.
var jqPairs = []string{"--arg", "--argfile", "--argjson", "--rawfile", "--slurpfile"}

// jqArgs finds the files that jq reads by options with two values, and uses of the environment.
func jqArgs(_ *walker, c *command, p *parsed) string {
	if p.has("-f", "--from-file") {
		p.textIsOption()
		return "the program is in a file, and may show the environment"
	}
	valuesLeft, hasProgram := 0, false // valuesLeft: values of the last option that follow
	for i, a := range c.args[1:] {
		switch _, isPair := slices.BinarySearch(jqPairs, a.text); {
		case valuesLeft > 0:
			valuesLeft--
		case isPair:
			valuesLeft = 2
		case a.text == "-L" || a.text == "--indent":
			valuesLeft = 1
		case !hasProgram && !strings.HasPrefix(a.text, "-"):
			if hasProgram = true; strings.Contains(jqString().ReplaceAllString(a.text, ""), hole) {
				return "the program is unknown, and may show the environment"
			}
		}
		switch {
		case a.known && (a.text == "--rawfile" || a.text == "--slurpfile") && i+3 < len(c.args):
			p.ops = append(p.ops, roleArg{arg: c.args[i+3], kind: 'r'})
		case jqEnvironment().MatchString(a.text):
			return environmentShown
		case jqModule().MatchString(a.text):
			return "it imports a module, which may be a file with credentials"
		}
	}
	return ""
}

// containerSettings matches the parts of a format of docker inspect that may show the environment: its name, the
// settings as a whole, a part of the settings, or the whole container. harmlessSettings matches the parts of the
// settings that do not contain the environment.
var (
	containerSettings = lazy.Regexp(`(?i)env|history|\.\w*(config|spec)(\.\w+)?|[.$](\W|$)`)
	harmlessSettings  = lazy.Regexp(`(?i)^\.(config\.(image|labels|hostname|user|workingdir|exposedports|cmd|entrypoint|healthcheck)|hostconfig(\.\w+)?|spec\.(name|mode|labels))$`)
)

// containerArgs requires a format that does not show the environment of a container.
func containerArgs(_ *walker, _ *command, p *parsed) string {
	var formats []arg
	for _, name := range []string{"-f", "--format"} {
		if format, ok := p.value(name); ok {
			formats = append(formats, format)
		}
	}
	for _, format := range formats {
		if !format.known || !strings.Contains(format.text, "{{") {
			return environmentShown
		}
		for action := range actions(format.text) {
			for _, found := range containerSettings().FindAllString(action, -1) {
				if !harmlessSettings().MatchString(found) {
					return environmentShown
				}
			}
		}
	}
	if len(formats) == 0 {
		return environmentShown
	}
	return ""
}

// layerFields are what a format of docker history may show.
var layerFields = lazy.Regexp(`^\s*\.(ID|CreatedAt|CreatedSince|Size)\s*$`)

// layersArgs refuses docker history without truncation: the commands that built an image contain its environment
// and arguments.
func layersArgs(_ *walker, _ *command, p *parsed) string {
	if p.has("--no-trunc") && !p.has("-q", "--quiet") {
		return environmentShown
	}
	for _, o := range p.given {
		if o.name != "--format" {
			continue
		}
		if !o.value.known || !strings.Contains(o.value.text, "{{") {
			return environmentShown
		}
		for action := range actions(o.value.text) {
			if !layerFields().MatchString(action) {
				return environmentShown
			}
		}
	}
	return ""
}

// templateString matches a string in an action of a template, without escapes.
var templateString = lazy.Regexp("\"[^\"\\\\]*\"|`[^`]*`")

// actions returns the texts between double braces in a format. If an action may have such braces in a string, the rest
// of the format is taken for one action.
func actions(format string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			_, rest, ok := strings.Cut(format, "{{")
			if !ok {
				return
			}
			action, after, _ := strings.Cut(rest, "}}")
			if strings.ContainsAny(templateString().ReplaceAllString(action, ""), "\"'`") {
				action, after = rest, ""
			}
			if !yield(action) {
				return
			}
			format = after
		}
	}
}

// yqEnvironment matches an expression of yq that reads the environment or a file.
var yqEnvironment = lazy.Regexp(`\benv\b|envsubst|strenv|load|(^|[^.\w"])(ENV|eval|system|__prog_\w+)\b`)

// yqArgs refuses expressions that are not literal: some load and split files.
func yqArgs(_ *walker, _ *command, p *parsed) string {
	for _, op := range p.ops {
		switch {
		case op.ofOption || op.kind != 't':
		case !op.known:
			return "the expression is not literal"
		case yqEnvironment().MatchString(op.text):
			return "the expression reads the environment, or a file"
		case slices.Contains([]string{"eval", "eval-all", "e", "ea"}, op.text):
			return "the expression follows " + op.text
		}
	}
	return ""
}

var awkEnvironment = lazy.Regexp(`ENVIRON(\["(\w+)"\])?|SYMTAB`)

// awkShows does the checks of awkArgs, and also finds uses of the environment.
func awkShows(w *walker, c *command, p *parsed) string {
	why := awkArgs(w, c, p)
	for _, a := range c.args[1:] {
		for _, found := range awkEnvironment().FindAllStringSubmatch(a.text, -1) {
			if found[2] == "" || pathrule.SecretVariable(found[2]) {
				return environmentShown
			}
		}
	}
	return why
}

// psArgs refuses the options by which ps shows the environment of processes: E, e without a dash, and e after a
// dash together with a word that is only valid without one, because ps then reads all words without their dashes.
func psArgs(_ *walker, c *command, _ *parsed) string {
	isValue, hasE, otherSyntax := false, false, false // isValue: the word is the value of the option before it
	for _, a := range c.args[1:] {
		text := strings.TrimPrefix(a.text, "-")
		hasDash := len(text) < len(a.text)
		switch {
		case isValue:
			if isValue = false; strings.Contains(text, "env") {
				return environmentShown
			}
			otherSyntax = otherSyntax || !a.known || text == ""
		case !a.known:
			return a.raw + " may be an option that shows the environment"
		case strings.HasPrefix(text, "-"):
			if strings.Contains(text, "env") {
				return environmentShown
			}
		case strings.Contains(text, "E"), strings.Contains(text, "e") && !hasDash, strings.Contains(text, "env"):
			return environmentShown
		default:
			valueLetters := "opqtUkO"
			if hasDash {
				valueLetters = "CGgopqstuUkO"
			}
			i := strings.IndexAny(text, valueLetters)
			isValue = i >= 0 && i == len(text)-1
			hasE = hasE || strings.Contains(text, "e")
			otherSyntax = otherSyntax || strings.Contains(text, "x")
		}
	}
	if hasE && (otherSyntax || isValue) {
		return environmentShown
	}
	return ""
}

// declareArgs requires names of functions, or of variables without a secret.
func declareArgs(w *walker, c *command, p *parsed) string {
	if p.has("-f", "-F") {
		return ""
	}
	return printenvArgs(w, c, p)
}

// printenvArgs requires names of variables without a secret.
func printenvArgs(w *walker, _ *command, p *parsed) string {
	if len(p.ops) == 0 {
		if w.in.noValue {
			return ""
		}
		return environmentShown
	}
	for _, op := range p.ops {
		if !op.known || pathrule.SecretVariable(op.text) {
			return op.raw + " may hold credentials"
		}
	}
	return ""
}

// harmlessNames are beginnings of the names of common variables without secrets, in lower case.
var harmlessNames = strings.Fields("path go node home lang lc_ pwd shell user java python virtual term editor xdg proxy gopath goroot goflags conda display host cuda ruby rust cargo ps1 tz")

// onlyNames reports whether s, which reads the environment from a pipe, shows none of it, or only lines about
// variables without a secret.
func onlyNames(s *syntax.Stmt) bool {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(s.Redirs) > 0 || len(call.Args) == 0 || len(call.Assigns) > 0 {
		return false
	}
	var args []string
	for _, word := range call.Args {
		text := plainText(word)
		if text == "" {
			return false
		}
		args = append(args, text)
	}
	switch {
	case args[0] == "wc":
		return true
	case args[0] == "cut":
		return strings.Join(args[1:], "") == "-d=-f1"
	case args[0] != "grep" && args[0] != "rg":
		return false
	}
	if len(args) > 2 && strings.HasPrefix(args[1], "-") && strings.Trim(args[1], "-iwE") == "" {
		args = args[1:]
	}
	if len(args) != 2 || pathrule.SecretVariable(strings.Trim(args[1], "^=_")) {
		return false
	}
	for alt := range strings.SplitSeq(args[1], "|") {
		anchored := strings.HasPrefix(alt, "^")
		alt = strings.ToLower(strings.TrimPrefix(alt, "^"))
		if len(alt) < 4 && !anchored { // may be inside other names, as go in DJANGO_SECRET_KEY and pwd in MYSQL_PWD
			return false
		}
		if strings.Trim(alt, "abcdefghijklmnopqrstuvwxyz0123456789_=") != "" ||
			!slices.ContainsFunc(harmlessNames, func(name string) bool { return strings.HasPrefix(alt, name) }) {
			return false
		}
	}
	return true
}

// plainText returns the text of a word without expansions, or "".
func plainText(word *syntax.Word) string {
	var b strings.Builder
	for _, part := range word.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, q := range p.Parts {
				lit, ok := q.(*syntax.Lit)
				if !ok {
					return ""
				}
				b.WriteString(lit.Value)
			}
		default:
			return ""
		}
	}
	return b.String()
}
