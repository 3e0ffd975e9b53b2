package skill

import (
	"cmp"
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

// A Loader finds skills. Load may be called at every step: it must be cheap if nothing has changed, and safe for
// concurrent use. It returns the skills in a fixed order, no two with the same name, and the diagnostics of all
// skills it found. The caller owns the slices, but not the skills.
//
// An error means that the loader failed as a whole, or that ctx is done.
type Loader interface {
	Load(ctx context.Context) ([]*Skill, []Diagnostic, error)
}

// One loads the skill in a folder. A leading ~ is the home folder.
func One(folder string) Loader { return onDisk(folder, 0) }

// In loads the skills in the folders directly below a folder, which is the usual layout.
func In(folder string) Loader { return onDisk(folder, 1) }

// Under loads the skills at any depth below a folder. It does not look for skills
// inside of a skill, in version control or in node_modules.
func Under(folder string) Loader { return onDisk(folder, anyDepth) }

// FS loads the skills anywhere in fsys, such as an embed.FS. Whether links are followed
// depends on fsys: prefer [Under] to os.DirFS, which follows links out of the folder.
func FS(fsys fs.FS) Loader {
	return loader{&scanner{fileTree: fileTree{fsys: &fsys}, depth: anyDepth}}
}

// onDisk keeps the error of a bad path for Load, so that a Loader can be written as a literal in a configuration.
func onDisk(folder string, depth int) Loader {
	dir, err := expand(folder)
	return loader{&scanner{fileTree: fileTree{dir: dir}, depth: depth, pathErr: err}}
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

// Memory returns a Loader of the given skills. They are checked like skills from files: each needs a name and a
// description.
func Memory(skills ...*Skill) Loader { return loader{&memory{slices.Clone(skills)}} }

// A memory is the finder of Memory. A Loader holds a pointer to it, so that loaders can be compared.
type memory struct{ skills []*Skill }

func (m *memory) find(context.Context) (*findings, error) {
	f := &findings{}
	for _, s := range m.skills {
		r := newReport(s)
		checkFields(r, s, "", nil)
		f.problems = append(f.problems, r.problems...)
		if !r.failed() {
			f.skills = append(f.skills, s)
		}
	}
	return f, nil
}

// Merge joins loaders. Of two skills with the same name the first wins and the other is
// reported. A loader that fails is reported and does not affect the others.
func Merge(loaders ...Loader) Loader { return loader{&merged{slices.Clone(loaders)}} }

type merged struct{ loaders []Loader }

func (m *merged) find(ctx context.Context) (*findings, error) {
	joined := &findings{}
	for _, l := range m.loaders {
		f, err := find(ctx, l)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			joined.problems = append(joined.problems, Diagnostic{Rule: "loader", Severity: SeverityError, Message: err.Error(), Fatal: true})
			continue
		}
		joined.skills, joined.problems = append(joined.skills, f.skills...), append(joined.problems, f.problems...)
	}
	return joined, nil
}

// findings are what a finder found.
type findings struct {
	skills   []*Skill     // including skills with the name of an earlier one
	problems []Diagnostic // without shadowed

	once     sync.Once // for dropShadowed
	unique   []*Skill  // the first skill of each name
	shadowed []Diagnostic
}

// A finder implements a loader of this package. Unlike Load it also returns the skills that Load drops, for Validate.
type finder interface {
	find(ctx context.Context) (*findings, error)
}

// find returns the findings of any loader.
func find(ctx context.Context, l Loader) (*findings, error) {
	if ours, ok := l.(finder); ok {
		return ours.find(ctx)
	}
	skills, diagnostics, err := l.Load(ctx)
	return &findings{skills: skills, problems: diagnostics}, err
}

// dropShadowed sets unique, and shadowed to the diagnostics of all other skills.
func (f *findings) dropShadowed() {
	first := make(map[string]*Skill, len(f.skills))
	for _, s := range f.skills {
		if winner := first[s.Name]; winner != nil {
			r := newReport(s)
			r.warn("shadowed", 0, "the skill %s is hidden by the one in %s, which was found first; rename one of them", quote(s.Name), quote(cmp.Or(winner.Path, "memory")))
			f.shadowed = append(f.shadowed, r.problems...)
			continue
		}
		first[s.Name] = s
		f.unique = append(f.unique, s)
	}
}

type loader struct{ finder }

func (l loader) Load(ctx context.Context) ([]*Skill, []Diagnostic, error) {
	f, err := l.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	f.once.Do(f.dropShadowed)
	return slices.Clone(f.unique), slices.Concat(f.problems, f.shadowed), nil
}

// Watch loads at once and then after every interval, which must be positive, until ctx is done. It yields the
// skills first and whenever they have changed, and of equal errors in a row only the first.
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
