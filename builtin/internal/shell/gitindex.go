package shell

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
	"strings"
)

// patches are the subcommands of git that show what changed in files, if not asked for less.
var patches = strings.Fields("diff show range-diff diff-files diff-index diff-tree format-patch")

// patchesAsked show it only with an option.
var patchesAsked = strings.Fields("log whatchanged stash")

// showsTracked reports whether the command shows changes in files of the repository that it does
// not name.
func (m *fileRule) showsTracked(c *command) bool {
	if c.name != "git" {
		return false
	}
	at := slices.IndexFunc(c.args, func(a arg) bool {
		return a.known && (slices.Contains(patches, a.text) || slices.Contains(patchesAsked, a.text))
	})
	if at < 0 {
		return false
	}
	shows, less, asked := slices.Contains(patches, c.args[at].text), false, false
	for i, a := range c.args[at+1:] {
		switch text := a.prefix(); {
		case text == "--":
			if at+2+i < len(c.args) {
				return false // they are named
			}
		case slices.Contains([]string{"-p", "-u", "--patch", "-c", "--cc", "--patch-with-stat"}, text), strings.HasPrefix(text, "-U"), strings.HasPrefix(text, "-L"), strings.HasPrefix(text, "--unified"):
			asked = true
		case slices.Contains([]string{"--stat", "--numstat", "--shortstat", "--dirstat", "--summary", "--name-only", "--name-status", "--raw", "--check", "-q", "--quiet", "-s", "--no-patch"}, text), strings.HasPrefix(text, "--stat="):
			less = true
		case !strings.HasPrefix(text, "-") && a.known && slices.ContainsFunc(c.paths(a), m.at.Exists):
			return false
		}
	}
	return (asked || shows && !less) && slices.ContainsFunc(c.cwds, m.tracked)
}

// tracked reports whether the rule covers a file of the repository that dir is in.
func (m *fileRule) tracked(dir string) bool {
	top := m.at.Real(dir)
	for ; !m.at.Exists(path.Join(top, ".git")); top = path.Dir(top) {
		if top == "/" || top == "" || top == "." {
			return false
		}
	}
	repository := path.Join(top, ".git")
	if text, err := m.at.Contents(repository, maxSettings); err == nil { // a linked work tree, or a submodule
		to, _ := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), "gitdir: ")
		repository = under(top, to)
	}
	index := path.Join(repository, "index")
	if !m.at.Exists(index) {
		return false // nothing was added
	}
	text, err := m.at.Contents(index, maxIndex)
	if err != nil {
		return true
	}
	covered := false
	ok := eachTracked(text, func(name string) { covered = covered || m.covers(path.Join(top, name)) })
	return covered || !ok
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
