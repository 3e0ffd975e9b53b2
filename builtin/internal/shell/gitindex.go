package shell

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// patchCommands are the subcommands of git that show changes in the content of files unless an option prevents it.
var patchCommands = strings.Fields("diff show range-diff diff-files diff-index diff-tree format-patch")

// patchOnRequest are the subcommands that show such changes only if an option asks for them.
var patchOnRequest = strings.Fields("log whatchanged stash reflog status")

// unnamedFiles describes the files of a repository that a git command shows without naming them.
type unnamedFiles struct {
	content bool     // there are such files, and their content is shown
	past    bool     // files that are no longer tracked are included
	below   []string // only files below these paths; nil means all files
}

// unnamedFiles returns which files of the repository the command shows without naming them.
func (c *command) unnamedFiles(at *pathrule.Place) (r unnamedFiles) {
	if c.name != "git" {
		return r
	}
	sub := c.gitSubcommand()
	if sub < 0 || c.args[sub].text != "grep" && !slices.Contains(patchCommands, c.args[sub].text) && !slices.Contains(patchOnRequest, c.args[sub].text) {
		return r
	}
	name, args := c.args[sub].text, c.args[sub+1:]
	dashes := slices.IndexFunc(args, func(a arg) bool { return a.known && a.text == "--" })
	if dashes < 0 {
		dashes = len(args)
	}
	if !showsContent(name, args[:dashes]) {
		return r
	}
	r.past = name != "diff" && name != "diff-files" && name != "grep"
	hasPaths, hasObjects, hasRevisions := false, false, false
	// all: the operands do not limit the files. With --icase-pathspecs a name may match several files.
	all := slices.ContainsFunc(c.args[:sub], func(a arg) bool { return a.text == "--icase-pathspecs" })
	for i, a := range args {
		text, after := a.prefix(), i > dashes
		switch {
		case i == dashes:
		case !after && strings.HasPrefix(text, "-"):
			r.past = r.past || text == "--cached" && name != "grep" || text == "--staged" || text == "--merge-base"
			all = all || len(text) > 3 && (strings.HasPrefix("--full-diff", text) || strings.HasPrefix("--stdin", text))
		case !after && name == "show" && ofRevision(text): // gitShows handles HEAD:file
			hasObjects = true
		case !after && (name == "range-diff" || strings.HasPrefix(text, ":/") || !a.known || !slices.ContainsFunc(c.gitDirs(), func(dir string) bool { return at.Exists(resolve(dir, text)) })):
			r.past, hasRevisions = true, true
		case !after && i > 0 && mayTakeValue(args[i-1].prefix()): // the value of an option does not limit the files
		case !a.known || strings.ContainsAny(text, "*?[\\") || strings.HasPrefix(text, ":"):
			hasPaths, all = true, true
		default:
			hasPaths = true
			for _, dir := range c.gitDirs() {
				file := resolve(dir, text)
				if _, err := at.Names(file); err == nil || !at.Exists(file) { // a directory, or a path that may have been a directory
					r.below = append(r.below, file)
				}
			}
		}
	}
	r.content = !hasPaths && (!hasObjects || hasRevisions) || all || r.below != nil
	if all {
		r.below = nil
	}
	return r
}

// showsContent reports whether a subcommand of git shows lines of files with these options.
func showsContent(name string, options []arg) bool {
	shows, summary := name == "grep" || slices.Contains(patchCommands, name), false
	for _, a := range options {
		// With any option git stash show prints a patch instead of the summary.
		shows = shows || name == "stash" && options[0].prefix() == "show" && strings.HasPrefix(a.text, "-")
		switch text := a.prefix(); {
		case asksPatch(text), !a.known && a.option() && strings.Trim(text, "-") == "": // it may be -p
			return true
		case slices.Contains(summaryOptions, text), strings.HasPrefix(text, "--stat="), name == "grep" && slices.Contains(nameOptions, text):
			summary = true
		}
	}
	return shows && !summary
}

