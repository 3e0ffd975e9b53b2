package shell

import (
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// signatures matches a format that makes git verify signatures (git-log(1), PRETTY FORMATS): a
// flag, or an unknown part, may follow the percent sign.
var signatures = lazy.Regexp("%[-+ \x00]?[G\x00]|%\\(\\*?(signature|\x00)")

// gitArgs checks the options before the subcommand. "-c" may be repeated, and every setting
// applies (git(1)).
func gitArgs(w *walker, c *command, p *parsed) string {
	for i, a := range c.args {
		if sorts := strings.HasPrefix(a.text, "--sort") || i > 0 && c.args[i-1].text == "--sort"; sorts && strings.Contains(a.text, "signature") {
			return "it sorts by signatures, which a program verifies"
		}
		if format, ok := strings.CutPrefix(a.text, "--submodule="); ok && format != "log" && format != "short" {
			return "it runs git diff in submodules, with settings of their own"
		}
		if strings.Contains(a.text, "%") && signatures().MatchString(a.text) || strings.Contains(a.text, hole) && formatsOutput(c.args, i) {
			return "the format " + a.raw + " verifies signatures with a program"
		}
	}
	end := p.rest
	if end < 0 {
		end = len(p.args)
	}
	for _, a := range p.args[:end] {
		if len(a.text) > 2 && (a.text[:2] == "-c" || a.text[:2] == "-C") {
			p.whole = a.text[1] == 'c'
			return "the value of " + a.text[:2] + " must be a separate word"
		}
	}
	for i := 0; i+1 < end; i++ {
		value := p.args[i+1]
		switch p.args[i].text {
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

// formatsOutput reports whether args[i] is a format or the order of the output.
func formatsOutput(args []arg, i int) bool {
	for _, option := range []string{"--format", "--pretty", "--sort"} {
		if strings.HasPrefix(args[i].text, option+"=") || i > 0 && args[i-1].text == option {
			return true
		}
	}
	return false
}

// gitShown are the subcommands that show the content of files.
var gitShown = strings.Fields("show archive diff diff-tree diff-files diff-index cat-file blame annotate grep log whatchanged rev-list range-diff stash config status reflog")

// grepValues are the options of git grep whose value is another word.
var grepValues = strings.Fields("-e -f -A -B -C -m --max-depth --max-count --threads --context --after-context --before-context")

// gitShows finds the files that a subcommand shows: operands that may be paths, and the text after the colon in
// HEAD:file and in -L 1,5:file.
func gitShows(p *parsed) {
	sub := p.args[p.rest].text
	if !slices.Contains(gitShown, sub) {
		return
	}
	patch, after := !slices.Contains([]string{"log", "rev-list", "status", "reflog"}, sub), false
	files := sub == "diff" && slices.ContainsFunc(p.args, func(a arg) bool { return a.text == "--no-index" })
	pattern, value := false, false // git grep: the pattern is before this word; this word is the value of an option
	var paths []roleArg
	for i, a := range p.args[p.rest+1:] {
		before := p.args[p.rest+i].text
		switch {
		case value:
			value = false
		case a.known && a.text == "--":
			after = true
		case !after && (before == "-L" || strings.HasPrefix(a.text, "-L")) && strings.Contains(a.text, ":"):
			patch = true
			a.text = a.text[strings.LastIndexByte(a.text, ':')+1:]
			paths = append(paths, roleArg{arg: a, kind: 'r', opt: true})
		case !after && strings.HasPrefix(a.text, "-"):
			patch = patch || asksPatch(a.text) || a.text == "--full-diff"
			pattern = pattern || a.text == "-e" || a.text == "-f"
			value = sub == "grep" && slices.Contains(grepValues, a.text)
		case after || files || pattern || a.known && sub != "grep" && sub != "config" || strings.ContainsAny(a.text, "/.:"):
			if file, ok := revisionFile(a.text); ok && !after {
				if n, name, stage := strings.Cut(file, ":"); stage && len(n) == 1 && a.text[0] == ':' { // :0:file
					file = name
				}
				a.text = file
			}
			paths = append(paths, roleArg{arg: a, kind: 'r', opt: true})
		case sub == "grep":
			pattern = true
		}
	}
	if patch {
		p.ops = append(p.ops, paths...)
	}
}

// harmlessGitKeys only change the output. They are compared as a whole, since the middle of a key such as
// "diff.NAME.command" may be any name.
var harmlessGitKeys = strings.Fields("core.quotepath core.abbrev core.commentchar core.autocrlf core.longpaths core.precomposeunicode core.untrackedcache " +
	"grep.linenumber grep.column grep.patterntype log.date log.decorate log.follow log.abbrevcommit log.mailmap diff.renames diff.renamelimit diff.context " +
	"diff.noprefix diff.mnemonicprefix diff.algorithm diff.colormoved diff.interhunkcontext diff.indentheuristic diff.relative diff.wserrorhighlight " +
	"status.short status.branch status.showuntrackedfiles status.relativepaths blame.showemail blame.date " +
	"branch.sort tag.sort versionsort.suffix i18n.logoutputencoding merge.renamelimit gc.auto")

// offGitKeys start programs unless they have one of the values that turn them off: no, cat for
// a pager, and a path without hooks.
var offGitKeys = strings.Fields("core.pager core.fsmonitor core.hookspath log.showsignature submodule.recurse maintenance.auto")

func harmlessGitSetting(setting arg) bool {
	key, value, complete := strings.Cut(setting.prefix(), "=")
	key = strings.ToLower(key)
	for _, head := range []string{"color.", "advice.", "column."} {
		if strings.HasPrefix(key, head) {
			return true
		}
	}
	return slices.Contains(harmlessGitKeys, key) && (complete || setting.known) ||
		slices.Contains(offGitKeys, key) && setting.known && slices.Contains([]string{"false", "cat", "/dev/null"}, value)
}

// gitConfigArgs accepts the forms of git config that only read, and show no credentials.
func gitConfigArgs(w *walker, c *command, p *parsed) string {
	for _, op := range p.ops {
		switch {
		case op.opt:
		case op.option():
			return op.raw + " may be an option"
		case credentialKey().MatchString(op.text):
			return op.raw + " may hold credentials"
		}
	}
	if p.has("-l", "--list", "--get-regexp", "--get-urlmatch") && !p.has("--name-only") || slices.ContainsFunc(p.ops, func(op roleArg) bool { return !op.opt && urlKey().MatchString(op.text) }) {
		if why := settingsArgs(w, c, p); why != "" {
			return why
		}
	}
	if p.has("-l", "--list", "--get", "--get-all", "--get-regexp", "--get-urlmatch", "--get-color", "--get-colorbool") {
		return ""
	}
	if len(p.ops) > 1 {
		return "it sets a value"
	}
	// A word without a dot may be an action, such as "edit".
	if len(p.ops) == 1 && !strings.Contains(p.ops[0].prefix(), ".") {
		return p.ops[0].raw + " is not the name of a setting"
	}
	return ""
}

// getConfigArgs is gitConfigArgs for git config get and git config list.
func getConfigArgs(w *walker, c *command, p *parsed) string {
	for _, op := range p.ops {
		if !op.opt && credentialKey().MatchString(op.text) {
			return op.raw + " may hold credentials"
		}
	}
	if p.has("--name-only") {
		return ""
	}
	return settingsArgs(w, c, p)
}

// urlKey matches the name of a setting with an address, in which a token may be.
var urlKey = lazy.Regexp(`(?i)url|proxy|helper|\x00`)

// gitKeys are settings, or prefixes of them, that name programs which git runs, or send its
// data to another place.
var gitKeys = strings.Fields("alias. core.hookspath core.fsmonitor core.sshcommand core.editor core.pager core.gitproxy core.askpass core.attributesfile " +
	"core.worktree core.alternaterefscommand difftool. mergetool. guitool. receive. tar. imap. credential. filter. diff. merge. pager. interactive. gpg. include. includeif. init.templatedir sequence.editor protocol. url. http. ssh. remote. uploadpack. browser. man. web. trailer. sendemail. submodule.")

// gitWriteArgs raises an alarm for settings that make git run programs.
func gitWriteArgs(w *walker, c *command, _ *parsed) string {
	for _, op := range c.args[1:] {
		key := strings.ToLower(op.text)
		for _, head := range gitKeys {
			if strings.HasPrefix(key, head) {
				w.alarm(Guarded, c.String()+": git may run the program in the setting")
				return ""
			}
		}
	}
	return ""
}

// reflogArgs distinguishes names of references from subcommands.
func reflogArgs(_ *walker, _ *command, p *parsed) string {
	for _, op := range p.ops {
		if !op.known || slices.Contains([]string{"expire", "delete", "drop", "write"}, op.text) {
			return "it may change the reflog"
		}
	}
	return ""
}
