package shell

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// gitRuns returns why git, run in the resolved directory dir, may start a program that the settings of its repository
// name, or "". It does not check what [Analysis.Environ] turns off: hooks, core.fsmonitor, fetches.
func gitRuns(at *pathrule.Place, dir string) string {
	if top := workTree(at, dir); top != "" {
		if why := repositoryRuns(at, top); why != "" {
			return why + ", and " + top + " is not trusted"
		}
	}
	return ""
}

// workTree returns the directory at or above the resolved directory dir that is the top of a git work tree, or "".
func workTree(at *pathrule.Place, dir string) string {
	for dir != "" && !at.Exists(under(dir, ".git")) {
		if dir == "/" {
			return ""
		}
		dir = path.Dir(dir)
	}
	return dir
}

// repositoryOf returns the repository of the work tree with this top, and the repository whose settings it shares: in a
// linked work tree that of the main work tree, otherwise the same (gitrepository-layout(5)). Both are "" if a path is
// unknown.
func repositoryOf(at *pathrule.Place, top string) (repository, common string) {
	repository = at.Real(under(top, ".git"))
	if text, err := at.Contents(repository, maxSettings); err == nil { // a file, in linked work trees and submodules
		to, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), "gitdir: ")
		if !ok {
			return "", ""
		}
		repository = at.Real(under(path.Dir(repository), to))
	}
	common = repository
	if text, err := at.Contents(path.Join(repository, "commondir"), maxSettings); err == nil {
		common = at.Real(under(repository, strings.TrimRight(string(text), "\r\n")))
	}
	if repository == "" || common == "" {
		return "", ""
	}
	return repository, common
}

// maxIndex is the size of the largest git index that is read.
const maxIndex = 16 << 20

// repositoryRuns is gitRuns for the work tree with this top.
func repositoryRuns(at *pathrule.Place, top string) string {
	repository, common := repositoryOf(at, top)
	if repository == "" {
		return "it may run programs of the repository that " + under(top, ".git") + " points to"
	}
	for _, file := range []string{path.Join(common, "config"), path.Join(repository, "config.worktree")} {
		if !at.Exists(file) {
			continue
		}
		text, err := at.Contents(file, maxSettings)
		if err != nil {
			return file + " cannot be read"
		}
		if why := configRuns(string(text)); why != "" {
			return file + ": " + why
		}
	}
	// git status and git diff also apply the settings of submodules.
	if at.Exists(path.Join(common, "modules")) {
		return "its submodules have settings of their own"
	}
	index := path.Join(repository, "index")
	if !at.Exists(index) {
		return ""
	}
	// A submodule has the mode 0160000, in four bytes (gitformat-index(5)). The extension "link" says that another file
	// lists the other entries.
	if text, err := at.Contents(index, maxIndex); err != nil || bytes.Contains(text, []byte{0, 0, 0xe0, 0}) || bytes.Contains(text, []byte("link\x00")) {
		return "its submodules may have settings of their own"
	}
	return ""
}

// credentialKey matches the name of a setting that has credentials, and credentialSetting the line of such a setting, or
// an address with a password or token.
var (
	credentialKey     = lazy.Regexp(`(?i)extraheader|pass(word|wd|phrase)?$|token|secret|apikey|oauth`)
	credentialSetting = lazy.Regexp(`(?im)extraheader|^\s*[\w-]*(pass(word|wd|phrase)?|token|secret|apikey)\s*=|://([^/@\s:]*:[^/@\s]+|[^/@\s:]{20,})@`)
)

