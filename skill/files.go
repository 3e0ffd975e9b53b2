package skill

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a skill's folder.
const (
	maxResource = 4 << 20 // bytes of one file that is read
	maxListed   = 1000    // files that are listed
)

// A File is a file in a skill's folder, other than its SKILL.md.
type File struct {
	Name  string // relative to the skill's folder, with slashes
	Bytes int64
	Kind  string // "script", "reference", "asset", by the folders of the specification, or "other"
}

// Files lists the skill's files sorted by name: at most 1,000, without hidden files and installed modules. Only regular
// files are listed, and links to regular files in the skill's folder.
func (s *Skill) Files() ([]File, error) {
	if s.Remote != nil {
		return s.remoteFiles(), nil
	}
	files, done, err := s.open()
	if err != nil {
		return nil, s.wrap("list the files of", err)
	}
	defer done()
	var list []File
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // skip a folder that cannot be read
		case d.IsDir() && (ignored(d.Name()) || isHidden(name)):
			return fs.SkipDir
		case d.IsDir(), isHidden(name), !strings.Contains(name, "/") && isSkillFile(name):
			return nil
		case len(list) == maxListed:
			return fs.SkipAll
		}
		if info, err := fs.Stat(files, name); err == nil && info.Mode().IsRegular() && !leadsToHidden(files, name) {
			list = append(list, File{name, info.Size(), kindOf(name)})
		}
		return nil
	})
	return list, s.wrap("list the files of", err)
}

// readForModel reads a file, of at most maxResource bytes, that a model asked for.
func (s *Skill) readForModel(ctx context.Context, name string) ([]byte, error) {
	if s.Remote != nil {
		return s.readRemote(ctx, name)
	}
	data, err := s.readFile(name, maxResource)
	if err != nil {
		return nil, fmt.Errorf("read file %s of skill %s: %w", quote(name), quote(s.Name), err)
	}
	return data, nil
}

// readFile reads a file of at most limit bytes. It accepts backslashes in place of slashes, which models write that saw
// Windows paths.
func (s *Skill) readFile(name string, limit int64) ([]byte, error) {
	clean := path.Clean(strings.ReplaceAll(name, `\`, "/"))
	if !fs.ValidPath(clean) || !filepath.IsLocal(filepath.FromSlash(clean)) {
		return nil, errors.New("the name must be relative to the skill's folder and stay inside; list the files by reading the skill without file")
	}
	files, done, err := s.open()
	if err != nil {
		return nil, err
	}
	defer done()
	if leadsToHidden(files, clean) {
		return nil, errors.New("hidden files are not part of a skill, since they may hold credentials; if you need it, read it with another tool")
	}
	return readRegular(files, clean, limit)
}

// isHidden reports whether a name in a skill's folder, or a folder on the way, begins with a dot.
func isHidden(name string) bool {
	return strings.HasPrefix(name, ".") && name != "." || strings.Contains(name, "/.")
}

// maxLinks is how many links a name may lead through, as in Linux.
const maxLinks = 40

// leadsToHidden reports whether a name is hidden, or leads to a hidden file or folder through links.
func leadsToHidden(files fs.FS, name string) bool {
	real, links := ".", 0
	for parts := strings.Split(name, "/"); len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		next := path.Join(real, part)
		target, err := fs.ReadLink(files, next)
		switch {
		case part == "..":
			real = path.Dir(real)
		case isHidden(part):
			return true
		case err != nil: // not a link
			real = next
		case links == maxLinks:
			return true
		default:
			links++
			parts = append(strings.Split(filepath.ToSlash(target), "/"), parts...)
		}
	}
	return false
}

// readRegular reads a regular file of at most limit bytes. It checks the kind of the file first, since opening a pipe
// could block forever.
func readRegular(files fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(files, name)
	if err != nil && isLink(files, name) {
		return nil, errors.New("the link leads out of the skill's folder or has no target; only the user can repair that, by a copy of the file: continue without it")
	}
	if err != nil {
		return nil, err
	}
	return readWithInfo(files, name, info, limit)
}

// readWithInfo is readRegular after Stat, which returned info. A file that has grown since then is refused too.
func readWithInfo(files fs.FS, name string, info fs.FileInfo, limit int64) ([]byte, error) {
	switch {
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file; continue without it")
	case info.Size() > limit:
		return nil, fmt.Errorf("it has %d bytes, more than the limit of %d; read a part of it with another tool", info.Size(), limit)
	}
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	n, err := b.ReadFrom(io.LimitReader(f, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("it grew beyond the limit of %d bytes; read a part of it with another tool", limit)
	}
	return b.Bytes(), err
}

// open returns the skill's files, confined to its folder.
func (s *Skill) open() (fs.FS, func() error, error) {
	if s.at == (fileTree{}) {
		return nil, nil, errors.New("the skill has no folder")
	}
	return s.at.open(s.folder)
}

// wrap returns err with the action that failed and the skill's name.
func (s *Skill) wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s skill %s: %w", action, quote(s.Name), err)
}

// A fileTree is where a loader looks: a folder on disk, or an fs.FS.
type fileTree struct {
	dir  string // absolute; "" if the tree is fsys
	fsys *fs.FS // a pointer, so that fileTrees can be compared
}

// open returns the files of a folder in the tree. On disk neither names nor links lead out of the folder.
func (t fileTree) open(folder string) (fs.FS, func() error, error) {
	if t.dir == "" {
		sub, err := fs.Sub(*t.fsys, folder)
		return sub, func() error { return nil }, err
	}
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, nil, err
	}
	if folder != "." {
		outer := root
		defer outer.Close()
		if root, err = outer.OpenRoot(filepath.FromSlash(folder)); err != nil {
			return nil, nil, err
		}
	}
	return root.FS(), root.Close, nil
}

// stat returns the info of a file. It may follow a link out of the tree, as it only
// checks whether a loaded file has changed.
func (t fileTree) stat(path string) (fs.FileInfo, error) {
	if t.dir == "" {
		return fs.Stat(*t.fsys, path)
	}
	return os.Stat(path)
}

// path returns the name of a file of the tree for stat and for messages.
func (t fileTree) path(name string) string {
	if t.dir == "" {
		return name
	}
	return filepath.Join(t.dir, filepath.FromSlash(name))
}

// ignored reports whether a folder of that name has neither skills nor files of a skill.
func ignored(folder string) bool {
	return slices.Contains([]string{".git", ".hg", ".svn", "node_modules", "__pycache__"}, folder)
}

// kindOf classifies a file by the folders of the specification.
func kindOf(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return cmp.Or(map[string]string{"scripts": "script", "references": "reference", "assets": "asset"}[top], "other")
}

// isText reports whether a file is text: valid UTF-8 without NUL.
func isText(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 }
