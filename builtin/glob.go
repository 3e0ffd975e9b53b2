package builtin

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

//go:embed text/glob.md
var globText string

const (
	maxMatches    = 500  // files that Glob returns
	maxGlobs      = 1000 // patterns that the braces of a pattern expand to
	searchTimeout = 30 * time.Second
)

type globIn struct {
	Pattern   string `json:"pattern" jsonschema_description:"what to look for, such as **/*.go"`
	Path      string `json:"path,omitempty" jsonschema_description:"directory to look in; the working directory if left out"`
	GitIgnore bool   `json:"gitignore,omitempty" jsonschema:"default=false" jsonschema_description:"leave out files that .gitignore, .ignore or .git/info/exclude exclude, and .git"`
}

type glob struct {
	tool.Tool
	judge // implements [tool.Judge]
}

// Glob returns the tool that finds files by name.
func Glob(c Config) (tool.Tool, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	pattern := func(input json.RawMessage) (globPattern, error) {
		in, err := unmarshal[globIn](input)
		return newGlobPattern(c.absDir(in.Path), in.Pattern), err
	}
	g := &glob{judge: judge{Config: c, tool: "Glob", access: searchesTree, path: func(input json.RawMessage) (string, bool) {
		p, err := pattern(input)
		return p.reach(), err == nil
	}, openedDir: func(input json.RawMessage) string {
		p, _ := pattern(input) // path was called first and reports the error
		return p.dir
	}}}
	g.Tool, err = tool.New("Glob", globText, g.run, tool.Options{ReadOnly: true, Parallel: true})
	return g, err
}

// absDir returns the absolute path of a directory that the model named; "" is the working directory.
func (c *Config) absDir(name string) string {
	if name == "" {
		name = "."
	}
	return c.place(nil).Abs(name)
}

type globPattern struct {
	dir      string
	globs    []string // for doublestar, relative to dir; braces are expanded, since doublestar would try every combination
	fixed    []string // the leading directories of the pattern below dir, without wildcards
	maxDepth int      // how many directories a match can be below dir; -1 means any number

	matchesNone  bool // nothing can match
	tooManyGlobs bool // the braces expand to more than maxGlobs
	invalid      bool // not a valid glob
}

const wildcards = "*?[{"

// badGlob is the error for a glob that cannot be parsed.
func badGlob(name, glob string) error {
	return fmt.Errorf("%s %.100q is not a valid glob: a [ or { is not closed or empty; write [[] to match a bracket", name, glob)
}

