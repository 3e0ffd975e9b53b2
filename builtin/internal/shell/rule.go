package shell

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A pattern is the pattern of a rule for commands. It has one of three forms:
//
//	git commit:*   the words at the start of a command
//	git * main     "*" is any text; "git *" also covers "git"; \* is a star
//	git commit     allow: the words at the start; deny and ask: any part
type pattern struct {
	prefix string   // first form
	parts  []string // second form: the text between the stars
	text   string   // third form
}

func parsePattern(s string) (pattern, error) {
	bad := func(why string) (pattern, error) {
		return pattern{}, fmt.Errorf("command pattern %q: %s; write the first words and :*, such as git commit:*", s, why)
	}
	trimmed := strings.TrimSpace(s)
	if trimmed == "" || trimmed == ":*" {
		return bad("it is empty and would cover everything")
	}
	if strings.Contains(s, hole) { // it would match unknown text
		return bad("it has a NUL byte")
	}
	if head, ok := strings.CutSuffix(trimmed, ":*"); ok {
		parts := starParts(head)
		if len(parts) == 1 {
			return pattern{prefix: strings.TrimSpace(parts[0])}, nil
		}
		return pattern{parts: append(parts, "")}, nil
	}
	parts := starParts(trimmed)
	if len(parts) == 1 {
		return pattern{text: parts[0]}, nil
	}
	return pattern{parts: parts}, nil
}

// withoutRedirections returns a pattern without its redirections, or "" if it has none.
func withoutRedirections(s string) string {
	if !strings.ContainsAny(s, "<>") { // nearly all patterns
		return ""
	}
	head, prefix := strings.CutSuffix(strings.TrimSpace(s), ":*")
	file, err := parseText(head, parsers)
	if err != nil || len(file.Stmts) != 1 || len(file.Stmts[0].Redirs) == 0 || file.Stmts[0].Cmd == nil {
		return ""
	}
	plain := strings.TrimSpace(head[:file.Stmts[0].Redirs[0].Pos().Offset()])
	if prefix {
		return plain + ":*"
	}
	return plain
}

// splitCommands returns a rule for each of the commands in a pattern; nil if there is only one.
func splitCommands(s string) []string {
	if !strings.ContainsAny(s, "&|;\n") { // nearly all patterns
		return nil
	}
	head, prefix := strings.CutSuffix(strings.TrimSpace(s), ":*")
	file, err := parseText(head, parsers)
	if err != nil { // the pattern of one command need not be valid bash
		return nil
	}
	var rules []string
	var add func(stmts ...*syntax.Stmt)
	add = func(stmts ...*syntax.Stmt) {
		for _, stmt := range stmts {
			if b, ok := stmt.Cmd.(*syntax.BinaryCmd); ok {
				add(b.X, b.Y)
				continue
			}
			text := strings.TrimRight(head[stmt.Pos().Offset():stmt.End().Offset()], ";& ")
			rules = append(rules, "Bash("+text+")")
		}
	}
	add(file.Stmts...)
	if len(rules) < 2 {
		return nil
	}
	if prefix {
		last := &rules[len(rules)-1]
		*last = strings.TrimSuffix(*last, ")") + ":*)"
	}
	return rules
}

// starParts splits s at its stars and removes the escapes.
func starParts(s string) []string {
	var parts []string
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == '*' || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		case s[i] == '*':
			parts = append(parts, b.String())
			b.Reset()
		default:
			b.WriteByte(s[i])
		}
	}
	return append(parts, b.String())
}

// matches reports whether the pattern covers the whole of text.
func (p pattern) matches(text string) bool {
	switch {
	case p.prefix != "":
		return startsWith(text, p.prefix)
	case p.parts != nil:
		if len(p.parts) == 2 && p.parts[1] == "" && p.parts[0] == text+" " { // "git *" also covers "git"
			return true
		}
		return glob(p.parts, text)
	}
	return startsWith(text, p.text)
}

// startsWith reports whether text is words, or words followed by a blank and more.
func startsWith(text, words string) bool {
	return strings.HasPrefix(text, words) && (len(text) == len(words) || text[len(words)] == ' ')
}

// glob reports whether text consists of the parts, in order, with any text between them.
func glob(parts []string, text string) bool {
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, last)
}

// onlyStars reports whether the pattern consists only of stars. A deny rule of stars also covers a redirection without a
// command.
func (p pattern) onlyStars() bool {
	return p.parts != nil && strings.Trim(strings.Join(p.parts, ""), " ") == ""
}

// innerBlank stands for a blank inside a word of a command: "./run x" is another program than "./run".
const innerBlank = "\x01"

