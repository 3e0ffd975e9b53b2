package shell

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// patches are the subcommands of git that show what changed in files, if not asked for less.
var patches = strings.Fields("diff show range-diff diff-files diff-index diff-tree format-patch")

// patchesAsked show it only with an option.
var patchesAsked = strings.Fields("log whatchanged stash")

// showsChanges reports whether the command shows changes in files of the repository that it does
// not name, and whether these may be changes of the past, so that no file of the name is left.
func (c *command) showsChanges(at *pathrule.Place) (changes, past bool) {
	if c.name != "git" {
		return false, false
	}
	sub := slices.IndexFunc(c.args, func(a arg) bool {
		return a.known && (slices.Contains(patches, a.text) || slices.Contains(patchesAsked, a.text))
	})
	if sub < 0 {
		return false, false
	}
	name := c.args[sub].text
	shows, less, asked := slices.Contains(patches, name), false, false
	past = name != "diff" && name != "diff-files"
	for i, a := range c.args[sub+1:] {
		switch text := a.prefix(); {
		case text == "--":
			if sub+2+i < len(c.args) {
				return false, false // they are named
			}
		case slices.Contains([]string{"-p", "-u", "--patch", "-c", "--cc", "--patch-with-stat"}, text), strings.HasPrefix(text, "-U"), strings.HasPrefix(text, "-L"), strings.HasPrefix(text, "--unified"):
			asked = true
		case slices.Contains([]string{"--stat", "--numstat", "--shortstat", "--dirstat", "--summary", "--name-only", "--name-status", "--raw", "--check", "-q", "--quiet", "-s", "--no-patch"}, text), strings.HasPrefix(text, "--stat="):
			less = true
		case strings.HasPrefix(text, "-"):
			past = past || text == "--cached" || text == "--staged" || text == "--merge-base"
		case a.known && slices.ContainsFunc(c.paths(a), at.Exists):
			return false, false
		case strings.Contains(text, ":") && name == "show": // a file of a revision, which gitShows names
			return false, false
		default:
			past = true
		}
	}
	return asked || shows && !less, past
}

// gitDirs returns the directories in which a git command runs.
func (c *command) gitDirs() []string {
	dirs := c.cwds
	for i := 1; i+1 < len(c.args); i++ {
		if c.args[i].text != "-C" {
			continue
		}
		to := c.args[i+1].text
		moved := make([]string, len(dirs))
		for k, d := range dirs {
			if moved[k] = d + "/" + to; path.IsAbs(to) {
				moved[k] = to
			}
		}
		dirs = moved
	}
	return dirs
}

// showsTracked reports whether the command shows changes in a file that the rule covers, without
// naming it.
func (m *fileRule) showsTracked(c *command) bool {
	changes, past := c.showsChanges(&m.at)
	return changes && slices.ContainsFunc(c.gitDirs(), func(dir string) bool { return m.tracked(dir, past) })
}

// tracked reports whether the rule covers a file of the repository that dir is in, or may have
// covered one in the past.
func (m *fileRule) tracked(dir string, past bool) bool {
	top, index, found := gitIndex(&m.at, dir)
	if !found {
		return false
	}
	if past {
		may, err := m.at.MatchTree(m.pattern, top)
		return may || err != nil
	}
	return index == "" || trackedFile(&m.at, top, index, m.covers) != ""
}

// trackedSecret returns which tracked file of the repository that dir is in holds credentials, or
// "". Those of tests do not count.
func trackedSecret(at *pathrule.Place, dir string) string {
	top, index, found := gitIndex(at, dir)
	if !found {
		return ""
	}
	name := trackedFile(at, top, index, func(name string) bool {
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
	for top = at.Real(dir); !at.Exists(path.Join(top, ".git")); top = path.Dir(top) {
		if top == "/" || top == "" || top == "." {
			return "", "", false
		}
	}
	repository := path.Join(top, ".git")
	if text, err := at.Contents(repository, maxSettings); err == nil { // a linked work tree, or a submodule
		to, _ := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), "gitdir: ")
		repository = under(top, to)
	}
	index = path.Join(repository, "index")
	return top, index, at.Exists(index) // without one nothing was added
}

// trackedFile returns the path of a file of an index for which f is true, or "". If the index
// cannot be read it returns its name.
func trackedFile(at *pathrule.Place, top, index string, f func(name string) bool) string {
	text, err := at.Contents(index, maxIndex)
	if err != nil {
		return index
	}
	found := ""
	ok := eachTracked(text, func(name string) {
		if name = path.Join(top, name); found == "" && f(name) {
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
		if int(flags&0xfff) != min(len(last), 0xfff) { // another kind of hash
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
	return !bytes.Contains(rest, []byte("link\x00")) // the others are in another file
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
