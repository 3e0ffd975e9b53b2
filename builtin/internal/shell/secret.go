package shell

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// Showing a secret is not an effect, but needs approval. A command that names a secret, perhaps by wildcards, is a
// danger. A command that may only reach a secret, in a tree or by names that another command finds, is not read-only,
// and a rule may allow it.

// showsNoWords reports whether the command shows nothing of its words, even in errors, as a test that compares texts.
func (c *command) showsNoWords() bool {
	switch c.name {
	case ":", "true", "false", "[[":
		return true
	case "test", "[":
	default:
		return false
	}
	args := c.args[1:]
	if c.name == "[" && len(args) > 0 {
		args = args[:len(args)-1]
	}
	if len(args) > 2 && args[0].known && args[0].text == "!" {
		args = args[1:]
	}
	unary := len(args) == 2 && args[0].known && (args[0].text == "-n" || args[0].text == "-z")
	return unary || len(args) == 3 && args[1].known && slices.Contains([]string{"=", "==", "!="}, args[1].text)
}

// onlyMetadata reports whether the command shows only facts about the files that it reads: the existence, size or checksum
// of a key is not a secret.
func (c *command) onlyMetadata() bool {
	switch c.name {
	case "ls", "stat", "wc", "du", "file", "find", "test", "[", "realpath", "readlink", "dirname", "basename", "tree",
		"md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum", "namei", "lsattr", "getfacl", "openssl", "ssh-keygen",
		"exa", "eza", "lsd", "df", "cd", "pushd", "mount", "umount", "findmnt", "lsblk", "blkid", "fuser", "lsof":
		return !c.takesList()
	}
	return false
}

// takesList reports whether a command that shows facts about files reads the list of files, or of their checksums, from
// a file: its errors would show lines of that file.
func (c *command) takesList() bool {
	for i := range c.args {
		if !strings.HasPrefix(c.args[i].text, "-") {
			continue
		}
		text := c.args[i].prefix()
		switch {
		case strings.HasPrefix(text, "--files"), strings.HasPrefix(text, "-files"), strings.HasPrefix(text, "--check"), strings.HasPrefix(text, "--magic"):
			return true
		case !strings.HasPrefix(text, "--"):
			if c.name == "file" && strings.ContainsAny(text, "fm") || strings.HasSuffix(c.name, "sum") && strings.Contains(text, "c") {
				return true
			}
		}
	}
	return false
}

// traces reports whether the command makes bash print each command with its words expanded.
func (c *command) traces() bool {
	if c.name != "set" && c.name != "shopt" && !slices.Contains(shells, c.name) {
		return false
	}
	return slices.ContainsFunc(c.args[1:], func(a arg) bool {
		return a.text == "xtrace" || strings.HasPrefix(a.text, "-") && strings.Contains(a.text, "x") || c.name == "set" && !a.known && !a.noDash
	})
}

// reveals returns why the words of a command say that it shows credentials, or "".
func (w *walker) reveals(c *command) string {
	if c.secret != "" && (slices.Contains([]string{"echo", "printf"}, c.name) || c.Reason == "" && !c.showsNoWords()) {
		return c.secret + " holds credentials"
	}
	if w.lineSecret != "" && c.traces() {
		return "it shows expanded words, and " + w.lineSecret + " holds credentials"
	}
	if c.name == "printenv" {
		for _, a := range c.args[1:] {
			if pathrule.SecretVariable(a.text) {
				return a.text + " holds credentials"
			}
		}
	}
	if c.name == "mv" { // the new name would not say that the file is a secret
		for i := range c.targets {
			if t := &c.targets[i]; t.delete {
				if why := c.secretName(t); why != "" {
					return why
				}
			}
		}
	}
	if len(c.reads) == 0 || c.onlyMetadata() {
		return ""
	}
	for i := range c.reads {
		if why := c.secretName(&c.reads[i]); why != "" {
			return why
		}
	}
	return ""
}

// secretName returns why an operand is the name of a secret, or "".
func (c *command) secretName(op *operand) string {
	if op.wild || strings.Contains(op.text, hole) {
		for _, p := range c.globs(&op.arg) {
			if why := pathrule.SecretGlob(p); why != "" {
				return why
			}
		}
		return ""
	}
	var memory [1]string // for the usual case
	paths := c.appendPaths(memory[:0], &op.arg)
	if len(paths) == 1 {
		op.path = paths[0]
	}
	for _, p := range paths {
		if why := pathrule.SecretName(p); why != "" {
			return why
		}
	}
	return ""
}

// globs returns absolute patterns for the paths that a may be, with a star for unknown text.
func (c *command) globs(a *arg) []string {
	text := withoutProc(a.text)
	if strings.HasPrefix(text, hole+"/") {
		text = "/x" + text[len(hole):] // in an unknown directory
	}
	text = strings.ReplaceAll(text, hole, "*")
	if strings.HasPrefix(text, "/") {
		return []string{path.Clean(text)}
	}
	var out []string
	for _, d := range c.cwds {
		out = append(out, path.Join(d, text))
	}
	if len(out) == 0 {
		out = append(out, path.Join("/", text))
	}
	return out
}