// allowed returns the spellings of c that an allow rule is compared with. Only a star covers the holes for unknown
// text, and an inner blank unless the pattern contains its whole word.
func (c *command) allowed(p pattern) []string {
	literals := p.literals()
	hasInner := false
	var words []string
	for i, a := range c.args {
		switch {
		case i == 0 && slices.Contains(standardDirs, path.Dir(a.text)):
			words = append(words, path.Base(a.text))
		case a.known || a.wild:
			words = append(words, a.text)
		default:
			words = append(words, hole+a.text)
		}
		if last := &words[i]; strings.Contains(*last, " ") && (i == 0 || !strings.Contains(literals, *last)) {
			*last, hasInner = strings.ReplaceAll(*last, " ", innerBlank), true
		}
	}
	forms := []string{strings.Join(words, " ")}
	spansQuotes := hasInner && p.parts != nil && !strings.ContainsAny(literals, `"'`) // the pattern's blanks may be in quotes
	if !strings.ContainsAny(c.text, "`$<>") && !spansQuotes {
		forms = append(forms, c.text)
	}
	return forms
}

// spellings returns the texts of c that deny and ask rules are compared with.
func (c *command) spellings() []string {
	if len(c.args) == 0 {
		return []string{c.text}
	}
	words := make([]string, len(c.args))
	for i, a := range c.args {
		words[i] = a.String()
	}
	forms := []string{strings.Join(words, " "), strings.TrimSpace(c.text)}
	words[0] = path.Base(words[0])
	forms = append(forms, strings.Join(words, " "))
	return append(forms, withoutOptions(words[0], words[1:])...)
}

// withoutOptions returns the spellings of a command, name and the words after it, without the options before its
// subcommands. A word after an option may be the option's value or a subcommand, so there is a spelling for both.
func withoutOptions(name string, words []string) []string {
	f := familyOf(name)
	if f == nil || !f.hasSubcommands && len(f.subs) == 0 {
		return nil
	}
	var forms []string
	for i, word := range words {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+") { // cargo +nightly
			continue
		}
		forms = append(forms, name+" "+strings.Join(words[i:], " "))
		if i < maxGlobalOptions {
			forms = append(forms, withoutOptions(name+" "+word, words[i+1:])...)
		}
		if i == 0 || !strings.HasPrefix(words[i-1], "-") {
			break
		}
	}
	return forms
}

// maxGlobalOptions is how many words before a subcommand are left out to find the subcommand below it. The limit exists
// because each word may be that subcommand.
const maxGlobalOptions = 16

// familyOf returns the family of a command with its subcommands, such as "docker compose", or nil.
func familyOf(name string) *family {
	f := &family{subs: families()}
	for word := range strings.FieldsSeq(name) {
		if f = f.subs[word]; f == nil {
			return nil
		}
	}
	return f
}

// CoveredBy reports whether allow rules cover the command: every simple command is read-only or covered by a pattern,
// first covers at least one simple command, and there are no redirections or assignments with effects. An opaque wrapper,
// such as sudo or xargs, must be covered itself, and options that run programs beyond the command's purpose must be in
// the pattern: see the package doc. An error means that first is invalid; other invalid patterns cover nothing.
func (a *Analysis) CoveredBy(first string, others ...string) (bool, error) {
	p, err := parsePattern(first)
	if err != nil {
		return false, err
	}
	if rules := splitCommands(first); rules != nil {
		return false, fmt.Errorf("command pattern %q joins several commands, but a rule covers one simple command; write a rule for each: %s",
			first, strings.Join(rules, " and "))
	}
	if plain := withoutRedirections(first); plain != "" {
		return false, fmt.Errorf("command pattern %q has a redirection, but a rule covers a command without its redirections; write Bash(%s)", first, plain)
	}
	patterns := []pattern{p}
	for _, other := range others {
		if q, err := parsePattern(other); err == nil {
			patterns = append(patterns, q)
		}
	}
	if a.err != nil || a.uncoverable {
		return false, nil
	}
	covered := false
	need := a.mustCover()
	for i := range a.cmds {
		c := &a.cmds[i]
		if c.coveredBy(p) {
			covered = true
		} else if need[i] && !slices.ContainsFunc(patterns, c.coveredBy) {
			return false, nil
		}
	}
	return covered, nil
}

// mustCover returns the indices of the commands that a rule must cover: those that are not read-only, or the opaque
// wrappers around them.
func (a *Analysis) mustCover() map[int]bool {
	need := map[int]bool{}
	for i := range a.cmds {
		switch c := &a.cmds[i]; {
		case c.Reason == "":
		case c.in.opaque:
			need[int(c.in.wrapper)] = true
		default:
			need[i] = true
		}
	}
	return need
}

func (c *command) coveredBy(p pattern) bool {
	if c.redirs || len(c.args) == 0 {
		return false
	}
	if slices.ContainsFunc(c.named, func(option string) bool { return !p.hasWord(option) || c.repeats(option, p) }) || c.joinsBeyond(p) {
		return false
	}
	for _, form := range c.allowed(p) {
		if c.whole && form != p.prefix && form != p.text {
			continue
		}
		if p.matches(form) && (c.args[0].known || form == c.text && p.literalHead()) {
			return true
		}
	}
	return false
}

// literals returns the text of the pattern with its stars.
func (p pattern) literals() string { return p.prefix + p.text + strings.Join(p.parts, "*") }