// summaryOptions replace the patch by a summary, and nameOptions of git grep the lines by names or counts.
var (
	summaryOptions = strings.Fields("--stat --numstat --shortstat --dirstat --summary --name-only --name-status --raw -q --quiet -s --no-patch")
	nameOptions    = strings.Fields("-l -L -c --files-with-matches --files-without-match --count")
)

// asksPatch reports whether an option makes git log show changes in the content of files. The letter of such an option
// may follow other letters, but not one whose value is in the same word.
func asksPatch(text string) bool {
	for _, head := range []string{"--patch", "--unified", "--binary", "--remerge-diff", "--diff-merges", "--cc", "--verbose", "-U", "-L"} {
		if strings.HasPrefix(text, head) {
			return true
		}
	}
	hasValue := len(text) > 1 && strings.IndexByte("SGOlnMCBXAI", text[1]) >= 0
	return strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "--") && !hasValue && strings.ContainsAny(text, "puULcmv")
}

// gitSubcommand returns the index of git's subcommand in the arguments, or -1.
func (c *command) gitSubcommand() int {
	for i := 1; i < len(c.args); i++ {
		switch text := c.args[i].prefix(); {
		case slices.Contains([]string{"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix", "--attr-source"}, text):
			i++
		case !strings.HasPrefix(text, "-"):
			return i
		}
	}
	return -1
}

// ofRevision reports whether an operand of git show is a file of a revision, such as HEAD:x. The operand :/x is the
// revision whose message has the text x.
func ofRevision(text string) bool {
	_, ok := revisionFile(text)
	return ok && !strings.HasPrefix(text, ":/")
}

// revisionFile returns the file of REVISION:FILE. A revision may have colons in braces.
func revisionFile(text string) (file string, ok bool) {
	depth := 0
	for i, r := range text {
		switch {
		case r == '{':
			depth++
		case r == '}':
			depth--
		case r == ':' && depth <= 0:
			return text[i+1:], true
		}
	}
	return "", false
}

// mayTakeValue reports whether the word after an option may be its value instead of a path.
func mayTakeValue(option string) bool {
	return strings.HasPrefix(option, "-") && option != "--" && !strings.Contains(option, "=") && !slices.Contains(gitFlags, option)
}

// gitFlags are usual options of git diff, show, log and grep that take no value as another word.
var gitFlags = strings.Fields("-p -u -w -b --patch --cached --staged --color --no-color --word-diff --no-ext-diff --no-textconv --stat --oneline -i --ignore-case --line-number -1 -2 -3 -5 -10 -20 --all --follow --reverse --no-patch -E -F -P -h -H -r -c --count")

// gitDirs returns the directories in which a git command runs, or none if they are unknown.
func (c *command) gitDirs() []string {
	dirs := c.cwds
	for i, sub := 1, c.gitSubcommand(); i < sub; i++ {
		text := c.args[i].prefix()
		if strings.HasPrefix(text, "--git-dir") || strings.HasPrefix(text, "--work-tree") || text == "-C" && !c.args[i+1].known {
			return nil
		}
		if text != "-C" {
			continue
		}
		dirs = resolveAll(dirs, c.args[i+1].text)
	}
	return dirs
}

// coversUnnamed reports whether git shows changes in a file that the rule covers, without naming the file. For git grep
// see [fileRule.roots].
func (m *fileRule) coversUnnamed(c *command) bool {
	if slices.ContainsFunc(c.args, func(a arg) bool { return a.text == "grep" }) {
		return false
	}
	r := c.unnamedFiles(&m.at)
	dirs := c.gitDirs()
	return r.content && (len(dirs) == 0 || slices.ContainsFunc(dirs, func(dir string) bool { return m.coversTracked(dir, r) }))
}

// coversTracked reports whether the rule covers one of the files r of the repository that dir is in.
func (m *fileRule) coversTracked(dir string, r unnamedFiles) bool {
	top, index, ok := gitIndex(&m.at, dir)
	if !ok {
		return false
	}
	if r.past {
		below := r.below
		if below == nil {
			below = []string{top}
		}
		return slices.ContainsFunc(below, func(dir string) bool {
			may, err := m.at.MatchTree(m.pattern, dir)
			return may || err != nil
		})
	}
	return trackedFile(&m.at, top, index, r.below, m.covers) != ""
}