// linkDangers returns the dangers that depend on the file system: links to secrets, and wildcards that match secrets.
func (a *Analysis) linkDangers(at *pathrule.Place) []Danger {
	var out []Danger
	for i := range a.cmds {
		c := &a.cmds[i]
		if len(c.reads) == 0 || c.keepsLinks() {
			continue
		}
		if why := c.leavesLink(at); why != "" && (!c.onlyMetadata() || len(a.cmds) > 1) { // another command may read the names that c lists
			out = append(out, Danger{Dynamic, c.String() + ": " + why})
		}
		if c.onlyMetadata() {
			continue
		}
		if why := c.leadsTo(at); why != "" {
			out = append(out, Danger{Credentials, c.String() + ": " + why})
		}
	}
	if why := a.givenLink(at); why != "" {
		out = append(out, Danger{Credentials, why})
	}
	return out
}

// givenLink returns which word of the line is a link to a secret, or "". This matters if a command reads an unknown
// name, which any word may be.
func (a *Analysis) givenLink(at *pathrule.Place) string {
	if !slices.ContainsFunc(a.cmds, func(c command) bool { return !c.onlyMetadata() && c.readsUnknown() }) {
		return ""
	}
	words := a.listed
	for i := range a.cmds {
		words = append(words[:len(words):len(words)], a.cmds[i].args...)
	}
	for _, word := range words {
		if !word.known {
			continue
		}
		for field := range strings.FieldsSeq(word.text) {
			if strings.HasPrefix(field, "-") || strings.ContainsAny(field, "*?[") {
				continue
			}
			if why := at.SecretLink(at.Abs(field)); why != "" {
				return why
			}
		}
	}
	return ""
}

// keepsLinks reports whether the command copies, moves or names a link without reading the link's target.
func (c *command) keepsLinks() bool {
	switch c.name {
	case "ln", "link", "mv":
		return true
	case "cp":
		keeps := hasOption(c, 'P', "--no-dereference") || hasOption(c, 'd', "--no-dereference") || hasOption(c, 'a', "--archive") ||
			hasOption(c, 'R', "--recursive") || hasOption(c, 'r', "--recursive")
		return keeps && !hasOption(c, 'L', "--dereference")
	}
	return false
}

// leavesLink returns which operand has ".." after a link to a directory, or "". Programs go up from the link's target, but
// the analysis from the directory that contains the link.
func (c *command) leavesLink(at *pathrule.Place) string {
	for i := range c.reads {
		name := withoutProc(c.reads[i].text)
		if i := strings.IndexAny(name, "*?["+hole); i >= 0 {
			name = name[:i]
		}
		if !strings.Contains(name, "..") {
			continue
		}
		dirs := c.cwds
		if path.IsAbs(name) {
			dirs = []string{""}
		}
		for _, dir := range dirs {
			whole := dir + "/" + name
			if real := at.Real(whole); real != at.Real(path.Clean(whole)) {
				return fmt.Sprintf("%s is %s, because of a link; name that path", c.reads[i].raw, real)
			}
		}
	}
	return ""
}

