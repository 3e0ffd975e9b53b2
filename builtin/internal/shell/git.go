package shell

import (
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// verifiesSignatures matches a format that makes git verify signatures (git-log(1), PRETTY FORMATS), which runs a
// program: %G?, %+GS, %(signature), or a % before an unknown part.
var verifiesSignatures = lazy.Regexp("%[-+ \x00]?[G\x00]|%\\(\\*?(signature|\x00)")

// gitArgs checks the options before the subcommand, formats after it, and finds the files that the subcommand shows.
func gitArgs(_ *walker, c *command, p *parsed) string {
	for i, a := range c.args {
		if sorts := strings.HasPrefix(a.text, "--sort") || i > 0 && c.args[i-1].text == "--sort"; sorts && strings.Contains(a.text, "signature") {
			return "it sorts by signatures, which a program verifies"
		}
		if format, ok := strings.CutPrefix(a.text, "--submodule="); ok && format != "log" && format != "short" {
			return "it runs git diff in submodules, with settings of their own"
		}
		if strings.Contains(a.text, "%") && verifiesSignatures().MatchString(a.text) || strings.Contains(a.text, hole) && formatsOutput(c.args, i) {
			return "the format " + a.raw + " verifies signatures with a program"
		}
	}
	options := p.args // the words before the subcommand, which is p.args[p.rest]
	if p.rest >= 0 {
		options = p.args[:p.rest]
	}
	for _, a := range options {
		if len(a.text) > 2 && (a.text[:2] == "-c" || a.text[:2] == "-C") {
			p.whole = a.text[1] == 'c' // then only a rule with all words of the command may allow it
			return "the value of " + a.text[:2] + " must be a separate word"
		}
	}
	for i := 0; i+1 < len(options); i++ { // each -c applies
		switch value := options[i+1]; options[i].text {
		case "-c":
			if !harmlessGitSetting(value) {
				p.whole = true
				return "the setting " + value.raw + " may run a program"
			}
			i++
		case "-C":
			i++
		}
	}
	if p.rest >= 0 {
		gitShows(p)
	}
	return ""
}

// formatsOutput reports whether args[i] is the format or the sort key of the output.
func formatsOutput(args []arg, i int) bool {
	for _, option := range []string{"--format", "--pretty", "--sort"} {
		if strings.HasPrefix(args[i].text, option+"=") || i > 0 && args[i-1].text == option {
			return true
		}
	}
	return false
}

// gitShowing are the subcommands that may show the content of files.
var gitShowing = strings.Fields("show archive diff diff-tree diff-files diff-index cat-file blame annotate grep log whatchanged rev-list range-diff stash config status reflog")

// grepValues are the options of git grep whose value is another word.
var grepValues = strings.Fields("-e -f -A -B -C -m --max-depth --max-count --threads --context --after-context --before-context")

// gitShows finds the files that a subcommand shows: operands that may be paths, and the text after the colon in
// HEAD:file and in -L 1,5:file.
func gitShows(p *parsed) {
	sub := p.args[p.rest].text
	if !slices.Contains(gitShowing, sub) {
		return
	}
	showsContent := !slices.Contains([]string{"log", "rev-list", "status", "reflog"}, sub) // these show content only with an option
	afterDashes := false
	comparesFiles := sub == "diff" && slices.ContainsFunc(p.args, func(a arg) bool { return a.text == "--no-index" })
	hasPattern, isValue := false, false // with git grep: the pattern was before this word; this word is the value of an option
	var paths []roleArg
	for i, a := range p.args[p.rest+1:] {
		before := p.args[p.rest+i].text
		switch {
		case isValue:
			isValue = false
		case a.known && a.text == "--":
			afterDashes = true
		case !afterDashes && (before == "-L" || strings.HasPrefix(a.text, "-L")) && strings.Contains(a.text, ":"):
			showsContent = true
			a.text = a.text[strings.LastIndexByte(a.text, ':')+1:]
			paths = append(paths, roleArg{arg: a, kind: 'r', ofOption: true})
		case !afterDashes && strings.HasPrefix(a.text, "-"):
			showsContent = showsContent || asksPatch(a.text) || a.text == "--full-diff"
			hasPattern = hasPattern || a.text == "-e" || a.text == "-f"
			isValue = sub == "grep" && slices.Contains(grepValues, a.text)
		case afterDashes || comparesFiles || hasPattern || a.known && sub != "grep" && sub != "config" || strings.ContainsAny(a.text, "/.:"):
			if file, ok := revisionFile(a.text); ok && !afterDashes {
				if stage, name, ok := strings.Cut(file, ":"); ok && len(stage) == 1 && a.text[0] == ':' { // :0:file
					file = name
				}
				a.text = file
			}
			paths = append(paths, roleArg{arg: a, kind: 'r', ofOption: true})
		case sub == "grep":
			hasPattern = true
		}
	}
	if showsContent {
		p.ops = append(p.ops, paths...)
	}
}

// harmlessGitKeys are settings that only change the output. Their names are compared as a whole, because the setting
// diff.context.command runs a program, unlike diff.context.
var harmlessGitKeys = strings.Fields("core.quotepath core.abbrev core.commentchar core.autocrlf core.longpaths core.precomposeunicode core.untrackedcache " +
	"grep.linenumber grep.column grep.patterntype log.date log.decorate log.follow log.abbrevcommit log.mailmap diff.renames diff.renamelimit diff.context " +
	"diff.noprefix diff.mnemonicprefix diff.algorithm diff.colormoved diff.interhunkcontext diff.indentheuristic diff.relative diff.wserrorhighlight " +
	"status.short status.branch status.showuntrackedfiles status.relativepaths blame.showemail blame.date " +
	"branch.sort tag.sort versionsort.suffix i18n.logoutputencoding merge.renamelimit gc.auto")

// runningGitKeys are settings that make git run a program, unless the value turns that off: false, cat as the pager,
// or /dev/null as the directory of hooks.
var runningGitKeys = strings.Fields("core.pager core.fsmonitor core.hookspath log.showsignature submodule.recurse maintenance.auto")

// harmlessGitSetting reports whether the value of -c, KEY=VALUE, makes git run no program.
func harmlessGitSetting(setting arg) bool {
	key, value, hasValue := strings.Cut(setting.prefix(), "=") // without "=" in the prefix, the key may be incomplete
	key = strings.ToLower(key)
	for _, head := range []string{"color.", "advice.", "column."} {
		if strings.HasPrefix(key, head) {
			return true
		}
	}
	return slices.Contains(harmlessGitKeys, key) && (hasValue || setting.known) ||
		slices.Contains(runningGitKeys, key) && setting.known && slices.Contains([]string{"false", "cat", "/dev/null"}, value)
}

// gitConfigArgs accepts the forms of git config that only read, and show no credentials.
func gitConfigArgs(w *walker, c *command, p *parsed) string {
	for _, op := range p.ops {
		switch {
		case op.ofOption:
		case op.option():
			return op.raw + " may be an option"
		case credentialKey().MatchString(op.text):
			return op.raw + " may hold credentials"
		}
	}
	showsToken := slices.ContainsFunc(p.ops, func(op roleArg) bool { return !op.ofOption && mayHaveToken().MatchString(op.text) })
	if showsToken || p.has("-l", "--list", "--get-regexp", "--get-urlmatch") && !p.has("--name-only") {
		if why := settingsArgs(w, c, p); why != "" { // a setting has credentials
			return why
		}
	}
	if p.has("-l", "--list", "--get", "--get-all", "--get-regexp", "--get-urlmatch", "--get-color", "--get-colorbool") {
		return ""
	}
	if len(p.ops) > 1 {
		return "it sets a value"
	}
	// Names of settings have a dot; a word without a dot may be an action, such as edit.
	if len(p.ops) == 1 && !strings.Contains(p.ops[0].prefix(), ".") {
		return p.ops[0].raw + " is not the name of a setting"
	}
	return ""
}

// gitConfigGetArgs accepts git config get and git config list if they show no credentials.
func gitConfigGetArgs(w *walker, c *command, p *parsed) string {
	for _, op := range p.ops {
		if !op.ofOption && credentialKey().MatchString(op.text) {
			return op.raw + " may hold credentials"
		}
	}
	if p.has("--name-only") {
		return ""
	}
	return settingsArgs(w, c, p)
}

// mayHaveToken matches the name of a setting whose value may have a token, such as an address, and an unknown name.
var mayHaveToken = lazy.Regexp(`(?i)url|proxy|helper|\x00`)

// alarmingGitKeys are beginnings of the names of settings that make git run a program or use another server.
var alarmingGitKeys = strings.Fields("alias. core.hookspath core.fsmonitor core.sshcommand core.editor core.pager core.gitproxy core.askpass core.attributesfile " +
	"core.worktree core.alternaterefscommand difftool. mergetool. guitool. receive. tar. imap. credential. filter. diff. merge. pager. interactive. gpg. include. includeif. init.templatedir sequence.editor protocol. url. http. ssh. remote. uploadpack. browser. man. web. trailer. sendemail. submodule.")

// gitWriteArgs raises an alarm if git config writes one of alarmingGitKeys.
func gitWriteArgs(w *walker, c *command, _ *parsed) string {
	for _, op := range c.args[1:] {
		key := strings.ToLower(op.text)
		for _, head := range alarmingGitKeys {
			if strings.HasPrefix(key, head) {
				w.alarm(Guarded, c.String()+": git may run the program in the setting")
				return ""
			}
		}
	}
	return ""
}

// reflogArgs refuses operands of git reflog that are subcommands which change it, or may be.
func reflogArgs(_ *walker, _ *command, p *parsed) string {
	for _, op := range p.ops {
		if !op.known || slices.Contains([]string{"expire", "delete", "drop", "write"}, op.text) {
			return "it may change the reflog"
		}
	}
	return ""
}
