package builtin

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// coveredPaths returns the paths that the globs cover. Globs for a single file or tree need no search. For other globs
// dirs are searched, and the fixed directory at the start of the glob, unless it is above dirs, as for "/**/*.pem":
// searching the whole machine would take too long.
func coveredPaths(ctx context.Context, globs, dirs []string) ([]string, error) {
	var paths, searched, tops []string
	for _, g := range globs {
		fixed, noWildcard := pathrule.Fixed(g)
		if fixed != "" && (noWildcard || pathrule.TreeCoveredBy([]string{g}, fixed)) {
			paths = append(paths, fixed)
			continue
		}
		searched = append(searched, g)
		if fixed != "" && !slices.ContainsFunc(dirs, func(dir string) bool { return within(dir, fixed) || within(fixed, dir) }) {
			tops = append(tops, fixed)
		}
	}
	if len(searched) == 0 {
		return paths, nil
	}
	dirsLeft := maxDirs
	for _, top := range slices.Concat(dirs, tops) {
		if real, err := filepath.EvalSymlinks(top); err == nil {
			paths = append(paths, coveredBelow(ctx, real, searched, &dirsLeft)...)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if dirsLeft < 0 {
			return nil, fmt.Errorf("%s has more than %d directories, too many to search before each command for what the deny rule for %s covers; use a rule for a smaller directory", top, maxDirs, searched[0])
		}
	}
	return paths, nil
}

// coveredBelow returns what the globs cover in the directory top, a path without links. A directory that cannot be
// listed is covered as a whole. Each directory decrements dirsLeft; the search stops when dirsLeft is negative.
func coveredBelow(ctx context.Context, top string, globs []string, dirsLeft *int) (paths []string) {
	filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			*dirsLeft--
		}
		switch {
		case *dirsLeft < 0 || ctx.Err() != nil:
			return fs.SkipAll
		case err != nil, d.IsDir() && pathrule.TreeCoveredBy(globs, name):
			paths = append(paths, name)
			return fs.SkipDir
		case !d.IsDir() && pathrule.CoveredBy(globs, name):
			paths = append(paths, name)
		}
		return nil
	})
	return paths
}