// repeats reports whether the command has an option more often than the pattern, which continues after it: the pattern
// "find . -exec cat:*" does not cover a second -exec.
func (c *command) repeats(option string, p pattern) bool {
	words := strings.Fields(strings.TrimRight(p.literals(), "* "))
	if len(words) == 0 || words[len(words)-1] == option {
		return false
	}
	isOption := func(word string) bool { return word == option || strings.HasPrefix(word, option+"=") }
	extra := 0
	for _, a := range c.args {
		if isOption(a.text) {
			extra++
		}
	}
	for _, word := range words {
		if isOption(word) {
			extra--
		}
	}
	return extra > 0
}

// joinsBeyond reports whether the pattern names a command that a shell runs for c, but other words of the shell's code
// may add another command: "ssh host ls:*" does not cover "ssh host ls ';' rm x".
func (c *command) joinsBeyond(p pattern) bool {
	words := len(strings.Fields(p.literals()))
	if c.joined == 0 || words <= c.joined || words >= len(c.args) && p.parts == nil {
		return false
	}
	return slices.ContainsFunc(c.args[c.joined:], func(a arg) bool {
		return !a.known && !a.wild || strings.ContainsAny(a.text, ";&|<>()$`\n")
	})
}

// hasWord reports whether the option is in the pattern as a word, with or without a value: "--exclude" does not contain
// "-e", and "-execdir" does not contain "-exec". A value may follow an option of one letter directly.
func (p pattern) hasWord(option string) bool {
	text := " " + p.prefix + strings.Join(p.parts, " ") + p.text
	for {
		_, after, ok := strings.Cut(text, " "+option)
		if !ok || after == "" || len(option) == 2 || !isWordByte(after[0]) && after[0] != '-' {
			return ok
		}
		text = after
	}
}

// literalHead reports whether the first word of the pattern has no star. Only such a pattern covers a command whose name
// is not literal, such as $CMD, and only as the command is written.
func (p pattern) literalHead() bool {
	return p.parts == nil || strings.Contains(strings.TrimSpace(p.parts[0]), " ")
}

// Mentions reports whether the pattern of a deny or ask rule covers any part of the command: a simple command,
// including one inside a wrapper, in any spelling. A command that cannot be parsed, or whose name or
// subcommand is not literal, counts as covered. An invalid pattern is an error.
func (a *Analysis) Mentions(rule string) (bool, error) {
	p, err := parsePattern(rule)
	if err != nil {
		return true, err
	}
	// People also write rules for the whole line, as they see it.
	if a.err != nil || p.onlyStars() || p.matchesAnywhere(a.src) {
		return true, nil
	}
	for i := range a.cmds {
		c := &a.cmds[i]
		if len(c.args) > 0 && !c.args[0].known || c.unknownSubcommand(p) || slices.ContainsFunc(c.spellings(), p.matchesAnywhere) {
			return true, nil
		}
	}
	return false, nil
}

// unknownSubcommand reports whether the first word after the command's name is not literal, so that it may be the
// subcommand of the pattern, or expand to nothing before it.
func (c *command) unknownSubcommand(p pattern) bool {
	if len(c.args) < 2 || c.args[1].known || !hasSubcommands(c.name) {
		return false
	}
	words := strings.Fields(p.literals())
	return len(words) > 1 && words[0] == c.name
}

// matchesAnywhere is matches for deny and ask rules: a plain text may be anywhere in the command.
func (p pattern) matchesAnywhere(text string) bool {
	if p.text != "" {
		return strings.Contains(text, p.text)
	}
	return p.matches(text)
}

// neverSuggested are commands for which no rule is suggested, because it would allow anything: they run other programs
// or code, send data to other machines, or remove safeguards.
var neverSuggested = strings.Fields(`sudo doas su pkexec runuser env xargs parallel watch ssh scp sftp rsync curl wget nc ncat socat
	telnet ftp eval exec source . command builtin time timeout nice nohup setsid stdbuf find awk gawk mawk nawk dd tee chmod chown
	chroot unshare nsenter script expect screen tmux flock systemd-run at batch crontab npx bunx pnpx uvx pipx vim vi nvim emacs ed ex
	less more man gcloud az gdb lldb strace ltrace busybox firejail fakeroot export declare alias trap set unset`)

// dangerousSubs are subcommands for which no rule is suggested, because they do more harm than the others of their program.
var dangerousSubs = strings.Fields(`docker.run docker.exec docker.container.run docker.container.exec
	docker.compose.run docker.compose.exec podman.run podman.exec podman.container.run podman.container.exec npm.exec npm.x pnpm.dlx pnpm.exec yarn.dlx yarn.exec
	git.send-email kubectl.exec kubectl.run kubectl.delete git.config git.filter-branch git.bisect git.submodule gh.api gh.alias gh.extension
	cargo.install go.generate go.run uv.run poetry.run pipenv.run bundle.exec mise.exec rbenv.exec aws.ssm systemctl.link`)