// trackedSecret returns which tracked file of the repository that dir is in may hold credentials, or "". With below only
// files below these paths count.
func trackedSecret(at *pathrule.Place, dir string, below []string) string {
	top, index, ok := gitIndex(at, dir)
	if !ok {
		return ""
	}
	name := trackedFile(at, top, index, below, func(name string) bool {
		return pathrule.HoldsCredentials(strings.TrimPrefix(strings.TrimPrefix(name, top), "/"))
	})
	if name == "" {
		return ""
	}
	return "git tracks " + name + ", which may hold credentials; name the files to show"
}

// gitIndex returns the top of the work tree that dir is in, and the file with its index. ok is false if there is no work
// tree, or no index because no file was added.
func gitIndex(at *pathrule.Place, dir string) (top, index string, ok bool) {
	if top = workTree(at, at.Real(dir)); top == "" {
		return "", "", false
	}
	repository, _ := repositoryOf(at, top)
	if repository == "" {
		return top, under(top, ".git"), true // which is not an index
	}
	index = path.Join(repository, "index")
	return top, index, at.Exists(index)
}

// trackedFile returns the path of a tracked file for which f is true, or "". If below is not nil, the file is below one
// of these paths. If the index cannot be read, trackedFile returns the path of the index.
func trackedFile(at *pathrule.Place, top, index string, below []string, f func(name string) bool) string {
	text, err := at.Contents(index, maxIndex)
	if err != nil {
		return index
	}
	found := ""
	ok := eachTracked(text, func(name string) {
		name = path.Join(top, name)
		in := func(dir string) bool { return pathrule.Below(name, dir) || pathrule.Below(name, at.Real(dir)) }
		if found == "" && (below == nil || slices.ContainsFunc(below, in)) && f(name) {
			found = name
		}
	})
	if !ok && found == "" {
		return index
	}
	return found
}

// eachTracked calls f for each file that a git index lists (gitformat-index(5)), and reports whether it could read the
// whole list.
func eachTracked(index []byte, f func(name string)) bool {
	const header, flagsAt, extended, maxLength = 12, 60, 0x4000, 0xfff
	if len(index) < header || string(index[:4]) != "DIRC" {
		return false
	}
	version, count := binary.BigEndian.Uint32(index[4:]), binary.BigEndian.Uint32(index[8:])
	if version < 2 || version > 4 {
		return false
	}
	rest, name := index[header:], ""
	for range count {
		if len(rest) < flagsAt+2 {
			return false
		}
		flags := binary.BigEndian.Uint16(rest[flagsAt:])
		start := flagsAt + 2 // of the name
		if flags&extended != 0 {
			start += 2
		}
		shared := 0 // bytes at the start of the name that are those of the last name
		if version == 4 {
			dropped, n := packedNumber(rest[min(start, len(rest)):])
			if n == 0 || dropped > len(name) {
				return false
			}
			start, shared = start+n, len(name)-dropped
		}
		if start > len(rest) {
			return false
		}
		length := bytes.IndexByte(rest[start:], 0)
		if length < 0 {
			return false
		}
		name = name[:shared] + string(rest[start:start+length])
		if int(flags&maxLength) != min(len(name), maxLength) { // the flags are elsewhere, because the hashes are longer
			return false
		}
		f(name)
		next := start + length + 1
		if version < 4 {
			next = (start + length + 8) &^ 7 // entries are padded with 1 to 8 zeros to a multiple of 8 bytes
		}
		if next > len(rest) {
			return false
		}
		rest = rest[next:]
	}
	return !bytes.Contains(rest, []byte("link\x00")) // another file lists more names
}

// packedNumber reads a number in the encoding of offsets in packs (gitformat-pack(5)). n is the number of its bytes; 0
// means that there is no number.
func packedNumber(b []byte) (value, n int) {
	for n < len(b) && n < 5 {
		c := b[n]
		if n++; n > 1 {
			value++
		}
		value = value<<7 | int(c&0x7f)
		if c&0x80 == 0 {
			return value, n
		}
	}
	return 0, 0
}