// credentialSettings returns where the settings of git in dir have credentials, or "".
func credentialSettings(at *pathrule.Place, dir string) string {
	var files []string
	if at.Home != "" {
		files = append(files, at.Home+"/.gitconfig", at.Home+"/.config/git/config")
	}
	if top := workTree(at, at.Real(dir)); top != "" {
		repository, common := repositoryOf(at, top)
		if repository == "" {
			return under(top, ".git") + " points to an unknown repository"
		}
		files = append(files, path.Join(common, "config"), path.Join(common, "config.worktree"), path.Join(repository, "config.worktree"))
	}
	files = append(files, "/etc/gitconfig")
	for i := 0; i < len(files); i++ {
		file := files[i]
		if !at.Exists(file) {
			continue
		}
		text, err := at.Contents(file, maxSettings)
		if err != nil || credentialSetting().Match(text) {
			return file + " has credentials"
		}
		for _, match := range includedFile().FindAllSubmatch(text, maxIncluded) {
			name := string(match[1])
			if home, ok := strings.CutPrefix(name, "~/"); ok {
				name = under(at.Home, home)
			} else if strings.ContainsAny(name, `~%\`) {
				return file + " includes a file with an unknown path"
			}
			if name = under(path.Dir(file), name); !slices.Contains(files, name) {
				files = append(files, name)
			}
		}
		if len(files) > maxIncluded {
			return file + " includes too many files to look for credentials in them"
		}
	}
	return ""
}

// includedFile matches the line of a setting include.path or includeIf.CONDITION.path.
var includedFile = lazy.Regexp(`(?im)^\s*(?:\[[^\n]*\]\s*)?path\s*=\s*"?([^"\n#;]*[^"\s#;])`)

// maxIncluded is how many files with settings are searched for credentials.
const maxIncluded = 32

// settingsFiles are names of files with settings of git, in a directory or in its repository.
var settingsFiles = []string{"config", "config.worktree", ".gitconfig"}

// secretSettings returns why showing the file shows credentials, if it has settings of git, or "".
func secretSettings(at *pathrule.Place, file string) string {
	if !slices.Contains(settingsFiles, path.Base(file)) || !at.Exists(file) {
		return ""
	}
	if text, err := at.Contents(file, maxSettings); err == nil && credentialSetting().Match(text) {
		return file + " has credentials"
	}
	return ""
}

// secretSettingsIn is secretSettings for the files in dir and in dir/.git whose names match one of the patterns bases;
// nil matches any.
func secretSettingsIn(at *pathrule.Place, dir string, bases []string) string {
	for _, name := range settingsFiles {
		if !pathrule.NameMatches(name, bases) {
			continue
		}
		if why := cmp.Or(secretSettings(at, path.Join(dir, name)), secretSettings(at, path.Join(dir, ".git", name))); why != "" {
			return why
		}
	}
	return ""
}

// settingsArgs refuses to show the settings of git if they have credentials.
func settingsArgs(w *walker, c *command, _ *parsed) string {
	for _, d := range c.gitDirs() {
		if why := w.answer(fact{question: secretInSettings, dir: d}); why != "" {
			return "it shows settings, and " + why
		}
	}
	return ""
}

// under returns the path of name relative to dir.
func under(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

// An idle setting does not make a command of git that only reads run a program. idleSections are sections with idle
// settings: for the network, for editing, or for colors.
var idleSections = strings.Fields("author committer user color column advice branch pull push fetch rebase merge mergetool difftool guitool gui gc " +
	"maintenance pack index feature status tag commit init rerere stash svn http https credential url protocol receive transfer uploadpack sendemail " +
	"i18n lfs cvs remotes web browser instaweb imap am apply clean clone checkout worktree notes sequence versionsort blame grep core pager interactive vsts-config github hub gitflow gh")

// idleKeys are the idle settings of other sections.
var idleKeys = strings.Fields("diff.renames diff.renamelimit diff.context diff.noprefix diff.mnemonicprefix diff.algorithm diff.colormoved " +
	"diff.colormovedws diff.interhunkcontext diff.indentheuristic diff.relative diff.wserrorhighlight diff.tool diff.guitool diff.statgraphwidth diff.autorefreshindex " +
	"log.date log.decorate log.follow log.abbrevcommit log.mailmap log.showroot log.showsignature log.diffmerges extensions.objectformat extensions.worktreeconfig extensions.refstorage extensions.noop extensions.preciousobjects " +
	"remote.url remote.pushurl remote.fetch remote.push remote.tagopt remote.prune remote.prunetags remote.mirror remote.proxy remote.skipdefaultupdate remote.skipfetchall remote.gh-resolved remote.pushdefault " +
	"submodule.active submodule.url submodule.fetchjobs")

// busyKeys are the settings of idleSections that are not idle or have another effect: the path of the work tree, and
// files whose lines error messages show.
var busyKeys = strings.Fields("core.worktree core.gitproxy core.alternaterefscommand core.virtualfilesystem core.gvfs core.excludesfile core.attributesfile " +
	"blame.ignorerevsfile status.submodulesummary")

// idleSetting expects section and key in lower case.
func idleSetting(section, sub, key string) bool {
	switch full := section + "." + key; {
	case section == "alias":
		return families()["git"].subs[cmp.Or(sub, key)] == nil // the tables accept no command with another name
	case (section == "merge" || section == "lfs") && sub != "":
		return false // merge drivers for git log --remerge-diff, and programs for git lfs
	case section == "diff" && sub != "":
		return slices.Contains([]string{"binary", "xfuncname", "funcname", "wordregex", "algorithm"}, key)
	case slices.Contains(busyKeys, full):
		return false
	default:
		return slices.Contains(idleSections, section) || slices.Contains(idleKeys, full)
	}
}

// configRuns returns which setting in a file with the syntax of git-config(1) makes a command of git that only reads run
// a program, or "". It accepts no continued lines, and nothing else that git might read differently.
func configRuns(text string) string {
	const bad = "its settings cannot be parsed"
	if strings.ContainsRune(text, 0) {
		return bad
	}
	section, sub := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if strings.ContainsRune(line, '\r') || strings.HasSuffix(line, `\`) {
			return bad
		}
		line = strings.TrimLeft(line, " \t")
		for strings.HasPrefix(line, "[") {
			var ok bool
			if section, sub, line, ok = configHeader(line[1:]); !ok {
				return bad
			}
			line = strings.TrimLeft(line, " \t")
		}
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		n := 0
		for n < len(line) && isKeyByte(line[n]) {
			n++
		}
		rest := strings.TrimLeft(line[n:], " \t")
		if n == 0 || section == "" || rest != "" && !strings.ContainsAny(rest[:1], "=#;") {
			return bad
		}
		if key := strings.ToLower(line[:n]); !idleSetting(section, sub, key) {
			return "the setting " + strings.Trim(section+"."+sub, ".") + "." + key + " may run a program"
		}
	}
	return ""
}

// isKeyByte reports whether c may be in the name of a setting or section.
func isKeyByte(c byte) bool { return isWordByte(c) && c != '_' || c == '-' }

// configHeader parses the name of a section after "[", and returns the rest of the line after "]".
func configHeader(s string) (section, sub, rest string, ok bool) {
	n := 0
	for n < len(s) && (isKeyByte(s[n]) || s[n] == '.') {
		n++
	}
	section, s = strings.ToLower(s[:n]), s[n:]
	if section, sub, ok = strings.Cut(section, "."); ok { // [section.subsection], a deprecated spelling
		return section, sub, strings.TrimPrefix(s, "]"), strings.HasPrefix(s, "]")
	}
	if rest, ok = strings.CutPrefix(s, "]"); ok {
		return section, "", rest, section != ""
	}
	s, ok = strings.CutPrefix(strings.TrimLeft(s, " \t"), `"`)
	var b strings.Builder
	for i := 0; ok && i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == '"':
			return section, b.String(), strings.TrimPrefix(s[i+1:], "]"), strings.HasPrefix(s[i+1:], "]") && section != ""
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", "", false
}
