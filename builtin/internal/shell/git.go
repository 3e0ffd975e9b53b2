package shell

import (
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// gitArgs judges the options before the subcommand and the place where git
// runs. "-C" may be given several times and each counts from the one before
// (git(1)); "-c" too, and every setting holds.
func gitArgs(w *walker, c *command, p *parsed) string {
	for _, a := range c.args {
		if strings.Contains(a.text, "%G") || strings.Contains(a.text, "%(signature") {
			return "the format " + a.raw + " checks signatures with a program"
		}
	}
	dirs, moved := w.cwds, false
	end := p.rest
	if end < 0 {
		end = len(p.args)
	}
	for _, a := range p.args[:end] {
		if len(a.text) > 2 && (a.text[:2] == "-c" || a.text[:2] == "-C") {
			p.whole = a.text[1] == 'c'
			return "the value of " + a.text[:2] + " is not a word of its own"
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
			if !value.known || slices.Contains(strings.Split(strings.TrimPrefix(value.text, "../"), "/"), "..") || moved && strings.HasPrefix(value.text, "..") {
				return "the repository is not known" // ".." after a name that may be a link leads anywhere
			}
			dirs, moved = w.resolveAll(dirs, value.text), true
			i++
		}
	}
	if p.rest < 0 {
		return ""
	}
	if moved && w.lost {
		return "the repository is not known"
	}
	return w.trusted(dirs)
}

// trusted returns why the settings of a project in one of dirs are not those of
// a working directory. Git and some others start programs that a project's own
// settings name: that is what the person works with in a working directory,
// where these settings are protected files, and anybody's code elsewhere.
func (w *walker) trusted(dirs []string) string {
	if w.at.Cwd == "" {
		return ""
	}
	if w.lost {
		return "it runs what the settings of its directory name, and the directory is not known"
	}
	for _, d := range dirs {
		ok := pathrule.Below(d, w.at.Cwd)
		for _, wd := range w.at.Dirs {
			ok = ok || pathrule.Below(d, wd)
		}
		if !ok {
			return "it runs what the settings in " + d + " name, which is not below a working directory"
		}
	}
	return ""
}

// placeArgs is for commands that start programs which the settings of the
// directory they run in name.
func placeArgs(w *walker, _ *command, p *parsed) string {
	if why := noURLArgs(w, nil, p); why != "" {
		return why
	}
	return w.trusted(w.cwds)
}

// gitKeys that only change what is shown. They are compared whole: the parts of
// "diff.NAME.command" may be called anything.
var harmlessGitKeys = strings.Fields("core.quotepath core.abbrev core.commentchar core.autocrlf core.longpaths core.precomposeunicode core.untrackedcache " +
	"grep.linenumber grep.column grep.patterntype log.date log.decorate log.follow log.abbrevcommit log.mailmap diff.renames diff.renamelimit diff.context " +
	"diff.noprefix diff.mnemonicprefix diff.algorithm diff.colormoved diff.interhunkcontext diff.indentheuristic diff.relative diff.submodule diff.wserrorhighlight " +
	"status.short status.branch status.showuntrackedfiles status.relativepaths status.submodulesummary blame.showemail blame.date " +
	"branch.sort tag.sort versionsort.suffix i18n.logoutputencoding merge.renamelimit gc.auto")

// offGitKeys start programs unless they have one of the values that turn them
// off: no, cat for a pager, and a place without hooks.
var offGitKeys = strings.Fields("core.pager core.fsmonitor core.hookspath log.showsignature submodule.recurse maintenance.auto")

func harmlessGitSetting(setting arg) bool {
	key, value, _ := strings.Cut(setting.prefix(), "=")
	key = strings.ToLower(key)
	for _, head := range []string{"color.", "advice.", "column."} {
		if strings.HasPrefix(key, head) {
			return true
		}
	}
	return slices.Contains(harmlessGitKeys, key) ||
		slices.Contains(offGitKeys, key) && setting.known && slices.Contains([]string{"false", "cat", "/dev/null"}, value)
}

// gitConfigArgs accepts the forms of git config that only show.
func gitConfigArgs(_ *walker, c *command, p *parsed) string {
	for _, op := range p.ops {
		if !op.opt && op.option() {
			return op.raw + " may be an option, where no more is one"
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

// gitKeys are settings, or the heads of them, that name programs git runs or
// send what it does elsewhere.
var gitKeys = strings.Fields("alias. core.hookspath core.fsmonitor core.sshcommand core.editor core.pager core.gitproxy core.askpass core.attributesfile " +
	"core.worktree core.alternaterefscommand difftool. mergetool. guitool. receive. tar. imap. credential. filter. diff. merge. pager. interactive. gpg. include. includeif. init.templatedir sequence.editor protocol. url. http. ssh. remote. uploadpack. browser. man. web. trailer. sendemail. submodule.")

// gitWriteArgs raises an alarm for settings that make git run programs.
func gitWriteArgs(w *walker, c *command, _ *parsed) string {
	for _, op := range c.args[1:] {
		key := strings.ToLower(op.text)
		for _, head := range gitKeys {
			if strings.HasPrefix(key, head) {
				w.alarm(Guarded, c.String()+": git may run what it is set to")
				return ""
			}
		}
	}
	return ""
}

// reflogArgs tells the name of a reference from a subcommand.
func reflogArgs(_ *walker, _ *command, p *parsed) string {
	for _, op := range p.ops {
		if !op.known || slices.Contains([]string{"expire", "delete", "drop", "write"}, op.text) {
			return "it may change the reflog"
		}
	}
	return ""
}
