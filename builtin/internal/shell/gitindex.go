package shell

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// patches are the subcommands of git that show changes in the content of files unless an option prevents it.
var patches = strings.Fields("diff show range-diff diff-files diff-index diff-tree format-patch")

// optionalPatches are the subcommands that show such changes only if an option asks for them.
var optionalPatches = strings.Fields("log whatchanged stash reflog status")

// A revealed describes which files a git command shows without naming them.
type revealed struct {
	content bool     // their content is shown
	past    bool     // files that are no longer tracked are included
	below   []string // only files below these paths; nil means all files
}

// revealsTracked returns which files of the repository the command shows without naming them.
func (c *command) revealsTracked(at *pathrule.Place) (r revealed) {
	if c.name != "git" {
		return r
	}
	sub := c.gitSub()
	if sub < 0 || c.args[sub].text != "grep" && !slices.Contains(patches, c.args[sub].text) && !slices.Contains(optionalPatches, c.args[sub].text) {
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
	files, objects, revisions := false, false, false
	// With --icase-pathspecs a name may match several files.
	unlimited := slices.ContainsFunc(c.args[:sub], func(a arg) bool { return a.text == "--icase-pathspecs" })
	for i, a := range args {
		text, after := a.prefix(), i > dashes
		switch {
		case i == dashes:
		case !after && strings.HasPrefix(text, "-"):
			r.past = r.past || text == "--cached" && name != "grep" || text == "--staged" || text == "--merge-base"
			unlimited = unlimited || len(text) > 3 && (strings.HasPrefix("--full-diff", text) || strings.HasPrefix("--stdin", text))
		case !after && name == "show" && ofRevision(text): // a file of a revision, which gitShows handles
			objects = true
		case !after && (name == "range-diff" || strings.HasPrefix(text, ":/") || !a.known || !slices.ContainsFunc(c.gitDirs(), func(dir string) bool { return at.Exists(resolve(dir, text)) })):
			r.past, revisions = true, true
		case !after && i > 0 && mayTakeValue(args[i-1].prefix()): // the value of an option limits nothing
		case !a.known || strings.ContainsAny(text, "*?[\\") || strings.HasPrefix(text, ":"):
			files, unlimited = true, true
		default:
			files = true
			for _, dir := range c.gitDirs() {
				file := resolve(dir, text)
				if _, err := at.Names(file); err == nil || !at.Exists(file) { // a directory, or a path that may have been one
					r.below = append(r.below, file)
				}
			}
		}
	}
	r.content = !files && (!objects || revisions) || unlimited || r.below != nil
	if unlimited {
		r.below = nil
	}
	return r
}

// showsContent reports whether a subcommand of git shows lines of files with these options.
func showsContent(name string, options []arg) bool {
	shows, less := name == "grep" || slices.Contains(patches, name), false
	for _, a := range options {
		// With any option git stash show prints a patch instead of the summary.
		shows = shows || name == "stash" && options[0].prefix() == "show" && strings.HasPrefix(a.text, "-")
		switch text := a.prefix(); {
		case asksPatch(text), !a.known && a.option() && strings.Trim(text, "-") == "": // it may be -p
			return true
		case slices.Contains(showsLess, text), strings.HasPrefix(text, "--stat="), name == "grep" && slices.Contains(showsNames, text):
			less = true
		}
	}
	return shows && !less
}

// showsLess are options that replace the patch by a summary, and showsNames options of grep that replace the lines
// by names or counts.
var (
	showsLess  = strings.Fields("--stat --numstat --shortstat --dirstat --summary --name-only --name-status --raw -q --quiet -s --no-patch")
	showsNames = strings.Fields("-l -L -c --files-with-matches --files-without-match --count")
)

// asksPatch reports whether an option makes git log show changes; letters may be combined.
func asksPatch(text string) bool {
	for _, head := range []string{"--patch", "--unified", "--binary", "--remerge-diff", "--diff-merges", "--cc", "--verbose", "-U", "-L"} {
		if strings.HasPrefix(text, head) {
			return true
		}
	}
	return len(text) > 1 && text[0] == '-' && strings.IndexByte("-SGOlnMCBXAI", text[1]) < 0 && strings.ContainsAny(text, "puULcmv")
}

// gitSub returns the index of git's subcommand in the arguments, or -1.
func (c *command) gitSub() int {
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

// ofRevision reports whether an operand of git show is a file of a revision, such as HEAD:x.
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

// mayTakeValue reports whether the next word may be the value of an option instead of a path.
func mayTakeValue(option string) bool {
	return strings.HasPrefix(option, "-") && option != "--" && !strings.Contains(option, "=") && !slices.Contains(gitFlags, option)
}

// gitFlags are usual options of git diff, show, log and grep that take no value as another word.
var gitFlags = strings.Fields("-p -u -w -b --patch --cached --staged --color --no-color --word-diff --no-ext-diff --no-textconv --stat --oneline -i --ignore-case --line-number -1 -2 -3 -5 -10 -20 --all --follow --reverse --no-patch -E -F -P -h -H -r -c --count")

// gitDirs returns the directories in which a git command runs, or none if they are unknown.
func (c *command) gitDirs() []string {
	dirs := c.cwds
	for i, sub := 1, c.gitSub(); i < sub; i++ {
		if c.args[i].text != "-C" {
			continue
		}
		if !c.args[i+1].known {
			return nil
		}
		moved := make([]string, len(dirs))
		for k, d := range dirs {
			moved[k] = resolve(d, c.args[i+1].text)
		}
		dirs = moved
	}
	return dirs
}

// showsTracked reports whether the command shows changes in a file that the rule covers, without
// naming it. What git grep reads is in [fileRule.roots].
func (m *fileRule) showsTracked(c *command) bool {
	if slices.ContainsFunc(c.args, func(a arg) bool { return a.text == "grep" }) {
		return false
	}
	r := c.revealsTracked(&m.at)
	dirs := c.gitDirs()
	return r.content && (len(dirs) == 0 || slices.ContainsFunc(dirs, func(dir string) bool { return m.tracked(dir, r) }))
}

// tracked reports whether the rule covers a file of the repository that dir is in, or may have
// covered one in the past.
func (m *fileRule) tracked(dir string, r revealed) bool {
	top, index, found := gitIndex(&m.at, dir)
	if !found {
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

// trackedSecret returns which tracked file of the repository that dir is in holds credentials, or
// "". Files in directories for tests do not count.
func trackedSecret(at *pathrule.Place, dir string, below []string) string {
	top, index, found := gitIndex(at, dir)
	if !found {
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

// gitIndex returns the top of the repository that dir is in and the file with its index, which is
// "" if it is unknown, and reports whether there is an index.
func gitIndex(at *pathrule.Place, dir string) (top, index string, found bool) {
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

// trackedFile returns the path of a file of an index for which f is true, and which is below one
// of the given paths if there are any, or "". If the index cannot be read it returns its name.
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

// eachTracked calls f for each file that a git index lists (gitformat-index(5)), and reports
// whether it could be read.
func eachTracked(index []byte, f func(name string)) bool {
	const fixed, header = 62, 12
	if len(index) < header || string(index[:4]) != "DIRC" {
		return false
	}
	version, count := binary.BigEndian.Uint32(index[4:]), binary.BigEndian.Uint32(index[8:])
	if version < 2 || version > 4 {
		return false
	}
	rest, last := index[header:], ""
	for range count {
		if len(rest) < fixed {
			return false
		}
		at := fixed
		flags := binary.BigEndian.Uint16(rest[fixed-2:])
		if flags&0x4000 != 0 { // more flags follow
			at += 2
		}
		keep := 0
		if version == 4 {
			drop, n := offset(rest[min(at, len(rest)):])
			if n == 0 || drop > len(last) {
				return false
			}
			at, keep = at+n, len(last)-drop
		}
		if at > len(rest) {
			return false
		}
		end := bytes.IndexByte(rest[at:], 0)
		if end < 0 {
			return false
		}
		last = last[:keep] + string(rest[at:at+end])
		if int(flags&0xfff) != min(len(last), 0xfff) { // the hashes have another length
			return false
		}
		f(last)
		next := at + end + 1
		if version < 4 {
			next = (at + end + 8) &^ 7
		}
		if next > len(rest) {
			return false
		}
		rest = rest[next:]
	}
	return !bytes.Contains(rest, []byte("link\x00")) // a split index: another file lists the other names
}

// offset reads a number as git encodes it in packs, and returns how many bytes it has.
func offset(b []byte) (value, n int) {
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