// leadsTo returns which operand is a link to a secret, or has wildcards that match a secret, or "".
func (c *command) leadsTo(at *pathrule.Place) string {
	var memory [1]string // for the usual case
	for i := range c.reads {
		a := &c.reads[i].arg
		if strings.Contains(a.text, hole) || a.text == "" {
			continue
		}
		if !a.wild {
			paths := append(memory[:0], c.reads[i].path)
			if c.reads[i].path == "" {
				paths = c.appendPaths(memory[:0], a)
			}
			for _, p := range paths {
				if why := cmp.Or(at.SecretLink(p), secretSettings(at, p)); why != "" {
					return why
				}
			}
			continue
		}
		for _, glob := range c.globs(a) {
			names, all := at.Glob(glob)
			if !all {
				return a.raw + " matches too many names to look for credentials among them; use a narrower pattern"
			}
			for _, p := range names {
				if why := cmp.Or(pathrule.SecretName(p), at.SecretLink(p), secretSettings(at, p)); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

// refuseSecretReads gives a Reason to commands that may reach a secret in a tree, or by names that are unknown before
// they run.
func (w *walker) refuseSecretReads(stmts []*syntax.Stmt) {
	w.findTops()
	for i := range w.cmds {
		c := &w.cmds[i]
		if c.Reason != "" || c.onlyMetadata() {
			continue
		}
		why := ""
		roots, hidden := c.trees()
		if c.readsUnknown() {
			why = secretMentioned(stmts)
			for k := range w.cmds {
				if found, ok := w.cmds[k].finds(); ok {
					roots, hidden = append(roots, found...), true
				}
			}
		}
		if name := c.selectsSecrets(&w.at); name != "" {
			why = "it searches " + strings.ReplaceAll(name, hole, "…")
		}
		for _, root := range roots {
			if why != "" {
				break
			}
			why = w.below(c, root, hidden)
		}
		for k := 0; k < len(c.reads) && why == ""; k++ {
			op := &c.reads[k].arg
			if op.open() || c.inUnknownDir(op) {
				why = w.secretByWord(c, op)
			}
		}
		if r := c.unnamedFiles(&w.at); r.content {
			for _, dir := range c.gitDirs() {
				why = cmp.Or(why, w.answer(fact{question: secretTracked, dir: dir, bases: r.below}))
			}
		}
		if why != "" {
			c.Reason, c.mayShow = c.String()+" may show a secret: "+why, true
		}
	}
}

// findTops finds the tops of the work trees in which git rev-parse runs.
func (w *walker) findTops() {
	for _, c := range w.cmds {
		if c.name != "git" || len(c.args) < 2 || c.args[1].text != "rev-parse" {
			continue
		}
		if w.tops == nil {
			w.tops = map[string]string{}
		}
		for _, dir := range c.cwds {
			w.tops[dir] = w.answer(fact{question: workTreeTop, dir: dir})
		}
	}
}

// below returns which secret is below root, or "". root may have wildcards.
func (w *walker) below(c *command, root arg, hidden bool) string {
	for _, dir := range c.paths(root) {
		why := w.answer(fact{question: secretBelow, dir: dir, hidden: hidden})
		if why == "" && (c.followsLinks() || c.name == "diff" || c.name == "colordiff") {
			why = w.answer(fact{question: secretLinked, dir: dir, hidden: hidden, links: linkSearch{deep: true, through: true}})
		}
		if why != "" {
			return why
		}
	}
	return ""
}

// readsUnknown reports whether the command reads a file whose name is unknown and may be the name of a secret.
func (c *command) readsUnknown() bool {
	return slices.ContainsFunc(c.reads, func(op operand) bool {
		base := op.text[strings.LastIndexByte(op.text, '/')+1:]
		return strings.Contains(base, hole) && // reveals checks other names
			pathrule.MayFindSecret(strings.ReplaceAll(base, hole, "*"))
	})
}

// finds returns the starting points of a command that finds files of any name.
func (c *command) finds() ([]arg, bool) {
	switch c.name {
	case "find", "gfind":
		for i, a := range c.args[1:] {
			name := slices.Contains([]string{"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex"}, a.text)
			if name && c.args[i].text != "!" && c.args[i].text != "-not" {
				return nil, false // secretMentioned checks the name
			}
		}
	case "fd", "fdfind":
		if !hasOption(c, 'H', "--hidden") && !hasOption(c, 'u', "--unrestricted") {
			return nil, false
		}
	default:
		return nil, false
	}
	var roots []arg
	for _, op := range c.reads {
		roots = append(roots, op.arg)
	}
	if len(roots) == 0 {
		roots = []arg{literal(".")}
	}
	return roots, true
}

// secretMentioned returns which word of a line names a secret, or why the line may contain names in another encoding.
// It does not find names that the line composes.
func secretMentioned(stmts []*syntax.Stmt) string {
	found := ""
	for _, s := range stmts {
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Word:
				for field := range strings.FieldsSeq(looseText(n)) {
					if secretWord(field) {
						found = field + " is the name of a secret"
					}
				}
			case *syntax.CallExpr:
				if len(n.Args) > 0 && slices.Contains([]string{"base64", "base32", "basenc", "xxd", "rev", "gzip", "openssl"}, n.Args[0].Lit()) {
					found = "the names come out of " + n.Args[0].Lit()
				}
			}
			return found == ""
		})
	}
	return found
}

func secretWord(word string) bool {
	word = strings.Trim(word, "'\"`(){};,")
	if word == "env" { // a search for env also finds .env
		return true
	}
	if strings.HasPrefix(word, "-") || word == "" {
		return false
	}
	name := path.Join("/x", strings.TrimPrefix(word, "~"))
	if strings.ContainsAny(word, "*?[") {
		return pathrule.SecretGlob(name) != ""
	}
	return pathrule.SecretName(name) != ""
}

// looseText returns the text of a word, with a star for each expansion.
func looseText(word *syntax.Word) string {
	var b strings.Builder
	var add func(parts []syntax.WordPart)
	add = func(parts []syntax.WordPart) {
		for _, part := range parts {
			switch p := part.(type) {
			case *syntax.Lit:
				b.WriteString(strings.ReplaceAll(p.Value, "\\", ""))
			case *syntax.SglQuoted:
				b.WriteString(p.Value)
			case *syntax.DblQuoted:
				add(p.Parts)
			default:
				b.WriteByte('*')
			}
		}
	}
	add(word.Parts)
	return b.String()
}

// keepSecret records that the variable called name has a secret, if the current command expanded one.
func (w *walker) keepSecret(name string) {
	if w.secret == "" {
		return
	}
	if w.secrets == nil {
		w.secrets = map[string]string{}
	}
	w.secrets[name] = w.secret
}

// dumps reports whether the command shows the whole content of the files it reads.
func (c *command) dumps() bool {
	return len(c.reads) > 0 && !c.onlyMetadata() && !slices.Contains([]string{"grep", "egrep", "fgrep", "rg", "zgrep"}, c.name)
}
