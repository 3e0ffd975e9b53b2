package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Loader finds skills. Load may be called at every step: it must be cheap
// when nothing has changed, and safe for concurrent use. It returns the skills
// in a fixed order, no two with the same name, and what is wrong with them or
// with those it had to leave out. Who calls it owns the slices, not the skills.
//
// An error means that the loader could not look at all, or that ctx is done.
type Loader interface {
	Load(ctx context.Context) ([]*Skill, []Diagnostic, error)
}

// One loads the one skill whose folder is given. A leading ~ is the home folder.
func One(folder string) Loader { return onDisk(folder, 0) }

// In loads the skills directly in a folder, each in a folder of its own, as agents keep them.
func In(folder string) Loader { return onDisk(folder, 1) }

// Under loads the skills at any depth below a folder. It does not look for skills
// inside of a skill, in version control or in node_modules.
func Under(folder string) Loader { return onDisk(folder, anyDepth) }

// FS loads the skills anywhere in fsys, such as an embed.FS. What fsys follows
// is its affair: use [Under] rather than os.DirFS to be safe from links.
func FS(fsys fs.FS) Loader {
	return loader{&scanner{place: place{fsys: &fsys}, depth: anyDepth}}
}

// onDisk keeps the error of a bad path for Load, so that loaders can be written
// as values in a configuration.
func onDisk(folder string, depth int) Loader {
	dir, err := expand(folder)
	return loader{&scanner{place: place{dir: dir}, depth: depth, broken: err}}
}

// expand makes a path absolute, with ~ as the home folder.
func expand(folder string) (string, error) {
	if folder == "" {
		return "", errors.New("load skills: the folder's name is empty")
	}
	if rest, ok := strings.CutPrefix(folder, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("load skills from %s: %w", quote(folder), err)
		}
		folder = filepath.Join(home, rest)
	}
	return filepath.Abs(folder)
}

// Memory gives the skills it is given, checked like those of a file; a name or
// a description has to be there.
func Memory(skills ...*Skill) Loader { return loader{memory(slices.Clone(skills))} }

type memory []*Skill

func (m memory) find(context.Context) (*findings, error) {
	f := &findings{}
	for _, s := range m {
		r := &report{file: s.Path}
		checkFields(r, s, "", nil)
		f.list = append(f.list, r.list...)
		if !r.failed() {
			f.all = append(f.all, s)
		}
	}
	return f, nil
}

// Merge joins loaders. Of two skills with one name the first wins and the other
// is reported. A loader that fails is reported, too, and takes nothing else away.
func Merge(loaders ...Loader) Loader { return loader{merged(slices.Clone(loaders))} }

type merged []Loader

func (m merged) find(ctx context.Context) (*findings, error) {
	all := &findings{}
	for _, l := range m {
		f, err := find(ctx, l)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			all.list = append(all.list, Diagnostic{Rule: "loader", Severity: SeverityError, Message: err.Error(), Fatal: true})
			continue
		}
		all.all, all.list = append(all.all, f.all...), append(all.list, f.list...)
	}
	return all, nil
}

// findings are all the skills a finder found, also those of the same name.
type findings struct {
	all  []*Skill
	list []Diagnostic // without those of shadowed skills

	once     sync.Once
	unique   []*Skill
	shadowed []Diagnostic
}

// A finder is what is behind the loaders of this package. It keeps skills that
// Load would drop, for Validate.
type finder interface {
	find(ctx context.Context) (*findings, error)
}

// find is for loaders of this package and of others.
func find(ctx context.Context, l Loader) (*findings, error) {
	if ours, ok := l.(finder); ok {
		return ours.find(ctx)
	}
	skills, diagnostics, err := l.Load(ctx)
	return &findings{all: skills, list: diagnostics}, err
}

// drop leaves out the skills that have the name of one before them.
func (f *findings) drop() {
	first := make(map[string]*Skill, len(f.all))
	for _, s := range f.all {
		if hiding := first[s.Name]; hiding != nil {
			r := &report{file: s.Path}
			r.warn("shadowed", 0, "the skill %s is hidden by the one in %s, which was found first; rename one of them", quote(s.Name), quote(hiding.Path))
			f.shadowed = append(f.shadowed, r.list...)
			continue
		}
		first[s.Name] = s
		f.unique = append(f.unique, s)
	}
}

// A loader makes a Loader of a finder.
type loader struct{ finder }

func (l loader) Load(ctx context.Context) ([]*Skill, []Diagnostic, error) {
	f, err := l.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	f.once.Do(f.drop)
	return slices.Clone(f.unique), slices.Concat(f.list, f.shadowed), nil
}

// Watch loads at once and then after every interval, which must be positive, and
// yields the skills when they are not the same as before, until ctx is done. A
// failure is yielded without ending it, once for as long as it stays the same.
func Watch(ctx context.Context, l Loader, interval time.Duration) iter.Seq2[[]*Skill, error] {
	return func(yield func([]*Skill, error) bool) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		var last []*Skill
		var failure string
		for first := true; ; first = false {
			skills, _, err := l.Load(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if err.Error() != failure && !yield(nil, err) {
					return
				}
				failure = err.Error()
			case first || failure != "" || !slices.Equal(skills, last):
				last, failure = skills, ""
				if !yield(slices.Clone(skills), nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}