func newGlobPattern(dir, pattern string) globPattern {
	pattern = strings.ReplaceAll(pattern, `\`, "/") // some models write Windows paths
	if path.IsAbs(pattern) {
		dir, pattern = "/", strings.TrimLeft(pattern, "/")
		for { // begin the search as deep as possible
			seg, rest, hasSlash := strings.Cut(pattern, "/")
			if !hasSlash || strings.ContainsAny(seg, wildcards) || seg == ".." {
				break
			}
			dir, pattern = path.Join(dir, seg), rest
		}
	}
	g := globPattern{dir: dir, maxDepth: -1}
	var segs []string
	for seg := range strings.SplitSeq(pattern, "/") {
		switch {
		case seg == "" || seg == ".":
			continue
		case seg == "..":
			g.matchesNone = true
			g.fixed = append(g.fixed, seg) // so that permission is judged for the directory that ".." leads to
		case len(g.fixed) == len(segs) && !strings.ContainsAny(seg, wildcards):
			g.fixed = append(g.fixed, seg)
		}
		segs = append(segs, seg)
	}
	if len(segs) == 0 {
		g.matchesNone = true
	} else if len(g.fixed) == len(segs) { // the last segment names a file, not a directory
		g.fixed = g.fixed[:len(segs)-1]
	}
	joined := strings.Join(segs, "/")
	if !strings.Contains(joined, "**") {
		g.maxDepth = strings.Count(joined, "/")
	}
	// A negated class must not match a slash.
	glob := strings.NewReplacer("[!", "[!/", "[^", "[!/").Replace(joined)
	// Names may contain brackets, so brackets also match themselves.
	literal := strings.NewReplacer("[", `\[`, "]", `\]`).Replace(joined)
	for _, s := range slices.Compact([]string{glob, literal}) {
		if !doublestar.ValidatePattern(s) {
			g.invalid = true // even if literal is valid: the model may have meant a class
		} else {
			g.globs = append(g.globs, expandBraces(s, maxGlobs+1)...)
		}
	}
	g.tooManyGlobs = len(g.globs) > maxGlobs
	g.matchesNone = g.matchesNone || len(g.globs) == 0
	return g
}

// reach returns a directory that contains all possible matches.
func (g globPattern) reach() string { return path.Join(append([]string{g.dir}, g.fixed...)...) }

func (g globPattern) match(rel string) bool {
	return slices.ContainsFunc(g.globs, func(glob string) bool { return doublestar.MatchUnvalidated(glob, rel) })
}

// enters reports whether the directory at rel may contain matches.
func (g globPattern) enters(rel string) bool {
	segs := strings.Split(rel, "/")
	n := min(len(segs), len(g.fixed))
	return slices.Equal(segs[:n], g.fixed[:n]) && (g.maxDepth < 0 || len(segs) <= g.maxDepth)
}

func (g *glob) run(ctx context.Context, in globIn) (string, error) {
	p := newGlobPattern(g.absDir(in.Path), in.Pattern)
	if p.invalid {
		return "", badGlob("pattern", in.Pattern)
	}
	if p.tooManyGlobs {
		return "", fmt.Errorf("the braces of pattern %.100q expand to more than %d patterns; write fewer, or call Glob several times", in.Pattern, maxGlobs)
	}
	target := g.target(ctx, p.dir)
	top, err := g.openDir(ctx, target, p.dir)
	if err != nil {
		return "", err
	}
	if p.matchesNone {
		top.Close()
		return fmt.Sprintf("No files match %q: a pattern names files below path, without \"..\".", in.Pattern), nil
	}
	searchCtx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	var matches newestFiles
	prefix := strings.TrimSuffix(p.dir, "/") + "/"
	w := walk{
		backend:    g.Backend,
		real:       target.Path,
		except:     except(ctx),
		obeyIgnore: in.GitIgnore,
		enter: func(full, name string) bool {
			return p.enters(full[len(prefix):]) && (!in.GitIgnore || name != ".git")
		},
		wants:  func(full string) bool { return p.match(full[len(prefix):]) },
		forced: func(string) bool { return false },
		file: func(_ int, f walkFile) {
			if info, err := f.entry.Info(); err == nil { // else the file was removed meanwhile
				matches.add(foundFile{f.path, info.ModTime()})
			}
		},
	}
	w.run(searchCtx, p.dir, top)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return matches.text(in.Pattern, p.dir, &w, searchCtx.Err() != nil), nil
}

// openDir opens a directory named by the model.
func (c *Config) openDir(ctx context.Context, file permission.File, name string) (fs.File, error) {
	f, err := c.Backend.Open(ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("directory %s: %w; the working directory, which is searched without path, is %s", name, fs.ErrNotExist, c.Dirs[0])
	} else if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is a file, not a directory; read it with Read", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

type foundFile struct {
	path    string
	changed time.Time
}

// newestFiles keeps the maxMatches files that were changed last.
type newestFiles struct {
	mu    sync.Mutex
	files []foundFile // at most 4*maxMatches, so that not every add has to sort
	total int         // files that were added
}

func (n *newestFiles) add(f foundFile) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.total++
	if n.files = append(n.files, f); len(n.files) == 4*maxMatches {
		n.sortAndTrim()
	}
}

func (n *newestFiles) sortAndTrim() {
	slices.SortFunc(n.files, func(a, b foundFile) int {
		return cmp.Or(b.changed.Compare(a.changed), cmp.Compare(a.path, b.path))
	})
	n.files = n.files[:min(len(n.files), maxMatches)]
}

// text returns the text for the model.
func (n *newestFiles) text(pattern, dir string, w *walk, timedOut bool) string {
	n.sortAndTrim()
	var b strings.Builder
	for _, f := range n.files {
		b.WriteString(f.path + "\n")
	}
	if n.total == 0 {
		fmt.Fprintf(&b, "No files match %q below %s.", pattern, dir)
		if !strings.Contains(pattern, "**") {
			b.WriteString(" To search its subdirectories too, write **/" + path.Base(pattern) + ".")
		}
		b.WriteByte('\n')
	}
	if more := n.total - len(n.files); more > 0 {
		fmt.Fprintf(&b, "[%s more; make the pattern or path narrower]\n", plural(more, "file"))
	}
	b.WriteString(w.notes(timedOut))
	return strings.TrimSuffix(b.String(), "\n")
}

// notes returns notes for the model about the limits of a search.
func (w *walk) notes(timedOut bool) string {
	s := ""
	switch n := w.unread.Load(); n {
	case 0:
	case 1:
		s = "[1 directory could not be read]\n"
	default:
		s = fmt.Sprintf("[%d directories could not be read]\n", n)
	}
	if n := int(w.leftOut.Load()); n > 0 {
		s += fmt.Sprintf("[%s left out: files with credentials, and what a rule for Read covers, are not searched]\n", plural(n, "path"))
	}
	if timedOut {
		s += fmt.Sprintf("[stopped after %v; make path narrower]\n", searchTimeout)
	}
	return s
}
