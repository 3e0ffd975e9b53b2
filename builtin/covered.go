package builtin

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// covered returns the paths that the globs cover: globs without a wildcard as they are, and the matching files
// below dirs or below a glob's fixed directory. A glob that begins above dirs, such as "/**/*.pem", is searched for
// only in dirs, since searching the whole machine would take too long.
func covered(ctx context.Context, globs, dirs []string) ([]string, error) {
	var out, wild, tops []string
	for _, g := range globs {
		name, noWildcard := pathrule.Fixed(g)
		if name != "" && (noWildcard || pathrule.TreeCoveredBy([]string{g}, name)) {
			out = append(out, name)
			continue
		}
		wild = append(wild, g)
		if name != "" && !slices.ContainsFunc(dirs, func(dir string) bool { return within(dir, name) || within(name, dir) }) {
			tops = append(tops, name)
		}
	}
	if len(wild) == 0 {
		return out, nil
	}
	dirsLeft := maxDirs
	for _, top := range slices.Concat(dirs, tops) {
		if real, err := filepath.EvalSymlinks(top); err == nil {
			out = append(out, coveredBelow(ctx, real, wild, &dirsLeft)...)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if dirsLeft < 0 {
			return nil, fmt.Errorf("%s has more than %d directories, too many to search before each command for what the deny rule for %s covers; use a rule for a smaller directory", top, maxDirs, wild[0])
		}
	}
	return out, nil
}

// coveredBelow returns what the globs cover below the directory top, whose links are resolved. A directory that
// cannot be listed is covered as a whole. It stops when dirsLeft, from which it subtracts the directories that it lists, is negative.
func coveredBelow(ctx context.Context, top string, globs []string, dirsLeft *int) (out []string) {
	filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			*dirsLeft--
		}
		switch {
		case *dirsLeft < 0 || ctx.Err() != nil:
			return fs.SkipAll
		case err != nil:
			out = append(out, name)
			return fs.SkipDir
		case d.IsDir() && pathrule.TreeCoveredBy(globs, name):
			out = append(out, name)
			return fs.SkipDir
		case !d.IsDir() && pathrule.CoveredBy(globs, name):
			out = append(out, name)
		}
		return nil
	})
	return out
}
